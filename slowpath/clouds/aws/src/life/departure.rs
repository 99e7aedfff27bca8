//! What is known while leaving.

use std::time::{Duration, Instant};

use super::words::{Exit, Why};

/// How long it is waited until the cloud says `draining`.
pub(super) const CONFIRM: Duration = Duration::from_secs(30);

/// After a call that came to nothing.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

/// What is known while leaving.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) why: Why,
    /// When we are gone at the latest.
    pub(super) deadline: Instant,
    pub(super) since: Instant,
    /// A SIGTERM came; the next ends at once.
    pub(super) signalled: bool,
    /// A hook of Auto Scaling's waits for us.
    pub(super) hook: bool,
    /// 503 only once the cloud says `draining`.
    pub(super) deregister_first: bool,
    /// When the cloud took our deregistration, and no registration ended since.
    pub(super) deregistered: Option<Instant>,
    /// A registration ended while a deregistration was under way: who knows which was first.
    pub(super) once_more: bool,
    /// Deregistering was refused: the probe is all that keeps new flows away.
    pub(super) refused: bool,
    /// When the cloud was first seen to send no new flows.
    pub(super) confirmed: Option<Instant>,
    pub(super) said_unconfirmed: bool,
    /// The hook is being told; how we end then, and until when that is waited for.
    pub(super) completing: Option<(Exit, Instant)>,
}

impl Leaving {
    /// Why the probe is refused, if it is by now.
    pub(super) fn refuses(&self, now: Instant) -> Option<Why> {
        let known = self.confirmed.is_some() || self.refused || now >= self.since + CONFIRM;
        (!self.deregister_first || known).then_some(self.why)
    }
}
