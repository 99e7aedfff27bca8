//! Shutdown: stop new flows, then wait for existing flows to end.
//!
//! The group's attribute `target_failover.on_unhealthy` determines the order in which the target is
//! deregistered and the probe fails:
//!
//! - If the group moves flows away from an unhealthy target (`rebalance`), failing the probe would
//!   break established flows. The target is deregistered first, and the probe fails once AWS
//!   reports `draining`.
//! - Otherwise, and if the attribute is unknown, the probe fails first, and the target is
//!   deregistered at once after that.
//!
//! Packets are forwarded until no flow is active, the group's deregistration delay has passed, or
//! the deadline is reached. The deadline is the drain limit (`aws.drain_cap_s`) or 5 s before the
//! end of the spot instance, whichever is earlier; failed or missing responses of AWS never extend
//! it.

use std::time::{Duration, Instant};

use super::drain::{CONFIRM_TIMEOUT, Drain};
use super::event::{Call, DrainReason, Effect, Exit, Notices};
use super::{Entry, PENDING_HEALTH_INTERVAL, Registration, findings};
use crate::types::{CallError, Failure, TargetState};

/// Interval of health queries until AWS reports `draining`.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(2);
/// Time before the deadline that is reserved for completing the hook.
const HOOK_RESERVE: Duration = Duration::from_secs(5);
/// How long before EC2 reclaims the spot instance the process ends.
const SPOT_MARGIN: Duration = Duration::from_secs(5);

impl Registration {
    pub(super) fn terminate(&mut self, now: Instant) {
        match &mut self.leaving {
            Some(leaving) if leaving.signalled => self.exit(Exit::Forced),
            Some(leaving) => leaving.signalled = true,
            None => self.begin_drain(now, DrainReason::Signal).signalled = true,
        }
    }

    pub(super) fn on_notices(&mut self, now: Instant, notices: Notices) {
        if notices.terminating {
            self.begin_drain(now, DrainReason::Scaling).hook = true;
        }
        if let Some(spot) = notices.spot {
            let leaving = self.begin_drain(now, DrainReason::Spot);
            let before = spot.checked_sub(SPOT_MARGIN).unwrap_or(spot);
            leaving.deadline = leaving.deadline.min(before);
        }
    }

    /// Starts the drain; if one is in progress, returns it unchanged.
    fn begin_drain(&mut self, now: Instant, reason: DrainReason) -> &mut Drain {
        if self.leaving.is_none() {
            for call in [Call::ReadHealth, Call::Deregister, Call::ReadAttributes] {
                self.schedule(call, now);
            }
        }
        let deadline = now + self.settings.drain_cap;
        let rebalances = self.attributes.as_ref().is_some_and(|a| a.rebalance_on_unhealthy);
        self.leaving.get_or_insert(Drain {
            reason,
            deadline,
            since: now,
            signalled: false,
            hook: false,
            deregister_first: rebalances,
            deregistered: None,
            repeat_deregistration: false,
            failed: false,
            confirmed: None,
            reported_unconfirmed: false,
            completing: None,
        })
    }

    pub(super) fn on_deregistered(&mut self, now: Instant, result: Result<(), CallError>) {
        let Some(leaving) = &mut self.leaving else { return };
        let repeat_deregistration = std::mem::take(&mut leaving.repeat_deregistration);
        match result {
            _ if repeat_deregistration => self.schedule(Call::Deregister, now),
            Ok(()) => {
                leaving.deregistered = Some(now);
                self.schedule(Call::ReadHealth, now);
            }
            // The group no longer exists, or the target was never registered.
            Err(error) if error.kind == Failure::Absent => {
                leaving.deregistered = Some(now);
                leaving.confirmed = leaving.confirmed.or(Some(now));
            }
            Err(error) => leaving.failed |= !error.kind.is_temporary(),
        }
    }

