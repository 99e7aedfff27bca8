//! The `[private_link]` section as written: Azure Private Link Services managed by this appliance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::AzureCredential;

/// Manages objects of kind PrivateLinkService on Azure. Without this section such objects are
/// stored and have no effect. Keys that are empty take the value of `[azure]` where stated.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrivateLink {
    /// Name of the group of appliances that manage the same objects; every resource that they
    /// create carries it as a tag: 1 to 63 characters of a-z, 0-9, `-`, `.` and `_`. After a
    /// change, resources created before are not recognized.
    pub fleet: String,
    /// Name of the appliance that manages the objects; all others observe. Empty: this appliance,
    /// or with `lease_zone` the holder of the lease.
    pub owner: String,
    /// Resource ID of a private DNS zone in which several appliances elect their owner by a lease.
    /// Empty: no lease.
    pub lease_zone: String,
    /// Seconds after which another appliance takes over a lease that was not renewed; must be equal
    /// on all appliances. The owner renews the lease three times within this period.
    #[schemars(range(min = 15, max = 3600))]
    pub lease_s: u32,
    /// ID of the subscription of objects that name none. Empty: each object must name one.
    pub subscription: String,
    /// Resource group of services, and of their load balancers, whose objects name none. Empty:
    /// each object must name one.
    pub resource_group: String,
    /// Location of objects that name none, for example `westeurope`. Empty: each object must name
    /// one.
    pub location: String,
    /// Source of credentials, as `azure.credential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<AzureCredential>,
    /// Client ID of a user-assigned managed identity. Empty: as `azure.client_id`.
    pub client_id: String,
    /// Client ID of a user-assigned managed identity for the consumer side: endpoints, zones and
    /// records. Empty: one identity is used for both sides.
    pub endpoint_client_id: String,
    /// Azure cloud: `AzurePublicCloud`, `AzureUSGovernmentCloud` or `AzureChinaCloud`. Empty: taken
    /// from the machine's metadata. Set it on machines outside Azure.
    pub environment: String,
    /// URL of Azure Resource Manager. Empty: as `azure.resource_manager`, else that of the cloud.
    pub resource_manager: String,
    /// URL of the machine's metadata service. Empty: as `azure.metadata`.
    pub metadata: String,
}

impl Default for PrivateLink {
    fn default() -> PrivateLink {
        PrivateLink {
            fleet: "weir".into(),
            owner: String::new(),
            lease_zone: String::new(),
            lease_s: 90,
            subscription: String::new(),
            resource_group: String::new(),
            location: String::new(),
            credential: None,
            client_id: String::new(),
            endpoint_client_id: String::new(),
            environment: String::new(),
            resource_manager: String::new(),
            metadata: String::new(),
        }
    }
}
