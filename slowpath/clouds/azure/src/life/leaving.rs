//! The way out: no new flows, then wait for those that there are, then out of the pools.
//!
//! The probe says 503 at once. Where a rule has a probe and the membership is ours to write,
//! `adminState` becomes `Down` at the same time: that works sooner than a probe that has to fail
//! twice, and also where somebody set `Up`. Packets are forwarded until nothing is active, or our
//! time is over: the cap's, or the machine's. Then the membership is removed, as `azure.remove`
//! says, for at most 20 s. Where no probe keeps new flows away, some may come until the membership
//! is gone: they are waited for as those before them, within the same time. What Azure does or
//! doesn't answer never makes that longer.
//!
//! A membership that stays, stays `Down`: to lift it while the probe may not have failed often
//! enough yet would send flows to a process that ends. The next process lifts it, by what was kept.
//!
//! Established TCP flows stay with us when the probe fails or `adminState` is `Down`. UDP moves to
//! other machines at once, whatever we do, so that is not counted as a loss of ours.
//!
//! A scheduled event that ends or restarts the machine starts the same drain, bounded by its time.
//! It is acknowledged last, because it begins then. The process stays, and says 503, until the
//! machine goes: who ended here, systemd would start again. An event that vanishes was cancelled or
//! is over, and we come back.

use std::time::{Duration, Instant};

use config::checked::Remove;

use super::departure::{Leaving, REMOVES, Stage};
use super::words::{Call, Effect, Exit, Why};
use super::{Life, findings};
use crate::told::{CallError, EventKind, Failure, ScheduledEvent};

/// So long before an event's time we are done where there is nothing to remove.
const MARGIN: Duration = Duration::from_secs(5);
/// After so long a probe that is told 503 has failed often enough: two of them, 15 s apart.
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

    /// The list of scheduled events.
    pub(super) fn noticed(&mut self, now: Instant, events: Vec<ScheduledEvent>) {
        for other in self.events.hear(events) {
            self.find(findings::event(&other));
        }
        let ends: Vec<Option<Instant>> =
            self.events.ending.iter().map(|event| self.begins(event)).collect();
        if ends.is_empty() {
            // Cancelled, or over while we are still here.
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

    /// When an event may begin, where it is told and we know what time it is.
    fn begins(&self, event: &ScheduledEvent) -> Option<Instant> {
        let (at, seconds) = self.clock?;
        let ahead = event.not_before?.saturating_sub(seconds);
        at.checked_add(Duration::from_secs(ahead))
    }

    /// Leaves from now on, unless it does already.
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

    /// Keeps new flows away by `adminState`, where that is possible and ours to do.
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

    /// How the drain ends, if it does now.
    fn drained(&self, now: Instant) -> Option<Exit> {
        let leaving = self.leaving.as_ref()?;
        if now >= leaving.deadline {
            return Some(Exit::CapOver);
        }
        // What is under way would outlive us.
        if self.is_writing() {
            return None;
        }
        // Flows that were sent here just before it are to be seen as well.
        let kept_away = leaving.confirmed.unwrap_or(leaving.since + PROBE_FAILS);
        (self.is_quiet(now) && now >= kept_away + self.settings.quiet).then_some(Exit::Drained)
    }

    /// No flow is there, and no packet came for long enough.
    fn is_quiet(&self, now: Instant) -> bool {
        self.flows == 0 && now >= self.last_active + self.settings.quiet
    }

    /// The membership is one that we remove on leaving.
    fn would_remove(&self) -> bool {
        let none = self.member.fresh && !self.member.in_any();
        !self.managed
            && match self.settings.remove {
                Remove::Own => self.kept.joined,
                Remove::Always => !none,
                Remove::Never => false,
            }
    }

    /// Removes the membership; whether that is over.
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

    /// Acknowledges what there is to acknowledge; whether that goes on.
    fn acknowledge(&mut self, now: Instant) -> bool {
        if self.events.acknowledging.is_none()
            && let Some(id) = self.events.to_acknowledge().map(str::to_owned)
            && !self.is_under_way(Call::Acknowledge)
        {
            self.events.acknowledging = Some(id);
            // A refusal of another event says nothing about this one.
            self.later(Call::Acknowledge, now);
            self.ask(now, Call::Acknowledge);
        }
        self.events.acknowledging.is_some()
    }

    pub(super) fn left(&mut self, now: Instant, result: Result<(), CallError>) {
        self.later(Call::Look, now);
        let gone = match &result {
            Ok(()) => true,
            // There is no such pool.
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
