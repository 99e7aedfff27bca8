//! Communication of the control loop with the lcores: switches of generations, events, traces and
//! liveness checks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tables::command::{Command, Event, TraceFilter};
use tables::region::Region;

use crate::control::trace::Tracer;
use crate::live::Shared;
use crate::plane::lcores;
use crate::plane::rings::Rings;

/// Interval at which a lagging lcore gets the switch command again: its ring may have been full, or
/// the lcore has joined since.
const SWITCH_RESEND_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of liveness checks of the lcores, and of updates of the status.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// The rings of the lcores, and the state of generation switches, traces and liveness checks.
pub(super) struct Lcores<'r> {
    region: &'r Region,
    rings: Rings<'r>,
    monitor: lcores::Lcores,
    tracer: Tracer,
    /// The last trace command of each lcore to which it has not been sent: its ring was full, or
    /// the next iteration sends it.
    unsent_traces: BTreeMap<usize, Command>,
    /// When the generations of the lcores were last compared with the committed one.
    last_resent: Instant,
    /// When the last switch command was sent; `None` once all lcores have acknowledged it.
    switching: Option<Instant>,
    last_status: Option<Instant>,
}

impl<'r> Lcores<'r> {
    /// Attaches to the rings of a region for this many lcores with this many ports each. Ends a
    /// trace of the previous slowpath, which has no lease: the lcores would go on until they have
    /// traced its number of packets.
    pub(super) fn attach(
        region: &'r Region,
        lcores: usize,
        ports: usize,
        now: Instant,
    ) -> Lcores<'r> {
        let no_trace = Command::Trace(TraceFilter::default());
        Lcores {
            region,
            rings: Rings::attach(region),
            monitor: lcores::Lcores::new(lcores, ports),
            tracer: Tracer::default(),
            unsent_traces: region.live_lcores().map(|(lcore, _)| (lcore, no_trace)).collect(),
            last_resent: now,
            switching: None,
            last_status: None,
        }
    }

    /// Takes the lcores' events, starts and ends traces, and returns the events about next hops.
    pub(super) fn take_events(&mut self, shared: &Shared, now: Instant) -> Vec<Event> {
        self.resend_traces();
        let mut next_hops = Vec::new();
        for (lcore, event) in self.rings.take() {
            match event {
                Event::Switched { generation } => {
                    tracing::debug!(event = "generation_switched", lcore, generation, "switched");
                }
                Event::TraceStage { packet, stage, words } => {
                    let published = shared.published();
                    let services = published.services(self.region);
                    self.tracer.record_stage(lcore, packet, stage, words, services);
                }
                Event::NextHopNeeded { .. } | Event::PathMtu { .. } => next_hops.push(event),
            }
        }
        if let Some(request) = shared.take_trace() {
            let command = self.tracer.begin(request, now);
            self.send_trace(command);
        }
        if let Some(command) = self.tracer.end_if_over(now) {
            self.send_trace(command);
            shared.free_trace();
        }
        next_hops
    }

    /// Sends a trace command to all lcores.
    fn send_trace(&mut self, command: Command) {
        self.unsent_traces = self.region.live_lcores().map(|(lcore, _)| (lcore, command)).collect();
        self.resend_traces();
    }

    /// Sends the trace commands that did not fit in a ring before. Those of an lcore that no longer
    /// polls are dropped.
    fn resend_traces(&mut self) {
        if self.unsent_traces.is_empty() {
            return;
        }
        let live: Vec<usize> = self.region.live_lcores().map(|(lcore, _)| lcore).collect();
        let rings = &mut self.rings;
        self.unsent_traces
            .retain(|lcore, command| live.contains(lcore) && !rings.send(*lcore, command));
    }

    /// Sends the switch command to lcores that serve another generation than the committed one.
    fn send_switch(&mut self) {
        let generation = self.region.generation();
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
    }

    /// Commands the lcores to switch to a generation that was just committed.
    pub(super) fn switch(&mut self, now: Instant) {
        self.send_switch();
        self.switching = Some(now);
    }

    /// Records that all lcores acknowledged the committed generation. The first time after a switch
    /// was sent, returns when that was.
    pub(super) fn mark_switched(&mut self) -> Option<Instant> {
        self.switching.take()
    }

    /// Returns when the last switch command was sent; `None` once all lcores have acknowledged it.
    pub(super) fn switching(&self) -> Option<Instant> {
        self.switching
    }

    /// Sends the switch command again to lagging lcores, if [`SWITCH_RESEND_INTERVAL`] has passed.
    pub(super) fn resend_switch(&mut self, now: Instant) {
        if now >= self.last_resent + SWITCH_RESEND_INTERVAL {
            self.last_resent = now;
            self.send_switch();
        }
    }

    /// Returns whether the liveness check is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last_status.is_none_or(|at| now >= at + STATUS_INTERVAL)
    }

    /// Records the time of a liveness check, and returns the monitor that performs it.
    pub(super) fn begin_check(&mut self, now: Instant) -> &mut lcores::Lcores {
        self.last_status = Some(now);
        &mut self.monitor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::layout::Sizes;
    use tables::region::Role;
    use tables::ring::{Consumer, SharedSlots};

    #[test]
    fn trace_commands_reach_an_lcore_whose_ring_was_full() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let _fastpath = region.claim(Role::Fastpath).unwrap();
        region.lcores()[0].join(&region, region.epoch(Role::Fastpath), 1);
        let mut taken = Consumer::attach(SharedSlots::commands(&region, 0).unwrap());
        let mut traces = || {
            let commands = std::iter::from_fn(|| taken.pop());
            let commands = commands.map(|message| Command::decode(&message).unwrap());
            commands.filter(|command| matches!(command, Command::Trace(_))).collect::<Vec<_>>()
        };
        let (shared, now) = (Shared::default(), Instant::now());
        let mut lcores = Lcores::attach(&region, 1, 2, now);
        let start = Command::Trace(TraceFilter { count: 1, ..TraceFilter::default() });
        let end = Command::Trace(TraceFilter::default());
        for commands in [vec![start], vec![start, end]] {
            while lcores.rings.send(0, &Command::Drain(false)) {}
            for command in &commands {
                lcores.send_trace(*command);
            }
            assert_eq!(traces(), [], "the ring was full");
            lcores.take_events(&shared, now);
            lcores.take_events(&shared, now);
            assert_eq!(traces(), commands[commands.len() - 1..], "the last command, once");
        }
    }

    #[test]
    fn a_trace_of_the_previous_slowpath_is_ended() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let _fastpath = region.claim(Role::Fastpath).unwrap();
        region.lcores()[0].join(&region, region.epoch(Role::Fastpath), 1);
        let (shared, now) = (Shared::default(), Instant::now());
        let start = Command::Trace(TraceFilter { count: 1, ..TraceFilter::default() });
        let mut killed = Lcores::attach(&region, 1, 2, now);
        killed.send_trace(start);
        drop(killed);
        let mut next = Lcores::attach(&region, 1, 2, now);
        next.take_events(&shared, now);
        next.take_events(&shared, now);
        let mut taken = Consumer::attach(SharedSlots::commands(&region, 0).unwrap());
        let commands = std::iter::from_fn(|| taken.pop());
        let commands: Vec<_> = commands.map(|message| Command::decode(&message).unwrap()).collect();
        assert_eq!(commands, [start, Command::Trace(TraceFilter::default())], "once, at the end");
    }
}
