//! Shutdown: stop new flows, wait for existing flows to end, then leave the pools.
//!
//! The probe fails at once. If a rule has a probe and Weir may write the membership, `adminState`
//! is set to `Down` at the same time: that takes effect before a probe fails twice, and also
//! overrides an `Up`. Packets are forwarded until no flow is active or the deadline is reached: the
//! drain limit or the machine's end. Then the membership is removed, as configured by
//! `azure.remove`, within 20 s. If no probe keeps new flows away, some may arrive until the
//! membership is removed; the drain then continues for them within the same deadline. Failed or
//! missing responses of Azure never extend the deadline.
//!
//! An entry that is not removed stays `Down`: lifting `Down` before the probe has failed often
//! enough would send flows to a process that ends. The next process lifts it, by the persisted
//! state.
//!
//! Established TCP flows stay on this machine when the probe fails or `adminState` is `Down`. UDP
//! flows move to other machines at once in either case, which Weir cannot prevent.
//!
//! A scheduled event that ends or restarts the machine starts the same drain, which must end before
//! the event's start. The event is acknowledged last, because the acknowledgment lets it start. The
//! process then stays, with a failing probe, until the machine goes down: if the process exited,
//! systemd would restart it. An event that disappears was canceled or is over, and the machine
//! returns to service.

use std::time::{Duration, Instant};

use config::checked::Remove;

use super::drain::{Drain, REMOVAL_TIMEOUT, Stage};
use super::event::{Call, DrainReason, Effect, Exit};
use super::{Membership, findings};
use crate::types::{CallError, EventKind, Failure, ScheduledEvent};

/// How long before an event's start the drain ends if there is no membership to remove; otherwise
/// the margin is [`REMOVAL_TIMEOUT`].
const EVENT_MARGIN: Duration = Duration::from_secs(5);
/// Time after which enough probes have failed that no new flows arrive: two probes, at Azure's
/// default 15 s apart.
const PROBE_FAILURE_TIME: Duration = Duration::from_secs(30);

impl Membership {
    pub(super) fn leave_reason(&self) -> Option<DrainReason> {
        let drain = self.drain.as_ref()?;
        let event = self.events.ending.first().filter(|_| !drain.signalled);
        Some(match event.map(|event| event.kind) {
            None => DrainReason::Signal,
            Some(EventKind::Preempt) => DrainReason::Preempt,
            Some(EventKind::Terminate) => DrainReason::Terminate,
            Some(_) => DrainReason::Maintenance,
        })
    }

    pub(super) fn handle_terminate(&mut self, now: Instant) {
        match &mut self.drain {
            Some(drain) if drain.signalled => self.exit(Exit::Forced),
            Some(drain) => drain.signalled = true,
            None => self.start_drain(now).signalled = true,
        }
    }

    /// Processes the list of scheduled events.
    pub(super) fn handle_events(&mut self, now: Instant, events: Vec<ScheduledEvent>) {
        for other in self.events.update(events) {
            self.report(findings::event(&other));
        }
        let starts: Vec<Option<Instant>> =
            self.events.ending.iter().map(|event| self.event_start(event)).collect();
        if starts.is_empty() {
            // The events were canceled, or are over while the machine still runs.
            if self.drain.take_if(|drain| !drain.signalled).is_some() {
                self.schedule_call(Call::ReadPools, now);
            }
            return;
        }
        let margin = if self.removes_membership() { REMOVAL_TIMEOUT } else { EVENT_MARGIN };
        let drain = self.start_drain(now);
        for start in starts.into_iter().flatten() {
            let before = start.checked_sub(margin).unwrap_or(now).max(now);
            drain.deadline = drain.deadline.min(before);
        }
    }

    /// Returns the earliest start of an event; `None` if it may start at once, or if the current
    /// time is unknown.
    fn event_start(&self, event: &ScheduledEvent) -> Option<Instant> {
        let (at, seconds) = self.clock?;
        let ahead = event.not_before?.saturating_sub(seconds);
        at.checked_add(Duration::from_secs(ahead))
    }

    /// Starts the drain; if one is in progress, returns it unchanged.
    fn start_drain(&mut self, now: Instant) -> &mut Drain {
        if self.drain.is_none() {
            for call in [Call::ReadPools, Call::Down, Call::Leave] {
                self.schedule_call(call, now);
            }
        }
        self.drain.get_or_insert(Drain {
            deadline: now + self.settings.drain_cap,
            since: now,
            signalled: false,
            down: false,
            confirmed: None,
            removed: false,
            stage: Stage::Draining,
        })
    }

    /// Continues the drain: stops new flows, waits, removes the membership, acknowledges, exits.
    pub(super) fn drain_step(&mut self, now: Instant) {
        if let Some(Stage::Draining) = self.stage() {
            self.stop_new_flows(now);
            if let Some(exit) = self.drain_result(now) {
                self.set_stage(Stage::Removing(exit, now + REMOVAL_TIMEOUT));
            }
        }
        if let Some(Stage::Removing(exit, until)) = self.stage()
            && self.remove_membership(now, until)
        {
            let active = exit == Exit::Drained && !self.is_idle(now);
            if active && self.drain.as_ref().is_some_and(|drain| now < drain.deadline) {
                self.set_stage(Stage::Draining);
            } else if now >= until || !self.acknowledge(now) {
                self.set_stage(Stage::Waiting(if active { Exit::CapOver } else { exit }));
            }
        }
        if let Some(Stage::Waiting(exit)) = self.stage() {
            if self.drain.as_ref().is_some_and(|drain| drain.signalled) {
                self.exit(exit);
            } else {
                self.acknowledge(now);
            }
        }
    }

