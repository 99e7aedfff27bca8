//! Counters of the health checker, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::scheduler::ProbeResult;

/// Number of buckets for the delay between a check's due time and its start: below 1 ms, 2 ms, 4 ms
/// and so on.
pub const DELAY_BUCKETS: usize = 16;

/// Counters of the checker of this process. Only the checker writes them.
#[derive(Debug)]
pub struct Counters {
    good: AtomicU64,
    bad: AtomicU64,
    not_run: AtomicU64,
    late: AtomicU64,
    delay: [AtomicU64; DELAY_BUCKETS],
    healthy: AtomicU64,
    unhealthy: AtomicU64,
    running: AtomicU64,
    states: [AtomicU64; 3],
    /// Durations of good checks, of bad ones, and of those that this machine could not run.
    durations: [Histogram; 3],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            good: AtomicU64::default(),
            bad: AtomicU64::default(),
            not_run: AtomicU64::default(),
            late: AtomicU64::default(),
            delay: Default::default(),
            healthy: AtomicU64::default(),
            unhealthy: AtomicU64::default(),
            running: AtomicU64::default(),
            states: Default::default(),
            // Upper bounds from 0.25 ms, a connection within the rack, to 16.4 s in steps of factor
            // 4. Checks with a longer timeout may exceed the last bound.
            durations: [(); 3].map(|()| Histogram::new(exponential_buckets(0.00025, 4.0, 9))),
        }
    }
}

/// A snapshot of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Successful checks.
    pub good: u64,
    /// Failed checks, including timeouts.
    pub bad: u64,
    /// Checks that this machine could not run.
    pub not_run: u64,
    /// Checks that began more than a tenth of their interval too late.
    pub late: u64,
    /// Checks by delay: bucket n counts those below 2^n ms that are not in bucket n-1 or lower; the
    /// last bucket counts all others.
    pub delay: [u64; DELAY_BUCKETS],
    /// Transitions to healthy.
    pub healthy: u64,
    /// Transitions to unhealthy.
    pub unhealthy: u64,
    /// Number of checks that are running now.
    pub running: u64,
    /// Number of backends, counted per service, by state: unknown, healthy, unhealthy.
    pub states: [u64; 3],
}

impl Counters {
    /// Returns a snapshot of the counters.
    pub fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            good: of(&self.good),
            bad: of(&self.bad),
            not_run: of(&self.not_run),
            late: of(&self.late),
            delay: std::array::from_fn(|n| of(&self.delay[n])),
            healthy: of(&self.healthy),
            unhealthy: of(&self.unhealthy),
            running: of(&self.running),
            states: [0, 1, 2].map(|n: usize| of(&self.states[n])),
        }
    }

    /// Returns the durations of good checks, of bad ones, and of those that this machine could not
    /// run.
    pub fn durations(&self) -> [Histogram; 3] {
        self.durations.clone()
    }

    pub(crate) fn completed(&self, result: &ProbeResult) {
        let (counter, durations) = match result.good {
            Some(true) => (&self.good, &self.durations[0]),
            Some(false) => (&self.bad, &self.durations[1]),
            None => (&self.not_run, &self.durations[2]),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        durations.observe(result.took.as_secs_f64());
    }

    pub(crate) fn started(&self, delay: Duration, late: bool) {
        self.late.fetch_add(u64::from(late), Ordering::Relaxed);
        let bits = u128::BITS - delay.as_millis().leading_zeros();
        self.delay[(bits as usize).min(DELAY_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn state_changed(&self, healthy: bool) {
        let counter = if healthy { &self.healthy } else { &self.unhealthy };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn running(&self, running: usize) {
        self.running.store(running as u64, Ordering::Relaxed);
    }

    pub(crate) fn states(&self, counts: [u64; 3]) {
        for (counter, count) in self.states.iter().zip(counts) {
            counter.store(count, Ordering::Relaxed);
        }
    }
}
