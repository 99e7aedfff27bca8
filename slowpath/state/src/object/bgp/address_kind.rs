//! Kinds of addresses that are announced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which addresses of a service.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum AddressKind {
    /// Those that a load balancer gave.
    #[serde(rename = "LoadBalancerIP")]
    LoadBalancerIp,
    /// Its own within the cluster.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Those that somebody routes here.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
}
