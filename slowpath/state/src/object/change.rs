//! Changes of objects.

use std::sync::Arc;

use super::kind::Key;
use super::{Condition, Object, Status};

/// Change of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates an object or replaces its labels, annotations and spec. Revision, status, deletion,
    /// finalizers and progress of the given object are ignored; an existing object keeps its own.
    Put {
        /// Object with the desired state.
        object: Box<Object>,
        /// Revision of the object that the writer has read, 0 if it found no object. The change is
        /// rejected if the object has another revision; `None` accepts any.
        expected: Option<u64>,
    },
    /// Deletes an object: immediately, or if it has finalizers when the last one is removed.
    Delete {
        /// Key of the object.
        key: Key,
        /// Revision of the object that the writer has read; `None` accepts any.
        expected: Option<u64>,
    },
    /// Adds or removes a finalizer, which delays the object's removal until clean-up is done.
    Finalizer {
        /// Key of the object.
        key: Key,
        /// Name of the finalizer.
        name: Box<str>,
        /// Whether the object has the finalizer after the change: true adds it, false removes it.
        present: bool,
    },
    /// Updates the status: conditions of the given types are replaced, others stay. A condition
    /// whose status does not change keeps its `since`.
    Status {
        /// Key of the object.
        key: Key,
        /// Generation of the object that the status is about.
        observed: u64,
        /// Conditions to set.
        conditions: Vec<Condition>,
    },
    /// Replaces the whole status and the private data of the controller that manages the object.
    Progress {
        /// Key of the object.
        key: Key,
        /// New status; conditions that this status does not contain are removed.
        status: Status,
        /// Private data of the controller.
        progress: Arc<serde_json::Value>,
    },
}

impl Change {
    /// Creates a [`Change::Put`] without an expected revision.
    pub fn put(object: Object) -> Change {
        Change::Put { object: Box::new(object), expected: None }
    }

    /// Creates a [`Change::Delete`] without an expected revision.
    pub fn delete(key: Key) -> Change {
        Change::Delete { key, expected: None }
    }
}
