//! The `[bgp]` section, validated: how BGP peering policies are applied.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[bgp]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bgp {
    /// Default BGP identifier of virtual routers; `None` for the IPv4 address of the ingress arm.
    pub router_id: Option<Ipv4Addr>,
    /// Directory of session keys; `None` if policies cannot use keys.
    pub secrets: Option<PathBuf>,
    /// Action while several policies select this appliance.
    pub on_conflict: BgpOnConflict,
    /// Action for the address of a service without serving backends.
    pub no_backends: BgpNoBackends,
    /// Time for which routes carry GRACEFUL_SHUTDOWN (RFC 8326) before they are withdrawn; zero to
    /// withdraw at once.
    pub graceful_shutdown: Duration,
    /// Maximum time that a shutdown waits until the withdrawals are sent to all neighbors.
    pub stop: Duration,
    /// Time that a shutdown then waits for routers to move the traffic.
    pub settle: Duration,
}

/// Action while several policies select an appliance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BgpOnConflict {
    /// Withdraw all routes and close all sessions.
    Withdraw,
    /// Leave sessions and routes as they were.
    Keep,
}

/// Action for the address of a service without serving backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BgpNoBackends {
    /// Keep announcing the address.
    Announce,
    /// Withdraw the address.
    Withdraw,
}
