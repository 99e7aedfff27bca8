//! Network interfaces: addresses and pools.

use serde_json::{Value, json};

use crate::azure::answer::{
    ServiceResult, defaults, fail, list, list_mut, missing, object_member, put, text,
};
use crate::azure::member::addresses;
use crate::azure::path::{Path, parent, same};
use crate::azure::rights::check_join;
use crate::azure::state::AzureState;
use crate::azure::{network, pool};

/// Members of `properties` whose previous values a write keeps, whatever its body contains.
const READ_ONLY: [&str; 5] =
    ["macAddress", "virtualMachine", "primary", "resourceGuid", "dnsSettings"];

/// Returns the ids of the pools of all IP configurations.
fn pools(body: &Value) -> Vec<String> {
    let parts = list(body, "/properties/ipConfigurations").iter();
    let pools = parts.flat_map(|p| list(p, "/properties/loadBalancerBackendAddressPools"));
    pools.map(|pool| text(pool, "/id").to_owned()).collect()
}

/// Validates an interface, and assigns missing addresses. A write replaces the interface: it leaves
/// the pools that the body does not name. Returns the ids of the load balancers whose pools the
/// interface joins or leaves.
pub fn check(
    cloud: &mut AzureState,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    let properties = object_member(body, "properties");
    for member in READ_ONLY {
        if let Some(previous) = old.and_then(|old| old.pointer(&format!("/properties/{member}"))) {
            put(properties, member, Some(previous.clone()));
        }
    }
    if list(body, "/properties/ipConfigurations").is_empty() {
        let why = format!("Network interface {} needs an IP configuration.", path.id());
        return fail(400, "NetworkInterfaceMustHaveAtLeastOneIpConfiguration", why);
    }
    let mut taken = Vec::new();
    for part in list_mut(body, "ipConfigurations") {
        let before = old.map(|old| list(old, "/properties/ipConfigurations")).unwrap_or_default();
        let before = before.iter().find(|b| text(b, "/name") == text(part, "/name"));
        check_configuration(cloud, path, before, part, &mut taken)?;
    }
    let (before, after) = (old.map(pools).unwrap_or_default(), pools(body));
    for to in &after {
        check_pool(cloud, path, to)?;
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

fn check_configuration(
    cloud: &AzureState,
    path: &Path,
    before: Option<&Value>,
    part: &mut Value,
    taken: &mut Vec<String>,
) -> ServiceResult<()> {
    let subnet = text(part, "/properties/subnet/id").to_owned();
    network::subnet(cloud, &path.id(), &subnet)?;
    let action = "virtualNetworks/subnets/join/action";
    check_join(cloud, path, action, &subnet)?;
    assign_address(cloud, &subnet, before, part, taken)?;
    let properties = object_member(part, "properties");
    let first = json!(taken.len() == 1);
    defaults(properties, [("privateIPAddressVersion", json!("IPv4")), ("primary", first)]);
    Ok(())
}

/// Assigns an address to an IP configuration without one: the previous address, or a free one.
/// `taken` has the addresses that the same write has already used; this one is added.
pub fn assign_address(
    cloud: &AzureState,
    subnet: &str,
    before: Option<&Value>,
    part: &mut Value,
    taken: &mut Vec<String>,
) -> ServiceResult<()> {
    let properties = object_member(part, "properties");
    if text(properties, "/privateIPAddress").is_empty() {
        let previous = before.map(|b| text(b, "/properties/privateIPAddress")).unwrap_or_default();
        let address = match previous {
            "" => network::find_free_address(cloud, subnet, taken)?,
            previous => previous.to_owned(),
        };
        put(properties, "privateIPAddress", Some(address.into()));
    }
    taken.push(text(properties, "/privateIPAddress").to_owned());
    defaults(properties, [("privateIPAllocationMethod", json!("Dynamic"))]);
    Ok(())
}

/// Fails if an interface is in use and cannot be deleted.
pub fn check_removable(cloud: &AzureState, path: &Path) -> ServiceResult<()> {
    let body = cloud.find(&path.id()).map(|found| &found.body);
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
    fail(400, code, why)
}

/// Fails if the interface cannot join the pool.
fn check_pool(cloud: &AzureState, path: &Path, to: &str) -> ServiceResult<()> {
    let Some(found) = cloud.get(to) else {
        return missing(to, &path.id());
    };
    let action = "loadBalancers/backendAddressPools/join/action";
    check_join(cloud, path, action, to)?;
    if addresses(&found).next().is_some() {
        return pool::fail_mixed(text(&found, "/name"));
    }
    Ok(())
}
