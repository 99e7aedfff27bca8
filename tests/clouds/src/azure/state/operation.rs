//! Long operations and their results.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::resource::Resource;

/// Result of a long operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The operation succeeds.
    Succeed,
    /// The operation fails, and the state before a write is restored.
    Fail {
        /// Error code.
        code: String,
        /// Error message.
        message: String,
    },
    /// The operation is canceled, as if another one superseded it; the state before a write is
    /// restored.
    Cancel,
    /// The operation reports success but has no effect, as if another writer had replaced the
    /// change.
    Lose,
    /// The operation never ends.
    Hang,
}

/// Configured result of the next operations of a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the operation, `PUT loadBalancers/backendAddressPools` for instance, or a prefix
    /// followed by `*`.
    pub operation: String,
    /// The result.
    pub end: End,
    /// Number of further operations that end so; `None` for all.
    #[serde(default)]
    pub times: Option<u32>,
}

/// A long operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Id, a UUID.
    pub id: String,
    /// Name, `PUT loadBalancers` for instance.
    pub name: String,
    /// Id of the item.
    pub item: String,
    /// Ids of the resources that cannot be written meanwhile. The first is that of the item, or of
    /// the resource in which the item is stored.
    pub resources: Vec<String>,
    /// Time at which the operation ends, since the emulator's start; `None` for never.
    pub over: Option<Duration>,
    /// Result.
    pub end: End,
    /// True if the result has been applied.
    pub settled: bool,
    /// Resources before the write, which are restored if the operation ends with another result
    /// than [`End::Succeed`].
    pub before: Vec<Resource>,
    /// Body of the final response at `Location`, and `properties` of that at
    /// `Azure-AsyncOperation`.
    pub result: Option<Value>,
}
