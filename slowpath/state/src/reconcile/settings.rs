//! How long the reconciler waits for what, and what time it is.

use std::time::{Duration, Instant, SystemTime};

/// How the reconciler takes its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How many frontends are told in one step, so that many don't hold up those who wait for the
    /// caller's loop; at least 1.
    pub at_once: usize,
    /// How many are pruned in one step; at least 1.
    pub prune_at_once: usize,
    /// After a first refusal a frontend is told again after so long; twice as long after each more.
    pub retry_min: Duration,
    /// At most so long.
    pub retry_max: Duration,
    /// How often everything is told again.
    pub pass: Duration,
    /// How often the plane is pruned.
    pub prune: Duration,
    /// After so long the plane is told what is known, even if sources haven't said all that they
    /// know: what they wait for may be behind the plane itself.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            at_once: 512,
            prune_at_once: 512,
            retry_min: Duration::from_millis(50),
            retry_max: Duration::from_secs(60),
            pass: Duration::from_secs(5 * 60),
            prune: Duration::from_secs(30 * 60),
            patience: Duration::from_secs(60),
        }
    }
}

/// The time, by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// That never jumps: what is due.
    pub steady: Instant,
    /// That people read: since when.
    pub wall: SystemTime,
}
