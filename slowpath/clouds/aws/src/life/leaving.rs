//! Shutdown: stop new flows, then wait for existing flows to end.
//!
//! The order depends on the group's `target_failover.on_unhealthy` attribute:
//!
//! - If the group moves flows away from an unhealthy target (`rebalance`), failing the probe would
//!   break established flows. The target is deregistered first, and the probe fails once AWS
//!   reports `draining`.
//! - Otherwise the probe fails first, and the target is deregistered at once after that.
//!
//! Packets are forwarded until no flow is active, the group's deregistration delay has passed, or
//! the deadline is reached: the drain limit or the spot instance's end. Failed or missing AWS
//! responses never extend the deadline.

use std::time::{Duration, Instant};

use super::departure::{CONFIRM, Leaving};
use super::words::{Call, Effect, Exit, Notices, Why};
use super::{Entry, LOOK_WAITING, Life, findings};
use crate::told::{CallError, Failure, TargetState};

/// Interval of health queries until AWS reports `draining`.
const POLL: Duration = Duration::from_secs(2);
/// Time before the deadline that is reserved for completing the hook.
const COMPLETES: Duration = Duration::from_secs(5);
/// How long before EC2 reclaims the spot instance the process ends.
const SPOT_MARGIN: Duration = Duration::from_secs(5);

impl Life {
    pub(super) fn terminate(&mut self, now: Instant) {
        match &mut self.leaving {
            Some(leaving) if leaving.signalled => self.exit(Exit::Forced),
            Some(leaving) => leaving.signalled = true,
            None => self.begin(now, Why::Signal).signalled = true,
        }
    }

    pub(super) fn noticed(&mut self, now: Instant, notices: Notices) {
        if notices.terminating {
            self.begin(now, Why::Scaling).hook = true;
        }
        if let Some(spot) = notices.spot {
            let leaving = self.begin(now, Why::Spot);
            let before = spot.checked_sub(SPOT_MARGIN).unwrap_or(spot);
            leaving.deadline = leaving.deadline.min(before);
        }
    }

    /// Starts leaving, unless that has begun before.
    fn begin(&mut self, now: Instant, why: Why) -> &mut Leaving {
        if self.leaving.is_none() {
            for call in [Call::AskHealth, Call::Deregister, Call::AskAttributes] {
                self.later(call, now);
            }
        }
        let deadline = now + self.settings.drain_cap;
        let rebalances = self.attributes.as_ref().is_some_and(|a| a.rebalance_on_unhealthy);
        self.leaving.get_or_insert(Leaving {
            why,
            deadline,
            since: now,
            signalled: false,
            hook: false,
            deregister_first: rebalances,
            deregistered: None,
            once_more: false,
            refused: false,
            confirmed: None,
            said_unconfirmed: false,
            completing: None,
        })
    }

    pub(super) fn deregistered(&mut self, now: Instant, result: Result<(), CallError>) {
        let Some(leaving) = &mut self.leaving else { return };
        let once_more = std::mem::take(&mut leaving.once_more);
        match result {
            _ if once_more => self.later(Call::Deregister, now),
            Ok(()) => {
                leaving.deregistered = Some(now);
                self.later(Call::AskHealth, now);
            }
            // The group no longer exists, or the target was never registered.
            Err(error) if error.kind == Failure::Absent => {
                leaving.deregistered = Some(now);
                leaving.confirmed = leaving.confirmed.or(Some(now));
            }
            Err(error) => leaving.refused |= !error.kind.passes(),
        }
    }

    /// A registration has ended: the result of an earlier deregistration is no longer valid.
    pub(super) fn registered_while_leaving(&mut self, now: Instant) {
        let under_way = self.is_under_way(Call::Deregister);
        let Some(leaving) = &mut self.leaving else { return };
        (leaving.deregistered, leaving.confirmed) = (None, None);
        leaving.once_more = under_way;
        self.later(Call::Deregister, now);
    }

    pub(super) fn looked_while_leaving(&mut self, now: Instant, begun: Option<Instant>) {
        let Some(leaving) = &mut self.leaving else { return };
        let told = leaving.deregistered.is_some_and(|at| begun >= Some(at));
        let no_new_flows = match (&self.entry, self.entry.state()) {
            (Entry::Absent, _) | (_, Some(TargetState::Draining | TargetState::Unused)) => true,
            (_, Some(TargetState::UnhealthyDraining)) => !leaving.refused,
            _ => false,
        };
        if (told || leaving.refused) && no_new_flows {
            leaving.confirmed = leaving.confirmed.or(Some(now));
        }
        let waits = leaving.confirmed.is_none() && now < leaving.since + CONFIRM;
        self.later(Call::AskHealth, now + if waits { POLL } else { LOOK_WAITING });
    }

    pub(super) fn leave(&mut self, now: Instant) {
        let Some(leaving) = &self.leaving else { return };
        if let Some((exit, until)) = leaving.completing {
            if now >= until {
                self.exit(exit);
            }
            return;
        }
        let (hook, deregistered) = (leaving.hook, leaving.deregistered.is_some());
        if !deregistered {
            self.ask(now, Call::Deregister);
        }
        self.ask(now, Call::AskHealth);
        if self.attributes.is_none() {
            self.ask(now, Call::AskAttributes);
        }
        if self.settings.hook {
            self.ask(now, Call::AskNotices);
        }
        if hook {
            self.ask(now, Call::Heartbeat);
        }
        match self.ends(now) {
            Some(exit) if hook => {
                self.ask(now, Call::CompleteHook);
                if let Some(leaving) = &mut self.leaving {
                    leaving.completing = Some((exit, leaving.deadline.min(now + COMPLETES)));
                }
            }
            Some(exit) => self.exit(exit),
            None => {}
        }
    }

    /// Returns how the lifecycle ends, if it ends now.
    fn ends(&mut self, now: Instant) -> Option<Exit> {
        let leaving = self.leaving.as_mut()?;
        let (confirmed, deadline) = (leaving.confirmed, leaving.deadline);
        let unsure = leaving.since + CONFIRM;
        if confirmed.is_none() && now >= unsure && !leaving.said_unconfirmed {
            leaving.said_unconfirmed = true;
            self.find(findings::unconfirmed(CONFIRM));
        }
        let hook = self.leaving.as_ref().is_some_and(|leaving| leaving.hook);
        if hook && now + COMPLETES >= deadline || now >= deadline {
            return Some(Exit::CapOver);
        }
        // A registration in progress would leave the target registered after the exit.
        if self.is_under_way(Call::Register) {
            return None;
        }
        let delay = self.attributes.as_ref().map(|a| a.deregistration_delay);
        if confirmed.zip(delay).is_some_and(|(at, delay)| now >= at + delay) {
            return Some(Exit::DelayOver);
        }
        // Flows sent here just before the confirmation must be counted too.
        let quiet_since = self.last_active.max(confirmed.unwrap_or(unsure));
        let quiet = self.flows == 0 && now >= quiet_since + self.settings.quiet;
        quiet.then_some(Exit::Drained)
    }

    pub(super) fn hook_completed(&mut self) {
        if let Some((exit, _)) = self.leaving.as_ref().and_then(|leaving| leaving.completing) {
            self.exit(exit);
        }
    }

    fn exit(&mut self, exit: Exit) {
        self.over = true;
        self.effects.push(Effect::Exit(exit));
    }
}
