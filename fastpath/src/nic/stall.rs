//! Detects a NIC that accepts no more frames.

use tables::counters::ArmCounter;
use tables::reason::DropReason;
use tables::region::Region;

/// The counts of one lcore at the last observation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    sent: u64,
    dropped: u64,
}

/// Finds lcores whose frames were all dropped because the transmit queue was full, over one
/// interval between two observations.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// By lcore; empty before the first observation.
    last: Vec<Counts>,
    stalled: bool,
}

impl StallDetector {
    /// Reads the counters of all lcores for an arm.
    pub(super) fn observe(&mut self, arm: u8, region: &Region, lcores: usize) {
        let counters = region.counters();
        let counts = counters.pages().take(lcores).map(|page| Counts {
            sent: page.arm_count(arm, ArmCounter::TxPackets),
            dropped: page.dropped(arm, DropReason::TxQueueFull),
        });
        self.compare(counts.collect());
    }

    fn compare(&mut self, now: Vec<Counts>) {
        let mut lcores = self.last.iter().zip(&now);
        self.stalled |=
            lcores.any(|(before, now)| now.sent == before.sent && now.dropped > before.dropped);
        self.last = now;
    }

    /// Returns true if an lcore was stalled at an observation since the last call.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(observations: &[[(u64, u64); 2]]) -> bool {
        let mut detector = StallDetector::default();
        for lcores in observations {
            detector.compare(lcores.map(|(sent, dropped)| Counts { sent, dropped }).to_vec());
        }
        detector.take()
    }

    #[test]
    fn an_lcore_that_only_drops_is_stalled() {
        assert!(observed(&[[(5, 0), (9, 0)], [(6, 0), (9, 3)]]));
        assert!(!observed(&[[(5, 0), (9, 0)], [(6, 0), (10, 3)]]), "overload: some are sent");
        assert!(!observed(&[[(5, 0), (9, 0)], [(5, 0), (9, 0)]]), "idle");
        assert!(!observed(&[[(5, 7), (9, 8)]]), "drops before the first observation");
    }

    #[test]
    fn a_stall_is_taken_once() {
        let mut detector = StallDetector::default();
        for dropped in [0, 1] {
            detector.compare(vec![Counts { sent: 0, dropped }]);
        }
        assert!(detector.take() && !detector.take());
    }
}
