//! As written: Azure Private Link Services that this appliance looks after.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::AzureCredential;

/// Objects of kind PrivateLinkService are looked after at Azure; without this section they are
/// kept, and nothing is made of them. How Azure is reached is as `[azure]` says where a key is left
/// empty.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrivateLink {
    /// Name of the appliances that look after the same objects, a tag of all that they make: 1 to
    /// 63 of a-z, 0-9, `-`, `.`, `_`. Another one doesn't know what was made before.
    pub fleet: String,
    /// Name of the appliance that looks after the objects; the others observe. Empty: this one, or
    /// whoever holds the lease.
    pub owner: String,
    /// Id of a private DNS zone in which several appliances choose their owner by a lease. Empty:
    /// there is no lease.
    pub lease_zone: String,
    /// Seconds after which another appliance takes a lease that was not renewed, the same on all of
    /// them. It is renewed three times as often.
    #[schemars(range(min = 15, max = 3600))]
    pub lease_s: u32,
    /// Id of the subscription of services whose objects name none. Empty: each names its own.
    pub subscription: String,
    /// Resource group of services, and of their load balancers, whose objects name none. Empty:
    /// each names its own.
    pub resource_group: String,
    /// Location of services whose objects name none: `westeurope`. Empty: each names its own.
    pub location: String,
    /// By what it says who it is, as `azure.credential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<AzureCredential>,
    /// Client id of a user-assigned managed identity. Empty: as `azure.client_id`.
    pub client_id: String,
    /// The same for the consumers' side: endpoint, zones, records. Empty: one identity does both.
    pub endpoint_client_id: String,
    /// Which of Azure's clouds: `AzurePublicCloud`, `AzureUSGovernmentCloud`, `AzureChinaCloud`.
    /// Empty: the machine's metadata is asked. Set it on a machine that is not at Azure.
    pub environment: String,
    /// Address of Azure Resource Manager. Empty: as `azure.resource_manager`, else the cloud's.
    pub resource_manager: String,
    /// Address of the machine's metadata service. Empty: as `azure.metadata`.
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
