//! What became of services' objects on their way into the tables, and how the objects are told.

use std::time::SystemTime;

use crate::name::Source;
use crate::object::{Change, Condition, Key, Object, Truth};
use crate::writer::Error;

/// The type of the condition that tells a [`Verdict`].
pub const ACCEPTED: &str = "Accepted";

/// What became of a service's object on its way into the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is there.
    Accepted,
    /// Another source, which is preferred, says what this service is.
    Shadowed(Source),
    /// It cannot be there; it is tried again when what is in its way changes.
    Refused(Error),
}

/// A verdict that is news.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The object.
    pub key: Key,
    /// The generation of which it is true.
    pub generation: u64,
    /// What became of it.
    pub verdict: Verdict,
}

impl Told {
    /// The change that notes it on the object.
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

/// Whether its object says that it isn't in the tables.
pub(super) fn was_refused(object: &Object) -> bool {
    let told = object.life().status.iter().flat_map(|status| &status.conditions);
    told.into_iter().any(|told| &*told.aspect == ACCEPTED && told.status == Truth::False)
}
