//! Operations on their way, and how they end.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::resource::Resource;

/// How an operation ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Well.
    Succeed,
    /// It fails, and what was there before is there again.
    Fail {
        /// Resource Manager's code.
        code: String,
        /// A sentence.
        message: String,
    },
    /// Something else took its place.
    Cancel,
    /// It says that it ended well, and nothing came of it: as after another writer's replacement.
    Lose,
    /// Never.
    Hang,
}

/// How the next operations end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// `PUT loadBalancers/backendAddressPools`, or a beginning and `*`.
    pub operation: String,
    /// Their end.
    pub end: End,
    /// So many; none is all.
    #[serde(default)]
    pub times: Option<u32>,
}

/// An operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its id, a UUID.
    pub id: String,
    /// `PUT loadBalancers`.
    pub name: String,
    /// What it is about.
    pub item: String,
    /// What it is kept in, or itself, and what else is closed to writes while it runs.
    pub resources: Vec<String>,
    /// When it is over; none is never.
    pub over: Option<Duration>,
    /// How it ends.
    pub end: End,
    /// Its end was carried out.
    pub settled: bool,
    /// What was there before.
    pub before: Vec<Resource>,
    /// What `Location` answers at its end.
    pub result: Option<Value>,
}
