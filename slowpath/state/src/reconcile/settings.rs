//! Limits and intervals of the reconciler, and the time that its caller passes.

use std::time::{Duration, Instant, SystemTime};

/// Limits and intervals of the reconciler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum number of frontends written in one step, so that a large change does not block the
    /// caller's loop; at least 1.
    pub frontends_per_step: usize,
    /// Maximum number of entries pruned in one step; at least 1.
    pub prunes_per_step: usize,
    /// Delay before the retry of a rejected frontend or a failed prune; doubles with each further
    /// failure.
    pub retry_min: Duration,
    /// Maximum delay before a retry.
    pub retry_max: Duration,
    /// Interval between full passes.
    pub pass: Duration,
    /// Interval between prunes. The first prune that completes after this time since the first step
    /// also ends the quarantine inherited from an earlier process.
    pub prune: Duration,
    /// Time after the first step at which the plane is written even if sources have not completed
    /// their initial lists. A source may be reachable only through the plane itself.
    pub initial_list_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            frontends_per_step: 512,
            prunes_per_step: 512,
            retry_min: Duration::from_millis(50),
            retry_max: Duration::from_secs(60),
            pass: Duration::from_secs(5 * 60),
            prune: Duration::from_secs(30 * 60),
            initial_list_timeout: Duration::from_secs(60),
        }
    }
}

/// Current time by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Monotonic clock, for intervals and deadlines.
    pub steady: Instant,
    /// Wall clock, for timestamps.
    pub wall: SystemTime,
}
