//! State of each kind of call, and retry delays.

use std::time::{Duration, Instant};

use crate::told::Failure;

/// Maximum time for which unanswered queries make the probe fail. It must be shorter than the time
/// in which a gateway marks a member unhealthy (2 probes, 5 s apart).
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// Delay before repeating a call: after it failed despite all its retries, after a conflict with
/// another writer, and after a permanent failure.
const AGAIN: Duration = Duration::from_secs(30);
const CONFLICT_AGAIN: Duration = Duration::from_secs(5);
const REFUSED_AGAIN: Duration = Duration::from_secs(300);
/// Delay while leaving: time is short, and a temporary error may be over.
const LEAVING_AGAIN: Duration = Duration::from_secs(5);

/// Scheduling state of one kind of call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    pub(super) under_way: bool,
    pub(super) begun: Option<Instant>,
    pub(super) not_before: Option<Instant>,
    pub(super) answered: bool,
    /// The last call failed; its delay is not shortened.
    pub(super) failed: bool,
    /// The call should be repeated sooner than usual.
    pub(super) hurried: bool,
    /// Number of writes started when the call began.
    pub(super) epoch: u64,
}

impl Asking {
    /// Returns true if the call began at least [`PATIENCE`] ago, counted from `since` at the
    /// earliest.
    pub(super) fn waited(&self, now: Instant, since: Option<Instant>) -> bool {
        self.begun.is_some() && self.begun.max(since).is_some_and(|begun| now >= begun + PATIENCE)
    }
}

/// Returns the delay before a failed call is repeated.
pub(super) fn again(kind: Failure, leaving: bool) -> Duration {
    match (kind, leaving) {
        (kind, _) if !kind.passes() => REFUSED_AGAIN,
        (_, true) => LEAVING_AGAIN,
        (Failure::Conflict, false) => CONFLICT_AGAIN,
        (_, false) => AGAIN,
    }
}
