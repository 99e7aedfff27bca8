//! State of each kind of call, and retry delays.

use std::time::{Duration, Instant};

use crate::types::Failure;

/// Maximum time for which unanswered queries make the probe fail. It must be shorter than the time
/// in which a gateway marks a member unhealthy (2 probes, at Azure's minimum 5 s apart).
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(4);
/// Delay before repeating a call that failed despite all its retries.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Delay after a conflict with another writer.
const CONFLICT_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Delay after a permanent error.
const PERMANENT_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Delay after a temporary error while leaving, when time is short.
const DRAIN_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Scheduling state of one kind of call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallState {
    pub(super) in_progress: bool,
    /// Start of the last call.
    pub(super) started: Option<Instant>,
    /// Earliest start of the next call; `None` for at once.
    pub(super) not_before: Option<Instant>,
    /// A call of this kind has ended, with or without an error.
    pub(super) answered: bool,
    /// The last call failed, so the delay until the next one is not shortened.
    pub(super) failed: bool,
    /// The call is to be repeated after a shorter interval than usual.
    pub(super) expedited: bool,
    /// Number of writes that this process had started when the call began.
    pub(super) epoch: u64,
}

impl CallState {
    /// Returns true if [`QUERY_TIMEOUT`] has passed since the start of the last call, and since the
    /// time `since` if that is given.
    pub(super) fn timed_out(&self, now: Instant, since: Option<Instant>) -> bool {
        self.started.is_some()
            && self.started.max(since).is_some_and(|started| now >= started + QUERY_TIMEOUT)
    }
}

/// Returns the delay before a failed call is repeated.
pub(super) fn retry_delay(kind: Failure, leaving: bool) -> Duration {
    match (kind, leaving) {
        (kind, _) if !kind.is_temporary() => PERMANENT_RETRY_DELAY,
        (_, true) => DRAIN_RETRY_DELAY,
        (Failure::Conflict, false) => CONFLICT_RETRY_DELAY,
        (_, false) => RETRY_DELAY,
    }
}
