//! Load of an lcore: the share of its time in iterations with packets, from sampled iterations. The
//! utilization of its CPU does not show the load, because a poll loop always uses the whole CPU.

use std::time::{Duration, Instant};

use tables::region::Region;

/// Length of the measured interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Load of one lcore, updated once a second.
#[derive(Default)]
pub struct LcoreLoad {
    /// Start of the current interval, with the nanoseconds of iterations without packets and with
    /// packets at that time.
    since: Option<(Instant, [u64; 2])>,
    share: f64,
}

impl LcoreLoad {
    /// Returns the share, 0 to 1, over the last interval of at least a second; 0 during the first
    /// interval, and with XDP, whose packet loop is the kernel's and is not sampled. To be called
    /// at least once a second.
    pub fn update(&mut self, region: &Region, lcore: usize, now: Instant) -> f64 {
        let page = region.counters().lcore(lcore as u32);
        let total = page.map_or([0; 2], |page| page.iteration_ns());
        match self.since {
            None => self.since = Some((now, total)),
            Some((at, before)) if now >= at + INTERVAL => {
                let [idle, busy] = [0, 1].map(|n: usize| total[n].wrapping_sub(before[n]) as f64);
                // Without a sample in the interval, the share of the interval before is kept.
                if idle + busy > 0.0 {
                    self.share = busy / (idle + busy);
                }
                self.since = Some((now, total));
            }
            Some(_) => {}
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use tables::layout::Sizes;

    use super::*;

    /// Iterations with packets take longer than those without, so the load is a share of time, not
    /// of the number of iterations.
    #[test]
    fn load_is_a_share_of_time_over_the_last_second() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let page = region.counters().lcore(1).unwrap();
        let (mut load, start) = (LcoreLoad::default(), Instant::now());
        let mut after =
            |seconds: u64| load.update(&region, 1, start + Duration::from_secs(seconds));
        page.iteration(5_000, true);
        assert_eq!(after(0), 0.0);
        for _ in 0..30 {
            page.iteration(100, false);
        }
        page.iteration(1_000, true);
        assert_eq!(after(1), 0.25);
        assert_eq!(after(2), 0.25, "no sample");
        page.iteration(700, false);
        assert_eq!(after(3), 0.0);
        page.iteration(700, true);
        assert_eq!(after(4), 1.0);
    }
}
