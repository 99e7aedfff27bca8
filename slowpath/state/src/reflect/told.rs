//! Verdicts on services' objects, and the status condition that publishes them.

use std::time::SystemTime;

use crate::name::Source;
use crate::object::{Change, Condition, Key, Object, Truth};
use crate::writer::Error;

/// Type of the condition that publishes a [`Verdict`].
pub const ACCEPTED: &str = "Accepted";

/// Result of writing a service's object into the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The service is in the tables.
    Accepted,
    /// A preferred source defines the same service.
    Shadowed(Source),
    /// The service cannot be in the tables; it is tried again when what prevents it changes.
    Refused(Error),
}

/// Verdict that differs from the one published before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Key of the object.
    pub key: Key,
    /// Generation of the object that the verdict is about.
    pub generation: u64,
    /// The verdict.
    pub verdict: Verdict,
}

impl Told {
    /// Returns the change that publishes the verdict on the object.
    pub fn into_change(self, now: SystemTime) -> Change {
        let (status, reason, message) = match &self.verdict {
            Verdict::Accepted => (Truth::True, "Accepted", String::new()),
            Verdict::Shadowed(by) => (
                Truth::False,
                "Shadowed",
                format!("source `{by}` is preferred and says what it is"),
            ),
            Verdict::Refused(error) => (Truth::False, "Refused", error.to_string()),
        };
        let condition = Condition {
            aspect: ACCEPTED.into(),
            status,
            reason: reason.into(),
            message: message.into(),
            since: now,
        };
        Change::Status { key: self.key, observed: self.generation, conditions: vec![condition] }
    }
}

/// Returns whether the object's status shows it as not accepted.
pub(super) fn was_refused(object: &Object) -> bool {
    let told = object.life().status.iter().flat_map(|status| &status.conditions);
    told.into_iter().any(|told| &*told.aspect == ACCEPTED && told.status == Truth::False)
}
