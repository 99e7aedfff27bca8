//! The `[private_link]` section, validated: ownership of private links, and access to Azure for
//! them.

use std::time::Duration;

use super::{AzureCredential, AzureEndpoints};
use crate::private_link::SpecDefaults;
use crate::private_link::id::ResourceId;

/// The `[private_link]` section; present only if private links are managed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateLink {
    /// Name of the group of appliances that share the objects. All resources that they create carry
    /// it in a tag.
    pub fleet: String,
    /// The appliance that manages the objects.
    pub owner: PrivateLinkOwner,
    /// Time after which a lease that was not renewed may be taken over.
    pub lease: Duration,
    /// Default subscription, resource group and location of services.
    pub defaults: SpecDefaults,
    /// Source of credentials.
    pub credential: AzureCredential,
    /// Client ID of a user-assigned managed identity; `None` for the system-assigned one.
    pub client_id: Option<String>,
    /// Client ID of the identity for the consumer side, if it is a different one.
    pub endpoint_client_id: Option<String>,
    /// Azure cloud; `None` for the one that the metadata names.
    pub environment: Option<String>,
    /// Addresses of Azure's APIs.
    pub endpoints: AzureEndpoints,
}

/// How the appliance that manages private links is determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrivateLinkOwner {
    /// The appliance of this name.
    Named(String),
    /// The holder of the lease in this private DNS zone.
    Lease(ResourceId),
}
