//! `[azure]`: which pools, how we are in them, and how we come and go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OnLost, Prefix};

/// Where Azure's health probes come from.
pub(super) const PROBERS: [Prefix; 2] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), len: 32 },
    Prefix {
        addr: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc)),
        len: 128,
    },
];

/// `[azure]`, where Azure is asked at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Azure {
    /// The pools, that of IPv4 first; one or two.
    pub pools: Vec<AzurePool>,
    /// The load balancer that has them.
    pub balancer: Balancer,
    /// How we are in them.
    pub membership: MadeBy,
    /// Who we say we are.
    pub credential: AzureCredential,
    /// Of a user-assigned managed identity.
    pub client_id: Option<String>,
    /// Where Azure is.
    pub endpoints: AzureEndpoints,
    /// How the appliance comes and goes.
    pub life: AzureLife,
}

/// A backend pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AzurePool {
    /// Its addresses are IPv6.
    pub ipv6: bool,
    /// Its exact name.
    pub name: String,
    /// The gateway that it feeds.
    pub gateway: String,
}

/// How the load balancer is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Balancer {
    /// Among those of a resource group.
    Search {
        /// None: this machine's own.
        group: Option<String>,
        /// None: whichever has the pools.
        name: Option<String>,
    },
    /// `/subscriptions/...`.
    Id(String),
}

/// Where Azure is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AzureEndpoints {
    /// None: as the metadata's cloud has it.
    pub resource_manager: Option<String>,
    /// The metadata service.
    pub metadata: String,
    /// `api-version` for it.
    pub imds_version: String,
}

/// How the appliance comes and goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AzureLife {
    /// What it does when somebody else took its membership away.
    pub on_lost: OnLost,
    /// Which memberships it removes on leaving.
    pub remove: Remove,
    /// From the first SIGTERM until the membership is removed, at most.
    pub drain_cap: Duration,
    /// Nothing is active once no packet came for so long and no flow is in the table.
    pub quiet: Duration,
    /// IMDS is asked for scheduled events.
    pub events: bool,
    /// What probes are told until it was able for the first time.
    pub preboot: Preboot,
    /// What becomes of tunnels that are not as the pool has them.
    pub tunnels: Told,
}

/// How a machine is in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MadeBy {
    /// Its interface's IP configuration names the pool.
    #[default]
    Nic,
    /// The pool names its address.
    Ip,
}

/// What becomes of tunnels that are not as the pool has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// They become so.
    #[default]
    Follow,
    /// It is told.
    Alarm,
}

/// What probes are told until the appliance was able for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Preboot {
    /// 503.
    #[default]
    Refuse,
    /// 200.
    Pass,
}

/// Which memberships are removed on leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remove {
    /// Those that Weir made.
    #[default]
    Own,
    /// All, whoever made them.
    Always,
    /// None.
    Never,
}

/// By what the appliance says who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AzureCredential {
    /// The first of the others that is there: environment, workload, managed.
    #[default]
    Auto,
    /// The machine's managed identity.
    Managed,
    /// A federated token in a file (`AZURE_FEDERATED_TOKEN_FILE`).
    Workload,
    /// A client secret (`AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`).
    Environment,
}
