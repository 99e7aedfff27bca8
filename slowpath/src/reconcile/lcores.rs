//! The lcores as the control loop deals with them: they are told of generations, heard, traced and
//! watched.

use std::time::{Duration, Instant};

use tables::command::{Command, Event};
use tables::region::Region;

use crate::control::trace::Tracer;
use crate::live::Shared;
use crate::plane::lcores;
use crate::plane::rings::Rings;

/// How often a lagging lcore is told again to switch (its ring may have been full, or it is new).
const TELL_AGAIN: Duration = Duration::from_millis(100);
/// How often lcores are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is between the loop and the lcores.
pub(super) struct Lcores<'r> {
    region: &'r Region,
    rings: Rings<'r>,
    watch: lcores::Lcores,
    tracer: Tracer,
    told: Instant,
    /// When the last generation was told that is not yet known to be acknowledged.
    switching: Option<Instant>,
    looked: Option<Instant>,
}

impl<'r> Lcores<'r> {
    /// So many lcores of a region, with so many ports each.
    pub(super) fn attach(
        region: &'r Region,
        lcores: usize,
        ports: usize,
        now: Instant,
    ) -> Lcores<'r> {
        Lcores {
            region,
            rings: Rings::attach(region),
            watch: lcores::Lcores::new(lcores, ports),
            tracer: Tracer::default(),
            told: now,
            switching: None,
            looked: None,
        }
    }

    /// Takes what they say; returns what concerns others.
    pub(super) fn hear(&mut self, shared: &Shared, now: Instant) -> Vec<Event> {
        let mut others = Vec::new();
        for (lcore, event) in self.rings.take() {
            match event {
                Event::Switched { generation } => {
                    tracing::debug!(lcore, generation, "switched");
                }
                Event::TraceStage { packet, stage, words } => {
                    let published = shared.published();
                    let known = published.services(self.region);
                    self.tracer.stage(lcore, packet, stage, words, known);
                }
                Event::NeighbourWanted { .. } | Event::PathMtu { .. } => others.push(event),
            }
        }
        if let Some(request) = shared.take_trace() {
            let command = self.tracer.begin(request, now);
            self.send_all(&command);
        }
        if let Some(command) = self.tracer.ended(now) {
            self.send_all(&command);
            shared.free_trace();
        }
        others
    }

    fn send_all(&mut self, command: &Command) {
        for (lcore, _) in self.region.live_lcores() {
            self.rings.send(lcore, command);
        }
    }

    /// Tells those that serve another generation than the committed one to switch.
    fn tell(&mut self) {
        let generation = self.region.generation();
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
    }

    /// A generation was committed.
    pub(super) fn switch(&mut self, now: Instant) {
        self.tell();
        self.switching = Some(now);
    }

    /// All have acknowledged what was committed; tells whether that is news.
    pub(super) fn switched(&mut self) -> bool {
        self.switching.take().is_some()
    }

    /// When they were told to switch, if they are not known to have.
    pub(super) fn switching(&self) -> Option<Instant> {
        self.switching
    }

    /// Tells those again that lag.
    pub(super) fn tell_again(&mut self, now: Instant) {
        if now >= self.told + TELL_AGAIN {
            self.told = now;
            self.tell();
        }
    }

    /// Whether it is time to look at them.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|at| now >= at + LOOK)
    }

    /// Looks at them.
    pub(super) fn look(&mut self, now: Instant) -> &mut lcores::Lcores {
        self.looked = Some(now);
        &mut self.watch
    }
}
