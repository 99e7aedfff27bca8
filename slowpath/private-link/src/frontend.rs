//! Lookup of the load balancer frontend to which a private link points.

use std::net::IpAddr;

use azure::id::ResourceId;
use serde_json::Value;

use crate::names::id_of;

/// A frontend of an internal load balancer.
pub(crate) struct Frontend {
    /// Id of the load balancer.
    pub(crate) balancer: ResourceId,
    /// Id of the frontend, as Azure returns it.
    pub(crate) id: String,
    /// Subnet of the frontend's address.
    pub(crate) subnet: Option<ResourceId>,
}

/// Returns the frontend with this address; frontends without an address or id are ignored.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn frontends_with_missing_properties_are_skipped() {
        let id = ResourceId::network("s", "g", "loadBalancers", "inner");
        let address = "10.1.0.5".parse().unwrap();
        let properties = json!({ "privateIPAddress": "10.1.0.5" });
        let complete = json!({ "id": "complete", "properties": properties });
        let list = json!([{ "id": "no-properties" }, { "properties": {} }, complete]);
        let balancer = json!({ "id": id, "properties": { "frontendIPConfigurations": list } });
        let found = frontend_of(&balancer, address).unwrap();
        assert_eq!((found.id.as_str(), &found.balancer, found.subnet), ("complete", &id, None));
        for bare in [json!({}), json!({ "id": id }), json!({ "id": id, "properties": {} })] {
            assert!(frontend_of(&bare, address).is_none(), "{bare}");
        }
    }
}