    /// Repeats the deregistration after a registration has ended, which may have undone it.
    pub(super) fn on_registered_while_draining(&mut self, now: Instant) {
        let in_progress = self.is_in_progress(Call::Deregister);
        let Some(leaving) = &mut self.leaving else { return };
        (leaving.deregistered, leaving.confirmed) = (None, None);
        leaving.repeat_deregistration = in_progress;
        self.schedule(Call::Deregister, now);
    }

    pub(super) fn on_health_while_draining(&mut self, now: Instant, started: Option<Instant>) {
        let Some(leaving) = &mut self.leaving else { return };
        let deregistered = leaving.deregistered.is_some_and(|at| started >= Some(at));
        let no_new_flows = match (&self.entry, self.entry.state()) {
            (Entry::Absent, _) | (_, Some(TargetState::Draining | TargetState::Unused)) => true,
            (_, Some(TargetState::UnhealthyDraining)) => !leaving.failed,
            _ => false,
        };
        if (deregistered || leaving.failed) && no_new_flows {
            leaving.confirmed = leaving.confirmed.or(Some(now));
        }
        let waits = leaving.confirmed.is_none() && now < leaving.since + CONFIRM_TIMEOUT;
        self.schedule(
            Call::ReadHealth,
            now + if waits { CONFIRM_INTERVAL } else { PENDING_HEALTH_INTERVAL },
        );
    }

    pub(super) fn drain(&mut self, now: Instant) {
        let Some(leaving) = &self.leaving else { return };
        if let Some((exit, until)) = leaving.completing {
            if now >= until {
                self.exit(exit);
            }
            return;
        }
        let (hook, deregistered) = (leaving.hook, leaving.deregistered.is_some());
        if !deregistered {
            self.start_call(now, Call::Deregister);
        }
        self.start_call(now, Call::ReadHealth);
        if self.attributes.is_none() {
            self.start_call(now, Call::ReadAttributes);
        }
        if self.settings.hook {
            self.start_call(now, Call::ReadNotices);
        }
        if hook {
            self.start_call(now, Call::Heartbeat);
        }
        match self.drain_exit(now) {
            Some(exit) if hook => {
                self.start_call(now, Call::CompleteHook);
                if let Some(leaving) = &mut self.leaving {
                    leaving.completing = Some((exit, leaving.deadline.min(now + HOOK_RESERVE)));
                }
            }
            Some(exit) => self.exit(exit),
            None => {}
        }
    }

    /// Returns how the lifecycle ends, if it ends now.
    fn drain_exit(&mut self, now: Instant) -> Option<Exit> {
        let leaving = self.leaving.as_mut()?;
        let (confirmed, deadline) = (leaving.confirmed, leaving.deadline);
        let confirm_deadline = leaving.since + CONFIRM_TIMEOUT;
        if confirmed.is_none() && now >= confirm_deadline && !leaving.reported_unconfirmed {
            leaving.reported_unconfirmed = true;
            self.report(findings::unconfirmed(CONFIRM_TIMEOUT));
        }
        let hook = self.leaving.as_ref().is_some_and(|leaving| leaving.hook);
        if hook && now + HOOK_RESERVE >= deadline || now >= deadline {
            return Some(Exit::CapOver);
        }
        // A registration in progress could leave the target registered after the exit.
        if self.is_in_progress(Call::Register) {
            return None;
        }
        let delay = self.attributes.as_ref().map(|a| a.deregistration_delay);
        if confirmed.zip(delay).is_some_and(|(at, delay)| now >= at + delay) {
            return Some(Exit::DelayOver);
        }
        // The gateway may have sent new flows until the confirmation, so the idle time counts from
        // there.
        let idle_since = self.last_active.max(confirmed.unwrap_or(confirm_deadline));
        let is_idle = self.flows == 0 && now >= idle_since + self.settings.idle;
        is_idle.then_some(Exit::Drained)
    }

    pub(super) fn on_hook_completed(&mut self) {
        if let Some((exit, _)) = self.leaving.as_ref().and_then(|leaving| leaving.completing) {
            self.exit(exit);
        }
    }

    fn exit(&mut self, exit: Exit) {
        self.ended = true;
        self.effects.push(Effect::Exit(exit));
    }
}
