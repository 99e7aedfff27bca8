//! Verdicts of the reflector on services' objects (not health check verdicts), and the status
//! condition that publishes them.

use std::time::SystemTime;

use crate::name::Source;
use crate::object::{Change, Condition, ConditionStatus, Key, Object};
use crate::writer::Error;

/// Type of the condition that publishes a [`Verdict`].
pub const ACCEPTED: &str = "Accepted";

/// Result of writing a service's object into the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The service is in the tables, or all objects of its name are in deletion.
    Accepted,
    /// A preferred source defines the same service.
    Shadowed(Source),
    /// The service cannot be in the tables. It is written again when it changes, or when the
    /// conflict or reserved port that prevents it no longer exists.
    Rejected(Error),
}

/// Verdict that differs from the one published before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerdictChange {
    /// Key of the object.
    pub key: Key,
    /// Generation of the object that the verdict is about.
    pub generation: u64,
    /// The verdict.
    pub verdict: Verdict,
}

impl VerdictChange {
    /// Returns the change that publishes the verdict on the object.
    pub fn into_change(self, now: SystemTime) -> Change {
        let (status, reason, message) = match &self.verdict {
            Verdict::Accepted => (ConditionStatus::True, "Accepted", String::new()),
            Verdict::Shadowed(source) => (
                ConditionStatus::False,
                "Shadowed",
                format!("source `{source}` has precedence and defines this object"),
            ),
            Verdict::Rejected(error) => (ConditionStatus::False, "Rejected", error.to_string()),
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

/// Returns whether the object's status shows it as rejected or shadowed.
pub(super) fn was_rejected(object: &Object) -> bool {
    let condition = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    condition.into_iter().any(|condition| {
        &*condition.aspect == ACCEPTED && condition.status == ConditionStatus::False
    })
}
