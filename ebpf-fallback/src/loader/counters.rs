//! Publishes state and counters of the arms' interfaces in the region, and CPU time and memory of
//! this process, as fastpath does.

use std::time::{Duration, Instant};

use host::process;
use host::xdp::Mode;
use tables::nic::{Nic as Published, NicCounters, NicState, XdpLoss, XdpLosses};
use tables::region::Region;

use super::nic::{Kernel, Nic};
use crate::losses::LossCounters;

/// Interval of reading the counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// The interface of one arm.
struct ArmCounters {
    published: Published,
    /// The kernel's counters at the last read; `None` before the first.
    counted: Option<NicCounters>,
    /// Losses behind the XDP programs before this process.
    earlier_losses: XdpLosses,
    /// The kinds of loss that the kernel counts in the interface's send errors as well.
    losses_in_send_errors: &'static [XdpLoss],
}

/// Counters of the arms' interfaces.
pub struct Counters {
    arms: Vec<ArmCounters>,
    losses: LossCounters,
    read_at: Option<Instant>,
}

impl Counters {
    /// Continues the counters that the region holds.
    pub fn new(region: &Region, nics: &[Nic], modes: &[Mode], losses: LossCounters) -> Counters {
        let arms = nics.iter().zip(modes).enumerate().map(|(arm, (nic, mode))| {
            let before = region.nics().recover(arm);
            let published = Published {
                mac: nic.mac,
                driver: format!("{} ({} XDP)", nic.driver, mode.as_str()),
                port: nic.name.clone(),
                rx_queues: nic.channels.map_or(1, |channels| channels.combined as u16),
                counters: before.counters,
                events: before.events,
                ..Published::default()
            };
            ArmCounters {
                published,
                counted: None,
                earlier_losses: before.xdp_losses,
                losses_in_send_errors: losses_in_send_errors(&nic.driver, *mode),
            }
        });
        Counters { arms: arms.collect(), losses, read_at: None }
    }

    /// Publishes whether the links are up and, once a second, the counters and the process's usage.
    pub fn publish(
        &mut self,
        region: &Region,
        kernel: &mut Kernel,
        nics: &[Nic],
        links: &[bool],
        now: Instant,
    ) {
        let due = self.read_at.is_none_or(|at| now >= at + INTERVAL);
        for (number, ((arm, nic), up)) in self.arms.iter_mut().zip(nics).zip(links).enumerate() {
            let changed = arm.published.link_up != *up;
            if changed && !*up {
                arm.published.events.link_losses += 1;
            }
            arm.published.link_up = *up;
            if due {
                arm.read(kernel, nic, number, &self.losses);
            }
            if due || changed {
                arm.published.updated_ms = region.now_ms();
                region.nics().publish(number, &arm.published);
            }
        }
        if due {
            self.read_at = Some(now);
            process::publish_usage(region);
        }
    }
}

impl ArmCounters {
    /// Adds what the kernel counted since the last read. The first read is the base: the interface
    /// is older than this process.
    fn read(&mut self, kernel: &mut Kernel, nic: &Nic, number: usize, losses: &LossCounters) {
        let counters = kernel.counters(nic.index);
        // Losses are read after the kernel's counters, so that each loss in those is in these too.
        let counts = losses.read();
        self.published.xdp_losses = losses.of_arm(&counts, number, &self.earlier_losses);
        let Some(mut now) = counters else {
            if self.published.state == NicState::Running {
                self.published.events.removals += 1;
            }
            self.published.state = NicState::Removed;
            self.published.detail = format!(
                "interface {} no longer exists; restart weir-ebpf-fallback when it is back",
                nic.name
            );
            return;
        };
        self.published.state = NicState::Running;
        self.published.detail.clear();
        now.send_errors = self.send_errors(&now, &counts[number]);
        let before = self.counted.unwrap_or(now);
        self.published.counters = self.published.counters.advanced(before, now);
        self.published.speed_mbps = kernel.speed_mbps(&nic.name).unwrap_or_default();
        self.published.xstats = kernel.driver_counters(&nic.name);
        self.counted = Some(now);
    }

    /// Returns the frames that the interface could not send, without the losses behind the XDP
    /// programs: each lost frame is published once. Where they are subtracted, the result does not
    /// decrease, since a smaller one would be taken for a counter that started anew.
    fn send_errors(&self, now: &NicCounters, losses: &[u64; XdpLoss::ALL.len()]) -> u64 {
        if self.losses_in_send_errors.is_empty() {
            return now.send_errors;
        }
        let counted_twice: u64 =
            self.losses_in_send_errors.iter().map(|loss| losses[*loss as usize]).sum();
        let others = now.send_errors.saturating_sub(counted_twice);
        self.counted.map_or(others, |before| before.send_errors.max(others))
    }
}

/// Returns the losses that the kernel counts in `tx_dropped` of an interface as well: in generic
/// mode it does so for every driver (`generic_xdp_tx`), in native mode the driver does or does not.
fn losses_in_send_errors(driver: &str, mode: Mode) -> &'static [XdpLoss] {
    match (driver, mode) {
        ("veth", _) => &[XdpLoss::SendDropped, XdpLoss::RedirectDropped],
        (_, Mode::Generic) => &[XdpLoss::SendDropped],
        (_, Mode::Native) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_the_kernel_counts_too_are_published_once() {
        let arm = |driver: &str, mode, counted| ArmCounters {
            published: Published::default(),
            counted,
            earlier_losses: XdpLosses::default(),
            losses_in_send_errors: losses_in_send_errors(driver, mode),
        };
        let errors = |send_errors| NicCounters { send_errors, ..NicCounters::default() };
        let losses = [100, 3, 4, 100];
        let veth = arm("veth", Mode::Native, None);
        assert_eq!(veth.send_errors(&errors(10), &losses), 3);
        assert_eq!(arm("ena", Mode::Native, None).send_errors(&errors(10), &losses), 10);
        assert_eq!(arm("ena", Mode::Generic, None).send_errors(&errors(10), &losses), 6);
        // The tracepoint has been counted, and the interface's counter not yet.
        let later = arm("veth", Mode::Native, Some(errors(3)));
        assert_eq!(later.send_errors(&errors(10), &[0, 8, 4, 0]), 3);
    }
}
