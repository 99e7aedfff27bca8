//! Kinds of service addresses that are advertised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a service address.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum AddressKind {
    /// Address that a load balancer has assigned to the service.
    #[serde(rename = "LoadBalancerIP")]
    LoadBalancerIp,
    /// Cluster-internal address of the service.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// External address (`externalIPs`), which is routed to the nodes by other means.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
}
