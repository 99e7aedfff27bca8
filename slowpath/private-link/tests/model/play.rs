//! Rounds over objects in simulated time, their statuses read from JSON each time.

use std::time::Duration;

use private_link::object::{Aspect, Object, Reason, Status};
use private_link::time::Time;
use private_link::{Arms, Event, Finalizer, Next, Round, Settings, Standing, Turn, reconcile};

use super::{Azure, once};

/// An object, and when its next round is due.
pub struct Player {
    pub object: Object,
    pub due: u64,
    pub gone: bool,
    pub events: Vec<Event>,
}

pub fn settings() -> Settings {
    Settings { fleet: "east".to_owned() }
}

impl Player {
    pub fn new(object: Object) -> Player {
        Player { object, due: 0, gone: false, events: Vec::new() }
    }

    /// One round, kept as a store keeps it; none where the process ended in it.
    pub fn round(&mut self, azure: &Azure, standing: &Standing) -> Option<Next> {
        let now = azure.world().now;
        let settings = settings();
        let arms = Arms { service: azure, endpoint: azure };
        let turn = Turn { now: Time(now), arms, pause: azure, settings: &settings, standing };
        let Round { status, finalizer, next, events } = once(reconcile(&turn, &self.object))?;
        let json = serde_json::to_string(&status).unwrap();
        self.object.status = serde_json::from_str(&json).unwrap();
        assert_eq!(self.object.status, status, "a status is read as it was written: {json}");
        self.events.extend(events);
        match finalizer {
            Some(Finalizer::Hold) => self.object.held = true,
            Some(Finalizer::Release) => self.object.held = false,
            None => {}
        }
        self.gone = self.object.deletion.is_some() && !self.object.held;
        self.due = match next {
            Next::Now => now,
            Next::After(pause) => Time(now).after(pause).0,
            Next::BackOff => now + 30,
            Next::Never => u64::MAX,
        };
        Some(next)
    }

    /// Rounds until so many seconds have passed, as they are due.
    pub fn play(&mut self, azure: &Azure, seconds: u64) {
        let end = azure.world().now + seconds;
        let mut rounds = 0;
        while !self.gone && self.due <= end {
            azure.world().pass(self.due);
            if self.round(azure, &Standing::Owner).is_none() {
                self.due = azure.world().now + 3;
            }
            rounds += 1;
            assert!(rounds < 2_000, "it goes round and round: {:#?}", self.object.status);
        }
        azure.world().pass(end);
    }

    pub fn status(&self) -> &Status {
        &self.object.status
    }

    pub fn is(&self, aspect: Aspect) -> bool {
        self.object.status.is(aspect)
    }

    /// Why an aspect is as it is.
    pub fn why(&self, aspect: Aspect) -> Option<(bool, Reason)> {
        let condition = self.object.status.condition(aspect)?;
        Some((self.is(aspect), condition.reason))
    }

    pub fn message(&self, aspect: Aspect) -> &str {
        self.object.status.condition(aspect).map_or("", |condition| &condition.message)
    }

    /// The pause that the last round asked for.
    pub fn pause(&self, azure: &Azure) -> Duration {
        Duration::from_secs(self.due - azure.world().now)
    }

    pub fn delete(&mut self, azure: &Azure) {
        self.object.deletion = Some(Time(azure.world().now));
        self.due = azure.world().now;
    }

    pub fn change(&mut self, azure: &Azure, change: impl FnOnce(&mut Object)) {
        change(&mut self.object);
        self.object.generation += 1;
        self.due = azure.world().now;
    }
}