    fn stage(&self) -> Option<Stage> {
        self.drain.as_ref().map(|drain| drain.stage)
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(drain) = &mut self.drain {
            drain.stage = stage;
        }
    }

    /// Keeps new flows away by `adminState`, if that has an effect and Weir may write the entries.
    fn stop_new_flows(&mut self, now: Instant) {
        if self.drain.as_ref().is_none_or(|drain| drain.down) {
            return;
        }
        if !self.observed.fresh {
            return self.query_pools(now);
        }
        if self.observed.takes_no_new_flows() {
            return self.confirm_no_new_flows(now);
        }
        let probed = self.observed.probed();
        self.set_finding(findings::NO_PROBE, || (!probed).then(findings::no_probe));
        let foreign_down = self.observed.has_state(super::AdminState::Down) && !self.persisted.down;
        let may_write = probed && !foreign_down && !self.managed && !self.is_writing();
        if may_write && self.is_due(now, Call::Down) {
            self.persist(|state| state.down = true);
            self.start(now, Call::Down);
        }
    }

    fn confirm_no_new_flows(&mut self, now: Instant) {
        if let Some(drain) = &mut self.drain {
            drain.confirmed.get_or_insert(now);
        }
    }

    pub(super) fn handle_down(&mut self, now: Instant, result: Result<(), CallError>) {
        self.schedule_call(Call::ReadPools, now);
        if result.is_err() {
            self.mark_unsettled(now);
            return;
        }
        self.confirm_no_new_flows(now);
        if let Some(drain) = &mut self.drain {
            drain.down = true;
        }
    }

    /// Returns how the drain ends, if it ends now.
    fn drain_result(&self, now: Instant) -> Option<Exit> {
        let drain = self.drain.as_ref()?;
        if now >= drain.deadline {
            return Some(Exit::CapOver);
        }
        // A write in progress could take effect after the exit.
        if self.is_writing() {
            return None;
        }
        // The gateway may have sent new flows until the confirmation, so the idle time counts from
        // there.
        let stopped_at = drain.confirmed.unwrap_or(drain.since + PROBE_FAILURE_TIME);
        (self.is_idle(now) && now >= stopped_at + self.settings.idle).then_some(Exit::Drained)
    }

    /// Returns true if there is no flow, and there was no packet for the configured idle time.
    fn is_idle(&self, now: Instant) -> bool {
        self.flows == 0 && now >= self.last_active + self.settings.idle
    }

    /// Returns true if the membership is to be removed on leaving.
    fn removes_membership(&self) -> bool {
        let none = self.observed.fresh && !self.observed.in_any();
        !self.managed
            && match self.settings.remove {
                Remove::Own => self.persisted.joined,
                Remove::Always => !none,
                Remove::Never => false,
            }
    }

    /// Removes the membership; returns true when nothing is left to remove or the time is over.
    fn remove_membership(&mut self, now: Instant, until: Instant) -> bool {
        let removed = self.drain.as_ref().is_none_or(|drain| drain.removed);
        let removes = !removed && self.removes_membership();
        if now >= until {
            if removes {
                self.report(findings::leave_failed());
            }
            return true;
        }
        if self.is_writing() {
            return false;
        }
        if removes {
            self.observed.expect_removal();
            self.start(now, Call::Leave);
        }
        !removes
    }

    /// Acknowledges the next event; returns true while an acknowledgment is in progress.
    fn acknowledge(&mut self, now: Instant) -> bool {
        if self.events.acknowledging.is_none()
            && let Some(id) = self.events.next_to_acknowledge().map(str::to_owned)
            && !self.is_in_progress(Call::Acknowledge)
        {
            self.events.acknowledging = Some(id);
            // The delay after a failure for another event does not apply to this one.
            self.schedule_call(Call::Acknowledge, now);
            self.start(now, Call::Acknowledge);
        }
        self.events.acknowledging.is_some()
    }

    pub(super) fn handle_left(&mut self, now: Instant, result: Result<(), CallError>) {
        self.schedule_call(Call::ReadPools, now);
        let gone = match &result {
            Ok(()) => true,
            // Without the pool there is no membership.
            Err(error) => error.kind == Failure::Absent,
        };
        let failed = result.is_err_and(|error| !error.kind.is_temporary()) && !gone;
        if gone {
            self.mark_left(now);
        }
        if failed {
            self.report(findings::leave_failed());
        }
        if let Some(drain) = &mut self.drain {
            drain.removed = gone || failed;
        }
    }

    fn exit(&mut self, exit: Exit) {
        self.exited = true;
        self.effects.push(Effect::Exit(exit));
    }
}
