//! Virtual networks and subnets.

use std::net::IpAddr;

use serde_json::Value;

use crate::azure::answer::{
    ServiceResult, defaults, fail, list, missing, object_member, put, text,
};
use crate::azure::path::{Path, name, parent, same};
use crate::azure::state::AzureState;

/// Returns the first and the last address of a prefix as numbers, and whether the prefix is IPv6.
/// `None` if the prefix is not valid or has host bits set.
fn range(prefix: &str) -> Option<(u128, u128, bool)> {
    let (address, length) = prefix.split_once('/')?;
    let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
    let (number, six) = number(address);
    let host = (if six { 128_u32 } else { 32 }).checked_sub(length)?;
    let ones = if host == 128 { u128::MAX } else { (1 << host) - 1 };
    (number & ones == 0).then_some((number, number | ones, six))
}

fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)), false),
        IpAddr::V6(six) => (u128::from(six), true),
    }
}

fn address(number: u128, six: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(four) if !six => IpAddr::V4(four.into()),
        _ => IpAddr::V6(number.into()),
    }
}

fn inside(prefix: &str, of: &str) -> bool {
    let (Some(inner), Some(outer)) = (range(prefix), range(of)) else { return false };
    inner.2 == outer.2 && outer.0 <= inner.0 && inner.1 <= outer.1
}

fn overlap(one: &str, other: &str) -> bool {
    let (Some(one), Some(other)) = (range(one), range(other)) else { return false };
    one.2 == other.2 && one.0 <= other.1 && other.0 <= one.1
}

/// Returns the prefixes of a subnet.
fn prefixes(subnet: &Value) -> Vec<&str> {
    let several = list(subnet, "/properties/addressPrefixes").iter().filter_map(Value::as_str);
    let one = text(subnet, "/properties/addressPrefix");
    several.chain(Some(one).filter(|one| !one.is_empty())).collect()
}

/// Returns the address space of a network.
fn spaces(network: &Value) -> Vec<&str> {
    let spaces = list(network, "/properties/addressSpace/addressPrefixes");
    spaces.iter().filter_map(Value::as_str).collect()
}

/// Returns true if the network contains the address.
pub fn contains(network: &Value, address: IpAddr) -> bool {
    let host = if address.is_ipv4() { 32 } else { 128 };
    let prefix = format!("{address}/{host}");
    spaces(network).iter().any(|space| inside(&prefix, space))
}

/// Returns a subnet that a resource refers to, or an error if it is absent.
pub fn subnet(cloud: &AzureState, from: &str, id: &str) -> ServiceResult<Value> {
    let network = cloud.find(parent(id));
    let subnets = network.map(|n| list(&n.body, "/properties/subnets")).unwrap_or_default();
    let found = subnets.iter().find(|s| text(s, "/name").eq_ignore_ascii_case(name(id)));
    found.cloned().map_or_else(|| missing(id, from), Ok)
}

/// Returns a free address of a subnet's first prefix, without the addresses that Azure reserves:
/// the first four and the last. Only the lowest 65,536 others are searched.
pub fn find_free_address(cloud: &AzureState, id: &str, taken: &[String]) -> ServiceResult<String> {
    let found = subnet(cloud, id, id)?;
    let first = prefixes(&found).first().copied().and_then(range);
    let Some((low, high, six)) = first else {
        return fail(400, "InvalidAddressPrefixFormat", format!("{id} has no address prefix."));
    };
    let used = used_addresses(cloud);
    let candidates = (low + 4..high).take(1 << 16).map(|n| address(n, six).to_string());
    let mut free = candidates.filter(|a| !used.contains(a) && !taken.contains(a));
    match free.next() {
        Some(address) => Ok(address),
        None => fail(400, "SubnetIsFull", format!("Subnet {id} has no free address.")),
    }
}

