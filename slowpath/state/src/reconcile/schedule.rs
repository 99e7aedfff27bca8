//! When the plane is pruned next, and how long a retry waits.

use std::time::{Duration, Instant};

use crate::plane::Refusal;

/// When the plane is pruned next.
#[derive(Debug, Default)]
pub(super) struct Prune {
    /// None until sources have said all that they know.
    pub due: Option<Instant>,
    pub failures: u32,
    pub error: Option<Refusal>,
}

/// The wait after so many failures before this one.
pub(super) fn delay(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(2_u32.saturating_pow(failures)).min(max)
}
