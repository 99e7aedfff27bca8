//! Shutdown: stop new flows, wait for existing flows to end, then leave the pools.
//!
//! The probe fails at once. If a rule has a probe and Weir may write the membership, `adminState`
//! is set to `Down` at the same time: that takes effect before a probe fails twice, and also
//! overrides an `Up`. Packets are forwarded until no flow is active or the deadline is reached: the
//! drain limit or the machine's end. Then the membership is removed, as configured by
//! `azure.remove`, within 20 s. If no probe keeps new flows away, some may arrive until the
//! membership is removed; the drain then continues for them within the same deadline. Failed or
//! missing Azure responses never extend it.
//!
//! A membership that stays is left `Down`: lifting it before the probe has failed often enough
//! would send flows to a process that ends. The next process lifts it, according to the kept state.
//!
//! Established TCP flows stay on this machine when the probe fails or `adminState` is `Down`. UDP
//! flows move to other machines at once in either case, which Weir cannot prevent.
//!
//! A scheduled event that ends or restarts the machine starts the same drain, limited by its start
//! time. It is acknowledged last, because it starts with the acknowledgment. The process then
//! stays, with a failing probe, until the machine goes down: if it exited, systemd would restart
//! it. An event that disappears was canceled or is over, and the machine returns to service.

use std::time::{Duration, Instant};

use config::checked::Remove;

use super::departure::{Leaving, REMOVES, Stage};
use super::words::{Call, Effect, Exit, Why};
use super::{Life, findings};
use crate::told::{CallError, EventKind, Failure, ScheduledEvent};

/// How long before an event's start the drain ends, if there is no membership to remove.
const MARGIN: Duration = Duration::from_secs(5);
/// Time after which a probe that gets 503 has failed often enough: two probes, 15 s apart.
const PROBE_FAILS: Duration = Duration::from_secs(30);

impl Life {
    pub(super) fn why(&self) -> Option<Why> {
        let leaving = self.leaving.as_ref()?;
        let event = self.events.ending.first().filter(|_| !leaving.signalled);
        Some(match event.map(|event| event.kind) {
            None => Why::Signal,
            Some(EventKind::Preempt) => Why::Preempt,
            Some(EventKind::Terminate) => Why::Terminate,
            Some(_) => Why::Maintenance,
        })
    }

    pub(super) fn terminate(&mut self, now: Instant) {
        match &mut self.leaving {
            Some(leaving) if leaving.signalled => self.exit(Exit::Forced),
            Some(leaving) => leaving.signalled = true,
            None => self.begin(now).signalled = true,
        }
    }

    /// Processes the list of scheduled events.
    pub(super) fn noticed(&mut self, now: Instant, events: Vec<ScheduledEvent>) {
        for other in self.events.hear(events) {
            self.find(findings::event(&other));
        }
        let ends: Vec<Option<Instant>> =
            self.events.ending.iter().map(|event| self.begins(event)).collect();
        if ends.is_empty() {
            // Canceled, or over while the machine is still running.
            if self.leaving.take_if(|leaving| !leaving.signalled).is_some() {
                self.later(Call::Look, now);
            }
            return;
        }
        let margin = if self.would_remove() { REMOVES } else { MARGIN };
        let leaving = self.begin(now);
        for end in ends.into_iter().flatten() {
            let before = end.checked_sub(margin).unwrap_or(now).max(now);
            leaving.deadline = leaving.deadline.min(before);
        }
    }

    /// Returns the earliest start of an event, if it is known along with the current time.
    fn begins(&self, event: &ScheduledEvent) -> Option<Instant> {
        let (at, seconds) = self.clock?;
        let ahead = event.not_before?.saturating_sub(seconds);
        at.checked_add(Duration::from_secs(ahead))
    }

    /// Starts leaving, unless that has begun before.
    fn begin(&mut self, now: Instant) -> &mut Leaving {
        if self.leaving.is_none() {
            for call in [Call::Look, Call::Down, Call::Leave] {
                self.later(call, now);
            }
        }
        self.leaving.get_or_insert(Leaving {
            deadline: now + self.settings.drain_cap,
            since: now,
            signalled: false,
            down: false,
            confirmed: None,
            removed: false,
            stage: Stage::Draining,
        })
    }

    pub(super) fn leave(&mut self, now: Instant) {
        if let Some(Stage::Draining) = self.stage() {
            self.hold_down(now);
            if let Some(exit) = self.drained(now) {
                self.enter(Stage::Removing(exit, now + REMOVES));
            }
        }
        if let Some(Stage::Removing(exit, until)) = self.stage()
            && self.removed(now, until)
        {
            let active = exit == Exit::Drained && !self.is_quiet(now);
            if active && self.leaving.as_ref().is_some_and(|leaving| now < leaving.deadline) {
                self.enter(Stage::Draining);
            } else if now >= until || !self.acknowledge(now) {
                self.enter(Stage::Waiting(if active { Exit::CapOver } else { exit }));
            }
        }
        if let Some(Stage::Waiting(exit)) = self.stage() {
            if self.leaving.as_ref().is_some_and(|leaving| leaving.signalled) {
                self.exit(exit);
            } else {
                self.acknowledge(now);
            }
        }
    }

