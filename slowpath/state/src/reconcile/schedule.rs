//! Time of the next prune, and delay of a retry.

use std::time::{Duration, Instant};

use crate::plane::PlaneError;

/// State of pruning.
#[derive(Debug, Default)]
pub(super) struct Prune {
    /// Time of the next prune; `None` until sources have completed their initial lists.
    pub due: Option<Instant>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Error of the last attempt; `None` if it succeeded.
    pub error: Option<PlaneError>,
}

/// Returns the delay before the next attempt: `min`, doubled for each earlier failure, at most
/// `max`.
pub(super) fn delay(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(2_u32.saturating_pow(failures)).min(max)
}
