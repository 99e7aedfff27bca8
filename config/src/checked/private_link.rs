//! `[private_link]`: who looks after private links, and how Azure is reached for them.

use std::time::Duration;

use super::{AzureCredential, AzureEndpoints};
use crate::private_link::Home;
use crate::private_link::id::ResourceId;

/// `[private_link]`, where private links are looked after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateLink {
    /// A tag of all that is made.
    pub fleet: String,
    /// Which of several appliances looks after them.
    pub owner: PrivateLinkOwner,
    /// A lease that nobody renewed for so long may be taken.
    pub lease: Duration,
    /// Where services are made whose objects don't say it.
    pub home: Home,
    /// Who we say we are.
    pub credential: AzureCredential,
    /// Of a user-assigned managed identity.
    pub client_id: Option<String>,
    /// Of the one for the consumers' side, where that is another one.
    pub endpoint_client_id: Option<String>,
    /// Which of Azure's clouds; none: the metadata says it.
    pub environment: Option<String>,
    /// Where Azure is.
    pub endpoints: AzureEndpoints,
}

/// Which of several appliances looks after private links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrivateLinkOwner {
    /// The one of this name.
    Named(String),
    /// Whoever holds the lease in this private DNS zone.
    Lease(ResourceId),
}
