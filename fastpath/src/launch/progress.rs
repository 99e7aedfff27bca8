//! Detects whether the lcores poll, and describes the arms, for the service manager.

use tables::lcore::LcoreStatus;

/// The lcores' iterations when all of them had last polled.
#[derive(Debug, Default)]
pub(super) struct PollProgress {
    ticks: Vec<u64>,
}

impl PollProgress {
    /// Returns true if each lcore has completed an iteration of its poll loop since the last call
    /// that returned true. The first call returns true. An lcore also iterates while a NIC is being
    /// repaired, without its queues.
    pub(super) fn all_polled(&mut self, lcores: &[LcoreStatus]) -> bool {
        let ticks: Vec<u64> = lcores.iter().map(LcoreStatus::tick).collect();
        let polled = self.ticks.iter().zip(&ticks).all(|(before, now)| before != now);
        if polled {
            self.ticks = ticks;
        }
        polled
    }
}

/// Returns the status line: the number of lcores, and whether the link of each arm is up.
pub(super) fn status_line(lcores: usize, arms: &[(&str, &str, bool)]) -> String {
    let arms = arms.iter().map(|(arm, device, up)| {
        let link = if *up { "up" } else { "down" };
        format!("{arm} ({device}) {link}")
    });
    format!("{lcores} lcore(s) poll; {}", arms.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::layout::Sizes;
    use tables::region::Region;

    #[test]
    fn all_lcores_must_have_polled() {
        let region = Region::anonymous(&Sizes { lcores: 2, ..Sizes::SMALL }).expect("a region");
        let lcores = &region.lcores()[..2];
        let mut progress = PollProgress::default();
        assert!(progress.all_polled(lcores));
        assert!(!progress.all_polled(lcores), "none polled");
        lcores[1].count_iteration();
        assert!(!progress.all_polled(lcores), "one polled");
        lcores[0].count_iteration();
        assert!(progress.all_polled(lcores), "they need not poll between the same two calls");
        assert!(!progress.all_polled(lcores), "none polled since");
    }

    #[test]
    fn status_line_names_lcores_and_arms() {
        let arms = [("ingress", "net_tap0", true), ("egress", "0000:00:06.0", false)];
        assert_eq!(
            status_line(2, &arms),
            "2 lcore(s) poll; ingress (net_tap0) up, egress (0000:00:06.0) down"
        );
    }
}
