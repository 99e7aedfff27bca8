//! The `[azure]` section, validated: backend pools, membership, credentials and lifecycle.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OnLost, Prefix};

/// Source addresses of Azure's health probes.
pub(super) const PROBE_SOURCES: [Prefix; 2] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), len: 32 },
    Prefix {
        addr: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc)),
        len: 128,
    },
];

/// The `[azure]` section; present only on Azure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Azure {
    /// The backend pools, one or two, IPv4 first.
    pub pools: Vec<AzurePool>,
    /// The load balancer that has the pools.
    pub balancer: Balancer,
    /// How the appliance joins the pools.
    pub membership: MembershipMode,
    /// Source of credentials.
    pub credential: AzureCredential,
    /// Client ID of a user-assigned managed identity; `None` for the system-assigned one.
    pub client_id: Option<String>,
    /// Addresses of Azure's APIs.
    pub endpoints: AzureEndpoints,
    /// Lifecycle of the membership.
    pub lifecycle: AzureLifecycleSettings,
}

/// A backend pool of the load balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AzurePool {
    /// Whether the pool holds IPv6 addresses; otherwise IPv4.
    pub ipv6: bool,
    /// Exact name of the pool.
    pub name: String,
    /// Name of the `[[gateway]]` to which the pool belongs.
    pub gateway: String,
}

/// How the load balancer is identified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Balancer {
    /// By a search in a resource group.
    Search {
        /// The resource group; `None` for that of this machine.
        group: Option<String>,
        /// Name of the load balancer; `None` for the one that has the pools.
        name: Option<String>,
    },
    /// By its resource ID, `/subscriptions/...`.
    Id(String),
}

/// Addresses of Azure's APIs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AzureEndpoints {
    /// URL of Azure Resource Manager; `None` for that of the cloud named by the metadata.
    pub resource_manager: Option<String>,
    /// URL of the metadata service (IMDS).
    pub metadata: String,
    /// `api-version` of requests to the metadata service.
    pub imds_version: String,
}

/// Lifecycle of the pool membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AzureLifecycleSettings {
    /// Action when another party removed the membership.
    pub on_lost: OnLost,
    /// Memberships to remove at shutdown.
    pub remove: Remove,
    /// Maximum time from the first SIGTERM until the membership is removed.
    pub drain_cap: Duration,
    /// Time without a packet after which the appliance counts as idle, once no flow is left in the
    /// table.
    pub idle: Duration,
    /// Poll the machine's metadata (IMDS) for scheduled events.
    pub events: bool,
    /// Response to health probes after the start, until the appliance is able to serve for the
    /// first time.
    pub preboot: Preboot,
    /// Action when the pool's tunnels differ from the configured ones.
    pub tunnels: TunnelPolicy,
}

/// How a machine joins a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MembershipMode {
    /// The IP configuration of the NIC references the pool.
    #[default]
    Nic,
    /// The pool lists the machine's address.
    Ip,
}

/// Action when the pool's tunnels differ from the configured ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TunnelPolicy {
    /// Adopt the pool's tunnels.
    #[default]
    Follow,
    /// Only report the difference.
    Report,
}

/// Response to health probes after the start, until the appliance is able to serve for the first
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Preboot {
    /// Status 503.
    #[default]
    Fail,
    /// Status 200.
    Pass,
}

/// Memberships to remove at shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remove {
    /// Memberships created by Weir.
    #[default]
    Own,
    /// All memberships.
    Always,
    /// No memberships.
    Never,
}

/// Source of the appliance's credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AzureCredential {
    /// The first available of environment, workload and managed.
    #[default]
    Auto,
    /// The machine's managed identity.
    Managed,
    /// A federated token in a file (`AZURE_FEDERATED_TOKEN_FILE`).
    Workload,
    /// A client secret (`AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`).
    Environment,
}
