//! Counters of the health checker, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::machine::Answer;

/// Number of buckets for the delay of checks: below 1 ms, 2 ms, 4 ms and so on.
pub const BEHIND: usize = 16;

/// Counters of one process, written by the checker only.
#[derive(Debug, Default)]
pub struct Counters {
    good: AtomicU64,
    bad: AtomicU64,
    untold: AtomicU64,
    late: AtomicU64,
    behind: [AtomicU64; BEHIND],
    healthy: AtomicU64,
    unhealthy: AtomicU64,
    running: AtomicU64,
    standing: [AtomicU64; 3],
}

/// A snapshot of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Successful checks.
    pub good: u64,
    /// Failed checks, including timeouts.
    pub bad: u64,
    /// Checks that this machine could not run.
    pub untold: u64,
    /// Checks that began more than a tenth of their interval too late.
    pub late: u64,
    /// Checks by delay: bucket n counts those below 2^n ms, the last one all others.
    pub behind: [u64; BEHIND],
    /// Transitions to healthy.
    pub healthy: u64,
    /// Transitions to unhealthy.
    pub unhealthy: u64,
    /// Running checks.
    pub running: u64,
    /// Number of backends by state: unknown, healthy, unhealthy.
    pub standing: [u64; 3],
}

impl Counters {
    /// Returns a snapshot of the counters.
    pub fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            good: of(&self.good),
            bad: of(&self.bad),
            untold: of(&self.untold),
            late: of(&self.late),
            behind: std::array::from_fn(|n| of(&self.behind[n])),
            healthy: of(&self.healthy),
            unhealthy: of(&self.unhealthy),
            running: of(&self.running),
            standing: [0, 1, 2].map(|n: usize| of(&self.standing[n])),
        }
    }

    pub(crate) fn answered(&self, answer: &Answer) {
        let counter = match answer.good {
            Some(true) => &self.good,
            Some(false) => &self.bad,
            None => &self.untold,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn began(&self, behind: Duration, late: bool) {
        self.late.fetch_add(u64::from(late), Ordering::Relaxed);
        let bits = u128::BITS - behind.as_millis().leading_zeros();
        self.behind[(bits as usize).min(BEHIND - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn judged(&self, healthy: bool) {
        let counter = if healthy { &self.healthy } else { &self.unhealthy };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn running(&self, running: usize) {
        self.running.store(running as u64, Ordering::Relaxed);
    }

    pub(crate) fn standing(&self, counts: [u64; 3]) {
        for (counter, count) in self.standing.iter().zip(counts) {
            counter.store(count, Ordering::Relaxed);
        }
    }
}
