//! Load balancers: what they refer to, and what refers to them.

use serde_json::{Value, json};

use crate::azure::answer::{
    Told, defaults, list, list_mut, missing, object_member, put, refuse, text,
};
use crate::azure::arm::joins;
use crate::azure::path::{Path, same};
use crate::azure::world::{Resource, World};
use crate::azure::{network, pool};

/// The SKU of a load balancer.
pub fn sku(body: &Value) -> &str {
    Some(text(body, "/sku/name")).filter(|sku| !sku.is_empty()).unwrap_or("Basic")
}

/// Rules of a load balancer that refer to one of its parts.
fn rules<'a>(body: &'a Value, id: &'a str) -> impl Iterator<Item = &'a Value> {
    list(body, "/properties/loadBalancingRules").iter().filter(move |rule| {
        let single = ["frontendIPConfiguration", "backendAddressPool", "probe"];
        let mut found = single.iter().map(|m| text(rule, &format!("/properties/{m}/id")));
        let pools = list(rule, "/properties/backendAddressPools");
        found.any(|to| same(to, id)) || pools.iter().any(|pool| same(text(pool, "/id"), id))
    })
}

/// Rules by which a pool is used.
pub fn rules_of(body: &Value, pool: &str) -> Vec<Value> {
    rules(body, pool).cloned().collect()
}

/// Writes what follows from other resources into a load balancer.
pub fn show(world: &World, resource: &Resource, body: &mut Value) {
    let whole = body.clone();
    put(body, "sku", Some(json!({ "name": sku(&whole), "tier": "Regional" })));
    let properties = object_member(body, "properties");
    put(
        properties,
        "resourceGuid",
        Some(crate::azure::world::guid(resource.id.len() as u64).into()),
    );
    for member in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        for part in list_mut(body, member) {
            let id = text(part, "/id").to_owned();
            let used = rules(&whole, &id).map(|rule| json!({ "id": text(rule, "/id") }));
            let used: Vec<Value> = used.collect();
            let used = (!used.is_empty()).then_some(Value::Array(used));
            put(object_member(part, "properties"), "loadBalancingRules", used);
            if member == "backendAddressPools" {
                pool::show(world, resource, sku(&whole), part);
            }
        }
    }
    for rule in list_mut(body, "loadBalancingRules") {
        let properties = object_member(rule, "properties");
        let given = [
            ("disableOutboundSnat", json!(false)),
            ("enableFloatingIP", json!(false)),
            ("enableTcpReset", json!(false)),
            ("idleTimeoutInMinutes", json!(4)),
            ("loadDistribution", json!("Default")),
        ];
        defaults(properties, given);
    }
    for member in ["inboundNatRules", "outboundRules", "inboundNatPools"] {
        list_mut(body, member);
    }
}

/// What a load balancer must be.
pub fn check(
    world: &mut World,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> Told<Vec<String>> {
    let sku = sku(body).to_owned();
    if !["Basic", "Standard", "Gateway"].contains(&sku.as_str()) {
        return refuse(400, "InvalidRequestFormat", format!("Cannot parse the SKU '{sku}'."));
    }
    if let Some(old) = old.filter(|old| self::sku(old) != sku) {
        let why = format!("SKU of load balancer '{}' can't change to {sku}.", text(old, "/id"));
        return refuse(400, "CannotUpgradeOrDowngradeSku", why);
    }
    let id = path.id();
    for pool in list_mut(body, "backendAddressPools") {
        pool::tunnels(pool, &sku)?;
        // Addresses are written by the pool itself; here they are silently ignored.
        let pools = old.map(|old| list(old, "/properties/backendAddressPools"));
        let same_name =
            |other: &&Value| text(other, "/name").eq_ignore_ascii_case(text(pool, "/name"));
        let before = pools.unwrap_or_default().iter().find(same_name);
        let kept = before.and_then(|b| b.pointer("/properties/loadBalancerBackendAddresses"));
        let kept = kept.cloned();
        put(object_member(pool, "properties"), "loadBalancerBackendAddresses", kept);
    }
    frontends(world, path, &id, body)?;
    references(&id, &sku, body)?;
    for gone in old.map(|old| list(old, "/properties/backendAddressPools")).unwrap_or_default() {
        let kept = list(body, "/properties/backendAddressPools");
        if !kept.iter().any(|p| text(p, "/name").eq_ignore_ascii_case(text(gone, "/name"))) {
            pool::unused(world, text(gone, "/id"))?;
        }
    }
    Ok(Vec::new())
}

fn frontends(world: &World, path: &Path, id: &str, body: &mut Value) -> Told<()> {
    let mut taken = Vec::new();
    for frontend in list_mut(body, "frontendIPConfigurations") {
        let subnet = text(frontend, "/properties/subnet/id").to_owned();
        if subnet.is_empty() {
            continue;
        }
        network::subnet(world, id, &subnet)?;
        let action = "virtualNetworks/subnets/join/action";
        joins(world, path, action, &subnet)?;
        if text(frontend, "/properties/privateIPAddress").is_empty() {
            let address = network::free(world, &subnet, &taken)?;
            taken.push(address.clone());
            let properties = object_member(frontend, "properties");
            put(properties, "privateIPAddress", Some(address.into()));
            put(properties, "privateIPAllocationMethod", Some("Dynamic".into()));
        }
    }
    Ok(())
}

/// Rules refer to parts of the same load balancer, and a gateway's take all ports.
fn references(id: &str, sku: &str, body: &Value) -> Told<()> {
    let there = |part: &str, to: &str| {
        let parts = list(body, &format!("/properties/{part}")).iter();
        let mut ids = parts.map(|p| format!("{id}/{part}/{}", text(p, "/name")));
        to.is_empty() || ids.any(|known| same(&known, to))
    };
    for rule in list(body, "/properties/loadBalancingRules") {
        let of = |member: &str| text(rule, &format!("/properties/{member}/id"));
        let pools = list(rule, "/properties/backendAddressPools").iter().map(|p| text(p, "/id"));
        let mut wanted = vec![
            ("frontendIPConfigurations", of("frontendIPConfiguration")),
            ("backendAddressPools", of("backendAddressPool")),
            ("probes", of("probe")),
        ];
        wanted.extend(pools.map(|pool| ("backendAddressPools", pool)));
        if let Some((_, to)) = wanted.into_iter().find(|(part, to)| !there(part, to)) {
            let from = format!("{id}/loadBalancingRules/{}", text(rule, "/name"));
            return missing(to, &from);
        }
        if sku == "Gateway" && text(rule, "/properties/protocol") != "All" {
            let why = "Load balancing rules of a Gateway load balancer take all ports: protocol \
                       All, frontend and backend port 0.";
            return refuse(400, "GatewayLoadBalancerRuleMustBeHaPorts", why);
        }
    }
    Ok(())
}
