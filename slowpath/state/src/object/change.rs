//! Changes of objects.

use std::sync::Arc;

use super::kind::Key;
use super::{Condition, Object, Status};

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
