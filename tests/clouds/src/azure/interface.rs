//! Network interfaces: addresses and pools.

use serde_json::{Value, json};

use crate::azure::answer::{
    Told, defaults, list, list_mut, missing, object_member, put, refuse, text,
};
use crate::azure::member::addresses;
use crate::azure::path::{Path, parent, same};
use crate::azure::rights::joins;
use crate::azure::world::World;
use crate::azure::{network, pool};

/// Members of `properties` that only Azure writes.
const GIVEN: [&str; 5] = ["macAddress", "virtualMachine", "primary", "resourceGuid", "dnsSettings"];

/// Returns the ids of the pools of all IP configurations.
fn pools(body: &Value) -> Vec<String> {
    let parts = list(body, "/properties/ipConfigurations").iter();
    let pools = parts.flat_map(|p| list(p, "/properties/loadBalancerBackendAddressPools"));
    pools.map(|pool| text(pool, "/id").to_owned()).collect()
}

/// Validates an interface. A write replaces it: pools that are not named are left.
pub fn check(
    world: &mut World,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> Told<Vec<String>> {
    let properties = object_member(body, "properties");
    for given in GIVEN {
        if let Some(kept) = old.and_then(|old| old.pointer(&format!("/properties/{given}"))) {
            put(properties, given, Some(kept.clone()));
        }
    }
    if list(body, "/properties/ipConfigurations").is_empty() {
        let why = format!("Network interface {} needs an IP configuration.", path.id());
        return refuse(400, "NetworkInterfaceMustHaveAtLeastOneIpConfiguration", why);
    }
    let mut taken = Vec::new();
    for part in list_mut(body, "ipConfigurations") {
        let before = old.map(|old| list(old, "/properties/ipConfigurations")).unwrap_or_default();
        let before = before.iter().find(|b| text(b, "/name") == text(part, "/name"));
        configuration(world, path, before, part, &mut taken)?;
    }
    let (before, after) = (old.map(pools).unwrap_or_default(), pools(body));
    for to in &after {
        join(world, path, to)?;
    }
    let differ = |one: &Vec<String>, other: &Vec<String>| {
        one.iter().filter(|id| !other.iter().any(|o| same(o, id))).cloned().collect::<Vec<_>>()
    };
    let mut touched: Vec<String> = differ(&before, &after)
        .iter()
        .chain(&differ(&after, &before))
        .map(|id| parent(id).into())
        .collect();
    touched.dedup();
    Ok(touched)
}

fn configuration(
    world: &World,
    path: &Path,
    before: Option<&Value>,
    part: &mut Value,
    taken: &mut Vec<String>,
) -> Told<()> {
    let subnet = text(part, "/properties/subnet/id").to_owned();
    network::subnet(world, &path.id(), &subnet)?;
    let action = "virtualNetworks/subnets/join/action";
    joins(world, path, action, &subnet)?;
    give_address(world, &subnet, before, part, taken)?;
    let properties = object_member(part, "properties");
    let first = json!(taken.len() == 1);
    defaults(properties, [("privateIPAddressVersion", json!("IPv4")), ("primary", first)]);
    Ok(())
}

/// Assigns an address if there is none: the previous one, or a free one.
pub fn give_address(
    world: &World,
    subnet: &str,
    before: Option<&Value>,
    part: &mut Value,
    taken: &mut Vec<String>,
) -> Told<()> {
    let properties = object_member(part, "properties");
    if text(properties, "/privateIPAddress").is_empty() {
        let kept = before.map(|b| text(b, "/properties/privateIPAddress")).unwrap_or_default();
        let address = match kept {
            "" => network::free(world, subnet, taken)?,
            kept => kept.to_owned(),
        };
        put(properties, "privateIPAddress", Some(address.into()));
    }
    taken.push(text(properties, "/privateIPAddress").to_owned());
    defaults(properties, [("privateIPAllocationMethod", json!("Dynamic"))]);
    Ok(())
}

/// Fails if an interface is in use and cannot be deleted.
pub fn removable(world: &World, path: &Path) -> Told<()> {
    let body = world.find(&path.id()).map(|found| &found.body);
    let user = |member: &str| text(body.unwrap_or(&Value::Null), member);
    let of = [
        ("NicInUse", user("/properties/virtualMachine/id")),
        ("NicInUseWithPrivateEndpoint", user("/properties/privateEndpoint/id")),
    ];
    let Some((code, user)) = of.into_iter().find(|(_, user)| !user.is_empty()) else {
        return Ok(());
    };
    let why = format!(
        "Network Interface {} is used by existing resource {user}. In order to delete the network \
         interface, it must be dissociated from the resource.",
        path.id()
    );
    refuse(400, code, why)
}

fn join(world: &World, path: &Path, to: &str) -> Told<()> {
    let Some(found) = world.shown(to) else {
        return missing(to, &path.id());
    };
    let action = "loadBalancers/backendAddressPools/join/action";
    joins(world, path, action, to)?;
    if addresses(&found).next().is_some() {
        return pool::mixed(text(&found, "/name"));
    }
    Ok(())
}
