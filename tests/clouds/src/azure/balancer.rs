//! Load balancers: validation of writes.

use serde_json::Value;

use crate::azure::answer::{
    ServiceResult, fail, list, list_mut, missing, object_member, put, text,
};
use crate::azure::path::{Path, same};
use crate::azure::rights::check_join;
use crate::azure::rule::sku;
use crate::azure::state::AzureState;
use crate::azure::{network, pool};

/// Validates a load balancer, and assigns missing frontend addresses. The write changes no other
/// resource, so the returned list is empty.
pub fn check(
    cloud: &mut AzureState,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    let sku = sku(body).to_owned();
    if !["Basic", "Standard", "Gateway"].contains(&sku.as_str()) {
        return fail(400, "InvalidRequestFormat", format!("Cannot parse the SKU '{sku}'."));
    }
    if let Some(old) = old.filter(|old| self::sku(old) != sku) {
        let why = format!("SKU of load balancer '{}' can't change to {sku}.", text(old, "/id"));
        return fail(400, "CannotUpgradeOrDowngradeSku", why);
    }
    let id = path.id();
    for pool in list_mut(body, "backendAddressPools") {
        pool::check_tunnels(pool, &sku)?;
        // As at Azure, addresses are written through the pool only: those in the body of the load
        // balancer are ignored without an error.
        let pools = old.map(|old| list(old, "/properties/backendAddressPools"));
        let same_name =
            |other: &&Value| text(other, "/name").eq_ignore_ascii_case(text(pool, "/name"));
        let before = pools.unwrap_or_default().iter().find(same_name);
        let previous = before.and_then(|b| b.pointer("/properties/loadBalancerBackendAddresses"));
        let previous = previous.cloned();
        put(object_member(pool, "properties"), "loadBalancerBackendAddresses", previous);
    }
    assign_frontend_addresses(cloud, path, &id, body)?;
    check_references(&id, &sku, body)?;
    for pool in old.map(|old| list(old, "/properties/backendAddressPools")).unwrap_or_default() {
        let remaining = list(body, "/properties/backendAddressPools");
        if !remaining.iter().any(|p| text(p, "/name").eq_ignore_ascii_case(text(pool, "/name"))) {
            pool::check_unused(cloud, text(pool, "/id"))?;
        }
    }
    Ok(Vec::new())
}

fn assign_frontend_addresses(
    cloud: &AzureState,
    path: &Path,
    id: &str,
    body: &mut Value,
) -> ServiceResult<()> {
    let mut taken = Vec::new();
    for frontend in list_mut(body, "frontendIPConfigurations") {
        let subnet = text(frontend, "/properties/subnet/id").to_owned();
        if subnet.is_empty() {
            continue;
        }
        network::subnet(cloud, id, &subnet)?;
        let action = "virtualNetworks/subnets/join/action";
        check_join(cloud, path, action, &subnet)?;
        if text(frontend, "/properties/privateIPAddress").is_empty() {
            let address = network::find_free_address(cloud, &subnet, &taken)?;
            taken.push(address.clone());
            let properties = object_member(frontend, "properties");
            put(properties, "privateIPAddress", Some(address.into()));
            put(properties, "privateIPAllocationMethod", Some("Dynamic".into()));
        }
    }
    Ok(())
}

/// Checks that rules refer to parts of the same load balancer, and that the rules of a gateway load
/// balancer are for all protocols.
fn check_references(id: &str, sku: &str, body: &Value) -> ServiceResult<()> {
    let exists = |part: &str, to: &str| {
        let parts = list(body, &format!("/properties/{part}")).iter();
        let mut ids = parts.map(|p| format!("{id}/{part}/{}", text(p, "/name")));
        to.is_empty() || ids.any(|known| same(&known, to))
    };
    for rule in list(body, "/properties/loadBalancingRules") {
        let of = |member: &str| text(rule, &format!("/properties/{member}/id"));
        let pools = list(rule, "/properties/backendAddressPools").iter().map(|p| text(p, "/id"));
        let mut referenced = vec![
            ("frontendIPConfigurations", of("frontendIPConfiguration")),
            ("backendAddressPools", of("backendAddressPool")),
            ("probes", of("probe")),
        ];
        referenced.extend(pools.map(|pool| ("backendAddressPools", pool)));
        if let Some((_, to)) = referenced.into_iter().find(|(part, to)| !exists(part, to)) {
            let from = format!("{id}/loadBalancingRules/{}", text(rule, "/name"));
            return missing(to, &from);
        }
        if sku == "Gateway" && text(rule, "/properties/protocol") != "All" {
            let why = "Load balancing rules of a Gateway load balancer take all ports: protocol \
                       All, frontend and backend port 0.";
            return fail(400, "GatewayLoadBalancerRuleMustBeHaPorts", why);
        }
    }
    Ok(())
}
