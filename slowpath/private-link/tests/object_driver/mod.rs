//! An object whose rounds a test runs. The status is serialized after each round, as in a store.

use private_link::object::{Aspect, Object, Reason, Status};
use private_link::time::Time;
use private_link::{Event, Finalizer, Next, Round, RoundContext, Settings, reconcile};

/// An object, and when its next round is due (`due`, in seconds since 1970).
pub struct ObjectDriver {
    pub object: Object,
    pub due: u64,
    /// The object was deleted, and its finalizer removed.
    pub gone: bool,
    pub events: Vec<Event>,
}

pub fn settings() -> Settings {
    Settings { fleet: "east".to_owned() }
}

impl ObjectDriver {
    pub fn new(object: Object) -> ObjectDriver {
        ObjectDriver { object, due: 0, gone: false, events: Vec::new() }
    }

    /// Runs a round and stores its result as a store does.
    pub async fn run_round(&mut self, context: &RoundContext<'_>) -> Next {
        let Round { status, finalizer, next, events } = reconcile(context, &self.object).await;
        let json = serde_json::to_string(&status).unwrap();
        self.object.status = serde_json::from_str(&json).unwrap();
        assert_eq!(self.object.status, status, "the status changed in JSON: {json}");
        self.events.extend(events);
        if let Some(finalizer) = finalizer {
            self.object.has_finalizer = finalizer == Finalizer::Add;
        }
        self.gone = self.object.deletion.is_some() && !self.object.has_finalizer;
        self.due = match next {
            Next::Now => context.now.0,
            Next::After(pause) => context.now.after(pause).0,
            Next::BackOff => context.now.0 + 30,
            Next::Never => u64::MAX,
        };
        next
    }

    pub fn status(&self) -> &Status {
        &self.object.status
    }

    pub fn is(&self, aspect: Aspect) -> bool {
        self.object.status.is(aspect)
    }

    /// Returns whether the condition of an aspect holds, and its reason.
    pub fn why(&self, aspect: Aspect) -> Option<(bool, Reason)> {
        let condition = self.object.status.condition(aspect)?;
        Some((self.is(aspect), condition.reason))
    }

    pub fn message(&self, aspect: Aspect) -> &str {
        self.object.status.condition(aspect).map_or("", |condition| &condition.message)
    }

    /// Requests the deletion of the object, and makes a round due.
    pub fn delete_at(&mut self, now: u64) {
        self.object.deletion = Some(Time(now));
        self.due = now;
    }
}
