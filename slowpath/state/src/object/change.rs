//! Changes of objects, and why one is refused.

use std::fmt;
use std::sync::Arc;

use super::{Condition, Key, Object, Status};

/// Everything that can be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// This shall be wanted. Revision, status, deletion and finalizers of the object given don't
    /// count: those that are there stay.
    Put {
        /// What is wanted.
        object: Box<Object>,
        /// The revision that the writer has seen, 0 for none; it is refused when there is another.
        expected: Option<u64>,
    },
    /// This shall not be: it is gone at once, or when its last finalizer is.
    Delete {
        /// Which.
        key: Key,
        /// As for `Put`.
        expected: Option<u64>,
    },
    /// Somebody has to clean up before the object may go, or has done so.
    Finalizer {
        /// Which.
        key: Key,
        /// Who.
        name: Box<str>,
        /// Has to; false for done.
        held: bool,
    },
    /// How far the object has come: conditions of these types are replaced, others stay. `since` is
    /// taken only where the status is news.
    Status {
        /// Which.
        key: Key,
        /// The generation that this is about.
        observed: u64,
        /// What is to be told.
        conditions: Vec<Condition>,
    },
    /// All of its status at once, and what whoever looks after it has to remember of it.
    Progress {
        /// Which.
        key: Key,
        /// Its status from now on; conditions that it doesn't have are gone.
        status: Status,
        /// What has to be remembered.
        progress: Arc<serde_json::Value>,
    },
}

impl Change {
    /// A [`Change::Put`] whatever is there.
    pub fn put(object: Object) -> Change {
        Change::Put { object: Box::new(object), expected: None }
    }

    /// A [`Change::Delete`] whatever is there.
    pub fn delete(key: Key) -> Change {
        Change::Delete { key, expected: None }
    }
}

/// What sort of reason there is, for those who answer machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Why {
    /// What is asked can never be as it is.
    #[default]
    Wrong,
    /// There is no such object.
    Absent,
    /// Another revision is there than the writer has seen.
    Changed,
    /// The object is being deleted.
    Leaving,
    /// The store doesn't take changes: its disk is full, say. It may do so later.
    Disk,
    /// The store is damaged and takes no changes until an operator has repaired it.
    Damaged,
    /// It removes too much, and nobody has confirmed it.
    Held,
    /// The store's disk has not answered in time: the change may still be made.
    Unanswered,
}

/// Why a change isn't made.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
pub struct Refusal {
    /// The object, where it is known.
    pub object: Option<Key>,
    /// Path of the field, `spec.frontends[0].port`; empty for the whole object.
    pub field: String,
    /// What is wrong.
    pub wrong: String,
    /// What is allowed, or what to do.
    pub allowed: String,
    /// What sort of reason that is.
    pub why: Why,
}

impl Refusal {
    /// Of a field.
    pub fn new(
        field: impl Into<String>,
        wrong: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Refusal {
        let (field, wrong, allowed) = (field.into(), wrong.into(), allowed.into());
        Refusal { object: None, field, wrong, allowed, why: Why::Wrong }
    }

    /// The same for another sort of reason.
    #[must_use]
    pub fn because(self, why: Why) -> Refusal {
        Refusal { why, ..self }
    }

    /// The same, of this object.
    pub fn of(self, key: &Key) -> Refusal {
        Refusal { object: Some(key.clone()), ..self }
    }
}

/// `Service shop/web of api: spec.frontends[0].port: out of range; allowed: 0 to 65535`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.object {
            write!(f, "{key}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.wrong)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}
