//! `[bgp]`: how BGP peering policies are carried out.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[bgp]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bgp {
    /// Identifier of routers to which nobody else gives one.
    pub router_id: Option<Ipv4Addr>,
    /// The folder of passwords.
    pub secrets: Option<PathBuf>,
    /// What becomes of routes while several policies apply.
    pub on_conflict: BgpOnConflict,
    /// What becomes of addresses that nobody serves.
    pub no_backends: BgpNoBackends,
    /// How long routes are marked before they are withdrawn; zero for not at all.
    pub graceful_shutdown: Duration,
    /// How long a stop waits at most until neighbors have been told.
    pub stop: Duration,
    /// How long it then waits.
    pub settle: Duration,
}

/// What becomes of routes while several policies select an appliance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BgpOnConflict {
    /// All are withdrawn, and everybody disconnected.
    Withdraw,
    /// They stay as they were.
    Keep,
}

/// What becomes of the address of a service that nobody serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BgpNoBackends {
    /// It stays announced.
    Announce,
    /// It is withdrawn.
    Withdraw,
}