/// Returns all private addresses in use.
fn used_addresses(cloud: &AzureState) -> Vec<String> {
    fn gather(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| match value {
                Value::String(text) if name == "privateIPAddress" => found.push(text.clone()),
                value => gather(value, found),
            }),
            Value::Array(values) => values.iter().for_each(|value| gather(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    cloud.resources.iter().for_each(|resource| gather(&resource.body, &mut found));
    found
}

/// Validates a network. If the body has no list of subnets, the network keeps its subnets.
pub fn check(old: Option<&Value>, body: &mut Value) -> ServiceResult<Vec<String>> {
    if let Some(bad) = spaces(body).into_iter().find(|space| range(space).is_none()) {
        let why = format!("The address prefix '{bad}' is invalid.");
        return fail(400, "InvalidAddressPrefixFormat", why);
    }
    if spaces(body).is_empty() {
        let why = "A virtual network needs an address space.";
        return fail(400, "InvalidRequestFormat", why);
    }
    if body.pointer("/properties/subnets").is_none() {
        let previous = old.and_then(|old| old.pointer("/properties/subnets")).cloned();
        put(object_member(body, "properties"), "subnets", previous);
    }
    Ok(Vec::new())
}

/// Validates a subnet.
pub fn check_subnet(
    cloud: &AzureState,
    path: &Path,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    let holder = path.parent().and_then(|holder| cloud.find(&holder.id()));
    let empty = Value::Null;
    let network = holder.map_or(&empty, |holder| &holder.body);
    let requested = prefixes(body);
    if requested.is_empty() {
        let why = format!("Subnet '{}' needs an address prefix.", path.name());
        return fail(400, "SubnetWithNoAddressPrefix", why);
    }
    for prefix in requested {
        if range(prefix).is_none() {
            let why = format!("The address prefix '{prefix}' is invalid.");
            return fail(400, "InvalidCIDRNotation", why);
        }
        if !spaces(network).iter().any(|space| inside(prefix, space)) {
            let why = format!(
                "Subnet '{}' is not valid because its IP address range is outside the IP address \
                 range of virtual network '{}'.",
                path.name(),
                path.steps.get(1).map_or("", String::as_str)
            );
            return fail(400, "NetcfgSubnetRangeOutsideVnet", why);
        }
        for other in list(network, "/properties/subnets") {
            let own = text(other, "/name").eq_ignore_ascii_case(path.name());
            if !own && prefixes(other).iter().any(|p| overlap(p, prefix)) {
                let why = format!(
                    "Subnet '{}' is not valid because its IP address range overlaps with that of \
                     an existing subnet in virtual network '{}'.",
                    path.name(),
                    path.steps.get(1).map_or("", String::as_str)
                );
                return fail(400, "NetcfgSubnetRangesOverlap", why);
            }
        }
    }
    set_default_policies(body);
    Ok(Vec::new())
}

/// Sets the network policies that a write leaves out to their defaults, as Azure does: previous
/// values are not kept.
fn set_default_policies(subnet: &mut Value) {
    let properties = object_member(subnet, "properties");
    let default_policies = [
        ("privateEndpointNetworkPolicies", "Disabled".into()),
        ("privateLinkServiceNetworkPolicies", "Enabled".into()),
    ];
    defaults(properties, default_policies);
}

/// Fails if a subnet is in use and cannot be deleted.
pub fn check_removable(cloud: &AzureState, path: &Path) -> ServiceResult<()> {
    let id = path.id();
    let user = cloud.resources.iter().find(|resource| refers(&resource.body, &id));
    let Some(user) = user else { return Ok(()) };
    let why = format!(
        "Subnet {} is in use by {} and cannot be deleted. In order to delete the subnet, delete \
         all the resources within the subnet.",
        path.name(),
        user.id
    );
    fail(400, "InUseSubnetCannotBeDeleted", why)
}

/// Returns true if a body contains a reference to this id.
pub fn refers(value: &Value, id: &str) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| match value {
            Value::String(text) => name == "id" && same(text, id),
            value => refers(value, id),
        }),
        Value::Array(values) => values.iter().any(|value| refers(value, id)),
        _ => false,
    }
}
