//! The frontend of an internal load balancer that a private link leads to.

use std::net::IpAddr;

use azure::id::ResourceId;
use serde_json::Value;

use crate::names::id_of;

/// A frontend of an internal load balancer.
pub(crate) struct Frontend {
    /// The load balancer.
    pub(crate) balancer: ResourceId,
    /// The frontend's own id, as Azure tells it.
    pub(crate) id: String,
    /// The subnet of its address.
    pub(crate) subnet: Option<ResourceId>,
}

/// What misses a property is no frontend.
pub(crate) fn frontend_of(balancer: &Value, address: IpAddr) -> Option<Frontend> {
    let id = id_of(balancer)?;
    let frontends = balancer["properties"]["frontendIPConfigurations"].as_array()?;
    frontends.iter().find_map(|frontend| {
        let properties = &frontend["properties"];
        let found: IpAddr = properties["privateIPAddress"].as_str()?.parse().ok()?;
        let subnet = properties["subnet"]["id"].as_str();
        let frontend = frontend["id"].as_str()?.to_owned();
        (found == address).then(|| Frontend {
            balancer: id.clone(),
            id: frontend,
            subnet: subnet.and_then(|subnet| ResourceId::parse(subnet).ok()),
        })
    })
}
