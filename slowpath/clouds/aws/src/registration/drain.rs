//! The state of a drain, from its start until the process ends.

use std::time::{Duration, Instant};

use super::event::{DrainReason, Exit};

/// Maximum time to wait for AWS to report `draining`.
pub(super) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before repeating a failed call.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(5);

/// State of the lifecycle while the appliance leaves the target group.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) reason: DrainReason,
    /// Latest end of the process.
    pub(super) deadline: Instant,
    /// Start of the drain.
    pub(super) since: Instant,
    /// A SIGTERM was received; another one ends the process at once.
    pub(super) signalled: bool,
    /// Auto Scaling terminates the instance, and a hook may hold it.
    pub(super) hook: bool,
    /// The probe does not fail at once, but as soon as AWS reports `draining`, the deregistration
    /// has failed permanently, or [`CONFIRM_TIMEOUT`] has passed since the start.
    pub(super) deregister_first: bool,
    /// When AWS accepted the deregistration; `None` again if a registration has ended since.
    pub(super) deregistered: Option<Instant>,
    /// A registration ended while a deregistration was in progress. Their order is unknown, so the
    /// deregistration is repeated.
    pub(super) repeat_deregistration: bool,
    /// The deregistration failed permanently; only the failing probe keeps new flows away.
    pub(super) failed: bool,
    /// When AWS first reported a state in which it sends no new flows, or that there is no target.
    pub(super) confirmed: Option<Instant>,
    pub(super) reported_unconfirmed: bool,
    /// The hook is being completed: how the lifecycle ends then, and the time limit for the call.
    pub(super) completing: Option<(Exit, Instant)>,
}

impl Drain {
    /// Returns the reason for which the probe fails at `now`; `None` if it still passes.
    pub(super) fn probe_failure(&self, now: Instant) -> Option<DrainReason> {
        let known = self.confirmed.is_some() || self.failed || now >= self.since + CONFIRM_TIMEOUT;
        (!self.deregister_first || known).then_some(self.reason)
    }
}
