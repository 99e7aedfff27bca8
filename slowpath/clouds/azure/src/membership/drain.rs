//! The state of a drain, and the scheduled events that end or restart the machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::event::Exit;
use crate::types::{EventKind, ScheduledEvent};

/// Time limit for leaving the pools and acknowledging an event.
pub(super) const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// State of the lifecycle while the machine leaves its pools.
#[derive(Debug)]
pub(super) struct Drain {
    /// Time at which waiting for flows ends; removing the membership may take longer.
    pub(super) deadline: Instant,
    /// Start of the drain.
    pub(super) since: Instant,
    /// A SIGTERM was received; another one ends the process at once.
    pub(super) signalled: bool,
    /// Azure accepted `Down`.
    pub(super) down: bool,
    /// When Azure first confirmed that no new flows arrive.
    pub(super) confirmed: Option<Instant>,
    /// The membership was removed, or cannot be.
    pub(super) removed: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Waiting for flows to end.
    Draining,
    /// Removing the membership and acknowledging the event, with a time limit.
    Removing(Exit, Instant),
    /// Waiting for the machine to end, or for a SIGTERM.
    Waiting(Exit),
}

/// Scheduled events that affect this machine.
#[derive(Debug, Default)]
pub(super) struct ScheduledEvents {
    /// Events in the last list that end or restart this machine.
    pub(super) ending: Vec<ScheduledEvent>,
    /// Ids of all events in the last list.
    pub(super) known: BTreeSet<String>,
    /// Ids of the events whose acknowledgment has ended.
    pub(super) acknowledged: BTreeSet<String>,
    /// Id of the event whose acknowledgment is in progress.
    pub(super) acknowledging: Option<String>,
}

impl ScheduledEvents {
    /// Stores a new list of events. Returns those that were not listed before and whose type never
    /// makes the machine leave.
    pub(super) fn update(&mut self, events: Vec<ScheduledEvent>) -> Vec<ScheduledEvent> {
        let listed: BTreeSet<String> = events.iter().map(|event| event.id.clone()).collect();
        self.acknowledged.retain(|id| listed.contains(id));
        let (mut others, mut ending) = (Vec::new(), Vec::new());
        for event in events {
            let known = self.known.contains(&event.id);
            let ends_machine = match event.kind {
                EventKind::Preempt | EventKind::Terminate => true,
                // A restart that had started when it was first listed is over: it is the one from
                // which this process started.
                EventKind::Reboot | EventKind::Redeploy if known => {
                    self.ending.iter().any(|one| one.id == event.id)
                }
                EventKind::Reboot | EventKind::Redeploy => !event.started,
                EventKind::Freeze | EventKind::Other => {
                    others.extend((!known).then(|| event.clone()));
                    false
                }
            };
            ending.extend(ends_machine.then_some(event));
        }
        (self.known, self.ending) = (listed, ending);
        others
    }

    /// Returns the id of the first event that has not started and is not acknowledged.
    pub(super) fn next_to_acknowledge(&self) -> Option<&str> {
        let waits =
            |event: &&ScheduledEvent| !event.started && !self.acknowledged.contains(&event.id);
        self.ending.iter().find(waits).map(|event| event.id.as_str())
    }

    pub(super) fn current(&self) -> Option<&str> {
        let first = || self.ending.first().map(|event| event.id.as_str());
        self.acknowledging.as_deref().or_else(|| self.next_to_acknowledge()).or_else(first)
    }

    /// Marks the event as acknowledged, also if the acknowledgment failed. A failed one is not
    /// repeated: the event then starts by itself.
    pub(super) fn end_acknowledgment(&mut self) {
        self.acknowledged.extend(self.acknowledging.take());
    }
}
