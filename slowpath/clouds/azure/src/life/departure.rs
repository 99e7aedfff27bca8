//! What is known while leaving, and of the scheduled events that end or restart the machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::words::Exit;
use crate::told::{EventKind, ScheduledEvent};

/// So long leaving the pools and acknowledging an event may take.
pub(super) const REMOVES: Duration = Duration::from_secs(20);

/// What is known while leaving.
#[derive(Debug)]
pub(super) struct Leaving {
    /// When the drain is over at the latest.
    pub(super) deadline: Instant,
    pub(super) since: Instant,
    /// A SIGTERM came; the next ends at once.
    pub(super) signalled: bool,
    /// Azure took our `Down`.
    pub(super) down: bool,
    /// When no new flows came any more.
    pub(super) confirmed: Option<Instant>,
    /// The membership was removed, or can't be.
    pub(super) removed: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Flows are waited for.
    Draining,
    /// The membership is removed and the event acknowledged, until then at most.
    Removing(Exit, Instant),
    /// The machine's end is waited for.
    Waiting(Exit),
}

/// What is known of scheduled events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Those that end or restart this machine.
    pub(super) ending: Vec<ScheduledEvent>,
    /// All that were heard of and are still there.
    pub(super) known: BTreeSet<String>,
    pub(super) acknowledged: BTreeSet<String>,
    pub(super) acknowledging: Option<String>,
}

impl Events {
    /// Takes in the list as it is now; those that are new, and nobody leaves for.
    pub(super) fn hear(&mut self, events: Vec<ScheduledEvent>) -> Vec<ScheduledEvent> {
        let listed: BTreeSet<String> = events.iter().map(|event| event.id.clone()).collect();
        self.acknowledged.retain(|id| listed.contains(id));
        let (mut others, mut ending) = (Vec::new(), Vec::new());
        for event in events {
            let known = self.known.contains(&event.id);
            let counts = match event.kind {
                EventKind::Preempt | EventKind::Terminate => true,
                // One that had begun before we heard of it is what brought us here.
                EventKind::Reboot | EventKind::Redeploy if known => {
                    self.ending.iter().any(|one| one.id == event.id)
                }
                EventKind::Reboot | EventKind::Redeploy => !event.started,
                EventKind::Freeze | EventKind::Other => {
                    others.extend((!known).then(|| event.clone()));
                    false
                }
            };
            ending.extend(counts.then_some(event));
        }
        (self.known, self.ending) = (listed, ending);
        others
    }

    pub(super) fn to_acknowledge(&self) -> Option<&str> {
        let waits =
            |event: &&ScheduledEvent| !event.started && !self.acknowledged.contains(&event.id);
        self.ending.iter().find(waits).map(|event| event.id.as_str())
    }

    pub(super) fn current(&self) -> Option<&str> {
        let first = || self.ending.first().map(|event| event.id.as_str());
        self.acknowledging.as_deref().or_else(|| self.to_acknowledge()).or_else(first)
    }

    /// It was taken, or that came to nothing: then the event begins by itself in time.
    pub(super) fn acknowledged(&mut self) {
        self.acknowledged.extend(self.acknowledging.take());
    }
}
