//! Members of pools by what their probes say.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A member of a pool by what its probes say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// Id of the pool.
    pub pool: String,
    /// The member's address.
    pub address: String,
    /// Id of its IP configuration, where it is a member by that.
    pub configuration: Option<String>,
    /// What its probes bring.
    pub good: bool,
    /// It gets new flows: one good probe is enough, two bad ones end it.
    pub up: bool,
    /// Bad probes in a row.
    pub bad: u32,
    /// When it is probed next.
    pub next: Duration,
}
