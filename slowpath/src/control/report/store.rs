//! The store in the status.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sources::desired::Store;

/// How the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its folder, `control.state`; empty where nothing is kept.
    pub path: String,
    /// Why it is not used and takes no changes: file, offset and what to do. None when it is used.
    pub damage: Option<String>,
    /// What was cut from its log at the start, and where the copy is.
    pub cut: Option<String>,
}

impl StoreStatus {
    /// Of a store in a folder.
    pub fn new(folder: Option<&Path>, store: &Store) -> StoreStatus {
        StoreStatus {
            path: folder.map(|folder| folder.display().to_string()).unwrap_or_default(),
            damage: store.damage().map(ToString::to_string),
            cut: store.cut().map(ToString::to_string),
        }
    }
}
