//! The `[azure]` section as written: the appliance on Azure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{AzureCredential, MembershipMode, OnLost, Preboot, Remove, TunnelPolicy};

/// The appliance on Azure: it joins the backend pool of a gateway load balancer, reads the tunnels'
/// ports and VNIs from the pool, and leaves without losing a TCP flow. Without this section Azure
/// is not used.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Azure {
    /// Name of the IPv4 backend pool, exactly as on Azure. Empty: none.
    pub pool: String,
    /// The `[[gateway]]` of kind azure to which this pool belongs. May be omitted if there is only
    /// one.
    pub gateway: String,
    /// Name of the IPv6 backend pool, exactly as on Azure. Empty: none.
    pub pool_ipv6: String,
    /// The `[[gateway]]` of kind azure to which the IPv6 pool belongs.
    pub gateway_ipv6: String,
    /// The gateway load balancer, its name or resource ID. Empty: the one of SKU Gateway in the
    /// resource group that has the pool.
    pub load_balancer: String,
    /// Resource group of the load balancer. Empty: that of this machine.
    pub resource_group: String,
    /// How the machine joins the pool. `nic`: the NIC's IP configuration references the pool. `ip`:
    /// the pool lists the address (Microsoft documents it for other SKUs only). A pool cannot use
    /// both.
    pub membership: MembershipMode,
    /// Action when the pool's tunnels differ from those of the `[[gateway]]`: `follow` adopts the
    /// pool's, `report` only reports the difference.
    pub tunnels: TunnelPolicy,
    /// Response to health probes after the start, until the appliance is able to serve for the
    /// first time: `fail` responds 503 with the reason, `pass` responds 200.
    pub preboot_health: Preboot,
    /// Action when another party removed the membership: `repair` joins again, `report` only
    /// reports it.
    pub on_lost: OnLost,
    /// Memberships to remove at shutdown: `own` (created by Weir), `always`, or `never`.
    pub remove: Remove,
    /// Maximum number of seconds from the first SIGTERM to the end of the wait for flows. Removing
    /// the membership takes up to 20 more.
    #[schemars(range(min = 5, max = 7200))]
    pub drain_cap_s: u32,
    /// During shutdown, the appliance counts as idle after this many seconds without a packet, once
    /// no flow is left in the table.
    #[schemars(range(min = 1, max = 600))]
    pub idle_s: u32,
    /// Poll the machine's metadata for scheduled events, shut down before those that end the
    /// machine (reboot, redeploy, preemption, termination by the scale set), and acknowledge them.
    pub events: bool,
    /// Source of credentials: `managed` (managed identity), `workload` (workload identity),
    /// `environment` (environment variables), or `auto`: environment variables if they are set,
    /// else workload identity if its token file exists, else managed identity.
    pub credential: AzureCredential,
    /// Client ID of a user-assigned managed identity. Empty: the system-assigned identity.
    pub client_id: String,
    /// `api-version` of requests for instance and load balancer metadata.
    pub imds_version: String,
    /// URL of Azure Resource Manager. Empty: that of the cloud named by the metadata.
    pub resource_manager: String,
    /// URL of the machine's metadata service.
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
            membership: MembershipMode::Nic,
            tunnels: TunnelPolicy::Follow,
            preboot_health: Preboot::Fail,
            on_lost: OnLost::Repair,
            remove: Remove::Own,
            drain_cap_s: 300,
            idle_s: 5,
            events: true,
            credential: AzureCredential::Auto,
            client_id: String::new(),
            imds_version: "2023-07-01".into(),
            resource_manager: String::new(),
            metadata: "http://169.254.169.254".into(),
        }
    }
}
