//! Status of the store of objects.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sources::desired::Store;

/// Status of the store of objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Folder of the store, `control.state`; empty if nothing is persisted.
    pub path: String,
    /// Why the store is damaged and accepts no changes: file, offset and what to do. `None` if it
    /// is intact.
    pub damage: Option<String>,
    /// What was truncated from the log at startup, because its last write was interrupted, and the
    /// path of the copy. `None` if nothing was.
    pub truncated: Option<String>,
}

impl StoreStatus {
    /// Returns the status of a store in a folder.
    pub fn new(folder: Option<&Path>, store: &Store) -> StoreStatus {
        StoreStatus {
            path: folder.map(|folder| folder.display().to_string()).unwrap_or_default(),
            damage: store.damage().map(ToString::to_string),
            truncated: store.cut().map(ToString::to_string),
        }
    }
}