    fn stage(&self) -> Option<Stage> {
        self.leaving.as_ref().map(|leaving| leaving.stage)
    }

    fn enter(&mut self, stage: Stage) {
        if let Some(leaving) = &mut self.leaving {
            leaving.stage = stage;
        }
    }

    /// Keeps new flows away by `adminState`, if that has an effect and the entries are Weir's to
    /// write.
    fn hold_down(&mut self, now: Instant) {
        if self.leaving.as_ref().is_none_or(|leaving| leaving.down) {
            return;
        }
        if !self.member.fresh {
            return self.look(now);
        }
        if self.member.is_out() {
            return self.confirm(now);
        }
        let probed = self.member.probed();
        self.stand(findings::NO_PROBE, || (!probed).then(findings::no_probe));
        let others = self.member.any(super::Admin::Down) && !self.kept.down;
        let may = probed && !others && !self.managed && !self.is_writing();
        if may && self.is_due(now, Call::Down) {
            self.keep(|kept| kept.down = true);
            self.ask(now, Call::Down);
        }
    }

    fn confirm(&mut self, now: Instant) {
        if let Some(leaving) = &mut self.leaving {
            leaving.confirmed.get_or_insert(now);
        }
    }

    pub(super) fn put_down(&mut self, now: Instant, result: Result<(), CallError>) {
        self.later(Call::Look, now);
        if result.is_err() {
            self.unsettled(now);
            return;
        }
        self.confirm(now);
        if let Some(leaving) = &mut self.leaving {
            leaving.down = true;
        }
    }

    /// Returns how the drain ends, if it ends now.
    fn drained(&self, now: Instant) -> Option<Exit> {
        let leaving = self.leaving.as_ref()?;
        if now >= leaving.deadline {
            return Some(Exit::CapOver);
        }
        // A write in progress would take effect after the exit.
        if self.is_writing() {
            return None;
        }
        // Flows sent here just before the confirmation must be counted too.
        let kept_away = leaving.confirmed.unwrap_or(leaving.since + PROBE_FAILS);
        (self.is_quiet(now) && now >= kept_away + self.settings.quiet).then_some(Exit::Drained)
    }

    /// Returns true if there is no flow, and there was no packet for the configured time.
    fn is_quiet(&self, now: Instant) -> bool {
        self.flows == 0 && now >= self.last_active + self.settings.quiet
    }

    /// Returns true if the membership is to be removed on leaving.
    fn would_remove(&self) -> bool {
        let none = self.member.fresh && !self.member.in_any();
        !self.managed
            && match self.settings.remove {
                Remove::Own => self.kept.joined,
                Remove::Always => !none,
                Remove::Never => false,
            }
    }

    /// Removes the membership; returns true when that is done or the time is over.
    fn removed(&mut self, now: Instant, until: Instant) -> bool {
        let removed = self.leaving.as_ref().is_none_or(|leaving| leaving.removed);
        let removes = !removed && self.would_remove();
        if now >= until {
            if removes {
                self.find(findings::leave_failed());
            }
            return true;
        }
        if self.is_writing() {
            return false;
        }
        if removes {
            self.member.goes();
            self.ask(now, Call::Leave);
        }
        !removes
    }

    /// Acknowledges the next event; returns true while an acknowledgment is in progress.
    fn acknowledge(&mut self, now: Instant) -> bool {
        if self.events.acknowledging.is_none()
            && let Some(id) = self.events.to_acknowledge().map(str::to_owned)
            && !self.is_under_way(Call::Acknowledge)
        {
            self.events.acknowledging = Some(id);
            // A permanent failure for another event has no meaning for this one.
            self.later(Call::Acknowledge, now);
            self.ask(now, Call::Acknowledge);
        }
        self.events.acknowledging.is_some()
    }

    pub(super) fn left(&mut self, now: Instant, result: Result<(), CallError>) {
        self.later(Call::Look, now);
        let gone = match &result {
            Ok(()) => true,
            // The pool does not exist.
            Err(error) => error.kind == Failure::Absent,
        };
        let refused = result.is_err_and(|error| !error.kind.passes()) && !gone;
        if gone {
            self.out_of_pools(now);
        }
        if refused {
            self.find(findings::leave_failed());
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.removed = gone || refused;
        }
    }

    fn exit(&mut self, exit: Exit) {
        self.over = true;
        self.effects.push(Effect::Exit(exit));
    }
}
