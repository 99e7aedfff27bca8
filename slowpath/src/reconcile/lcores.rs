//! Communication of the control loop with the lcores: generations to switch to, events, traces and
//! liveness checks.

use std::time::{Duration, Instant};

use tables::command::{Command, Event};
use tables::region::Region;

use crate::control::trace::Tracer;
use crate::live::Shared;
use crate::plane::lcores;
use crate::plane::rings::Rings;

/// Interval at which a lagging lcore gets the switch command again: its ring may have been full, or
/// it is new.
const SWITCH_RESEND_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of liveness checks.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// The rings of the lcores, and the state of generations, traces and liveness.
pub(super) struct Lcores<'r> {
    region: &'r Region,
    rings: Rings<'r>,
    monitor: lcores::Lcores,
    tracer: Tracer,
    last_sent: Instant,
    /// When the last switch was sent, if it is not known to be acknowledged.
    switching: Option<Instant>,
    last_status: Option<Instant>,
}

impl<'r> Lcores<'r> {
    /// Attaches to the rings of a region for this many lcores with this many ports each.
    pub(super) fn attach(
        region: &'r Region,
        lcores: usize,
        ports: usize,
        now: Instant,
    ) -> Lcores<'r> {
        Lcores {
            region,
            rings: Rings::attach(region),
            monitor: lcores::Lcores::new(lcores, ports),
            tracer: Tracer::default(),
            last_sent: now,
            switching: None,
            last_status: None,
        }
    }

    /// Takes the lcores' events, starts and ends traces, and returns the events about next hops.
    pub(super) fn take_events(&mut self, shared: &Shared, now: Instant) -> Vec<Event> {
        let mut next_hops = Vec::new();
        for (lcore, event) in self.rings.take() {
            match event {
                Event::Switched { generation } => {
                    tracing::debug!(lcore, generation, "switched");
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
            self.send_all(&command);
        }
        if let Some(command) = self.tracer.end_if_over(now) {
            self.send_all(&command);
            shared.free_trace();
        }
        next_hops
    }

    fn send_all(&mut self, command: &Command) {
        for (lcore, _) in self.region.live_lcores() {
            self.rings.send(lcore, command);
        }
    }

    /// Sends the switch command to lcores that serve another generation than the committed one.
    fn send_switch(&mut self) {
        let generation = self.region.generation();
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
    }

    /// Has the lcores switch to a generation that was just committed.
    pub(super) fn switch(&mut self, now: Instant) {
        self.send_switch();
        self.switching = Some(now);
    }

    /// Records that all lcores acknowledged the committed generation. Returns true the first time
    /// after a switch was sent.
    pub(super) fn mark_switched(&mut self) -> bool {
        self.switching.take().is_some()
    }

    /// Returns when the last switch was sent, if it is not known to be acknowledged.
    pub(super) fn switching(&self) -> Option<Instant> {
        self.switching
    }

    /// Sends the switch command again to lagging lcores.
    pub(super) fn resend_switch(&mut self, now: Instant) {
        if now >= self.last_sent + SWITCH_RESEND_INTERVAL {
            self.last_sent = now;
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
