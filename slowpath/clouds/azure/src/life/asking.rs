//! The state of each kind of call, and when it is retried after a failure.

use std::time::{Duration, Instant};

use crate::told::Failure;

/// How long questions that are not answered may hold the probe back: less than a gateway takes to
/// give us up (2 probes, 5 s apart).
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// After a call that came to nothing though it was tried for minutes, after one that met somebody
/// else's, and after one that was refused.
const AGAIN: Duration = Duration::from_secs(30);
const CONFLICT_AGAIN: Duration = Duration::from_secs(5);
const REFUSED_AGAIN: Duration = Duration::from_secs(300);
/// Leaving, time is short: what was a fault may be over.
const LEAVING_AGAIN: Duration = Duration::from_secs(5);

/// A kind of call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    pub(super) under_way: bool,
    pub(super) begun: Option<Instant>,
    pub(super) not_before: Option<Instant>,
    pub(super) answered: bool,
    /// The last one came to nothing: nobody hurries it.
    pub(super) failed: bool,
    /// It is wanted sooner than usual.
    pub(super) hurried: bool,
    /// How many writes had been asked for when it began.
    pub(super) epoch: u64,
}

impl Asking {
    /// It began long ago, counted from `since` at the earliest.
    pub(super) fn waited(&self, now: Instant, since: Option<Instant>) -> bool {
        self.begun.is_some() && self.begun.max(since).is_some_and(|begun| now >= begun + PATIENCE)
    }
}

/// When to ask again what came to nothing.
pub(super) fn again(kind: Failure, leaving: bool) -> Duration {
    match (kind, leaving) {
        (kind, _) if !kind.passes() => REFUSED_AGAIN,
        (_, true) => LEAVING_AGAIN,
        (Failure::Conflict, false) => CONFLICT_AGAIN,
        (_, false) => AGAIN,
    }
}
