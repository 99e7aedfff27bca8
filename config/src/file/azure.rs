//! As written: the appliance at Azure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{AzureCredential, MadeBy, OnLost, Preboot, Remove, Told};

/// The appliance at Azure: it joins the backend pool of a gateway load balancer, takes the tunnels'
/// ports and VNIs from there, and leaves without losing a TCP flow. Without this section Azure is
/// asked nothing.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Azure {
    /// Name of the backend pool of IPv4, exactly as it is written there. Empty: there is none.
    pub pool: String,
    /// The `[[gateway]]` of kind azure that this pool feeds. May be left out where there is one.
    pub gateway: String,
    /// Name of the backend pool of IPv6. Empty: there is none.
    pub pool_ipv6: String,
    /// The `[[gateway]]` of kind azure that the pool of IPv6 feeds.
    pub gateway_ipv6: String,
    /// The gateway load balancer, its name or its whole id. Empty: the one of SKU Gateway in the
    /// resource group that has the pool.
    pub load_balancer: String,
    /// Resource group of the load balancer. Empty: this machine's own.
    pub resource_group: String,
    /// `nic`: the interface's IP configuration names the pool. `ip`: the pool names the address
    /// (Microsoft documents it for other SKUs alone). One pool can't have both.
    pub membership: MadeBy,
    /// When the pool's tunnels are not those of the `[[gateway]]`: `follow` takes the pool's,
    /// `alarm` only tells.
    pub tunnels: Told,
    /// What probes are told until the appliance was able for the first time: `refuse` 503 with the
    /// reason, `pass` 200.
    pub preboot_health: Preboot,
    /// When somebody else took the membership away: `repair` joins again, `report` tells it.
    pub on_lost: OnLost,
    /// Which memberships are removed on leaving: `own` that Weir made, `always`, or `never`.
    pub remove: Remove,
    /// Seconds from the first SIGTERM until the membership is removed, at most.
    #[schemars(range(min = 5, max = 7200))]
    pub drain_cap_s: u32,
    /// While leaving, nothing is active once no packet came for so many seconds and no flow is in
    /// the table.
    #[schemars(range(min = 1, max = 600))]
    pub quiet_s: u32,
    /// Ask the machine's metadata for scheduled events and leave before what ends it: reboot,
    /// redeploy, preemption, termination by the scale set. They are acknowledged.
    pub events: bool,
    /// By what it says who it is: `auto` environment variables where they are set, else workload
    /// identity where its file is, else managed identity.
    pub credential: AzureCredential,
    /// Client id of a user-assigned managed identity. Empty: the system-assigned one.
    pub client_id: String,
    /// `api-version` for instance and load balancer metadata.
    pub imds_version: String,
    /// Address of Azure Resource Manager. Empty: that of the cloud that the metadata names.
    pub resource_manager: String,
    /// Address of the machine's metadata service.
    pub metadata: String,
}

impl Default for Azure {
    fn default() -> Azure {
        Azure {
            pool: String::new(),
            gateway: String::new(),
            pool_ipv6: String::new(),
            gateway_ipv6: String::new(),
            load_balancer: String::new(),
            resource_group: String::new(),
            membership: MadeBy::Nic,
            tunnels: Told::Follow,
            preboot_health: Preboot::Refuse,
            on_lost: OnLost::Repair,
            remove: Remove::Own,
            drain_cap_s: 300,
            quiet_s: 5,
            events: true,
            credential: AzureCredential::Auto,
            client_id: String::new(),
            imds_version: "2023-07-01".into(),
            resource_manager: String::new(),
            metadata: "http://169.254.169.254".into(),
        }
    }
}
