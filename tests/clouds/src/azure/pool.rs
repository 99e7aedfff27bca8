//! Backend pools: members by interface or by address, and tunnels.

use serde_json::Value;

use crate::azure::answer::{ServiceResult, fail, list, list_mut, missing, put, text};
use crate::azure::member::{addresses, members};
use crate::azure::network;
use crate::azure::path::{Path, parent, same};
use crate::azure::rights::check_join;
use crate::azure::rule::{rules_of, sku};
use crate::azure::state::AzureState;

fn invalid<T>(why: impl Into<String>) -> ServiceResult<T> {
    fail(400, "InvalidRequestFormat", why)
}

/// Validates the tunnels of a pool.
pub fn check_tunnels(pool: &Value, sku: &str) -> ServiceResult<()> {
    let tunnels = list(pool, "/properties/tunnelInterfaces");
    let of = text(pool, "/name");
    if sku != "Gateway" && !tunnels.is_empty() {
        let why = format!("Pool '{of}' has tunnel interfaces, but its load balancer is {sku}.");
        return fail(400, "TunnelInterfacesOnlyAllowedForGatewayLoadBalancer", why);
    }
    if tunnels.len() > 2 {
        let why = format!("Pool '{of}' has {} tunnel interfaces, at most 2.", tunnels.len());
        return fail(400, "TooManyTunnelInterfaces", why);
    }
    for tunnel in tunnels {
        let (kind, protocol) = (text(tunnel, "/type"), text(tunnel, "/protocol"));
        if !["None", "Internal", "External"].contains(&kind) {
            return invalid(format!("Cannot parse the tunnel type '{kind}'."));
        }
        if !["None", "Native", "VXLAN"].contains(&protocol) {
            return invalid(format!("Cannot parse the tunnel protocol '{protocol}'."));
        }
        for member in ["port", "identifier"] {
            let same = |other: &&Value| other.get(member) == tunnel.get(member);
            if !tunnel.get(member).is_some_and(Value::is_u64) {
                return invalid(format!("A tunnel interface needs a number as '{member}'."));
            }
            if tunnels.iter().filter(same).count() > 1 {
                let why = format!("Two tunnel interfaces of pool '{of}' have the same {member}.");
                return fail(400, "TunnelInterfacesMustBeUnique", why);
            }
        }
    }
    Ok(())
}

/// Validates a pool. A write replaces the pool: what the body leaves out is removed.
pub fn check(
    cloud: &mut AzureState,
    path: &Path,
    _old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    put(body, "name", Some(path.name().into()));
    let balancer = path.top().id();
    let sku =
        cloud.find(&balancer).map(|balancer| sku(&balancer.body).to_owned()).unwrap_or_default();
    check_tunnels(body, &sku)?;
    let by_interface = members(cloud, &path.id());
    if !by_interface.is_empty() && addresses(body).next().is_some() {
        return fail_mixed(path.name());
    }
    let mut network: Option<String> = None;
    let mut names: Vec<String> = Vec::new();
    for entry in list_mut(body, "loadBalancerBackendAddresses") {
        let called = text(entry, "/name").to_owned();
        if called.is_empty() || names.contains(&called) {
            return invalid(format!("Backend address name '{called}' is empty or duplicate."));
        }
        names.push(called);
        let state = text(entry, "/properties/adminState");
        if !["", "None", "Up", "Down"].contains(&state) {
            return invalid(format!("Cannot parse the admin state '{state}'."));
        }
        let configuration = text(entry, "/properties/networkInterfaceIPConfiguration/id");
        if !configuration.is_empty() {
            if !by_interface.iter().any(|m| same(&m.configuration, configuration)) {
                let why = format!("{configuration} joins a pool by its interface only.");
                return fail(400, "InvalidResourceReference", why);
            }
            continue;
        }
        check_address(cloud, path, network_of_entry(entry), entry, &mut network)?;
    }
    Ok(Vec::new())
}

fn network_of_entry(entry: &Value) -> String {
    let network = text(entry, "/properties/virtualNetwork/id");
    let subnet = text(entry, "/properties/subnet/id");
    if network.is_empty() { parent(subnet).to_owned() } else { network.to_owned() }
}

/// Validates a member by address, which must be in the pool's network.
fn check_address(
    cloud: &AzureState,
    path: &Path,
    network: String,
    entry: &Value,
    of_pool: &mut Option<String>,
) -> ServiceResult<()> {
    let address = text(entry, "/properties/ipAddress");
    let Ok(parsed) = address.parse() else {
        return invalid(format!("IP address '{address}' is invalid."));
    };
    let Some(found) = cloud.find(&network) else {
        return missing(&network, &path.id());
    };
    let action = "virtualNetworks/joinLoadBalancer/action";
    check_join(cloud, path, action, &network)?;
    if of_pool.get_or_insert_with(|| network.clone()) != &network {
        let why = format!("Pool '{}' has addresses of two virtual networks.", path.name());
        return fail(400, "BackendAddressesMustBeInSameVirtualNetwork", why);
    }
    if network::contains(&found.body, parsed) {
        return Ok(());
    }
    let why = format!("IP address {address} does not belong to virtual network {network}.");
    fail(400, "PrivateIPAddressNotInVirtualNetwork", why)
}

/// Returns the error for a pool with members by interface and by address.
pub fn fail_mixed<T>(pool: &str) -> ServiceResult<T> {
    let why = format!("Pool '{pool}' can't have members by interface and by address at once.");
    fail(400, "BackendAddressPoolCannotMixNicAndIp", why)
}

/// Fails if the pool has a member by interface.
pub fn check_unused(cloud: &AzureState, pool: &str) -> ServiceResult<()> {
    let Some(member) = members(cloud, pool).into_iter().next() else { return Ok(()) };
    let why = format!("{pool} is in use by {} and can't be deleted.", member.configuration);
    fail(400, "InUseBackendAddressPoolCannotBeDeleted", why)
}

/// Fails if a pool, or a load balancer with its pools, is in use and cannot be deleted.
pub fn check_removable(cloud: &AzureState, path: &Path) -> ServiceResult<()> {
    let Some(balancer) = cloud.find(&path.top().id()) else { return Ok(()) };
    let pools = list(&balancer.body, "/properties/backendAddressPools").iter();
    let ids =
        pools.map(|pool| format!("{}/backendAddressPools/{}", balancer.id, text(pool, "/name")));
    let is_balancer = path.steps.len() == 2;
    for id in ids.filter(|id| is_balancer || same(id, &path.id())) {
        check_unused(cloud, &id)?;
        if !is_balancer && !rules_of(&balancer.body, &id).is_empty() {
            let why = format!("{id} is in use by a load balancing rule and can't be deleted.");
            return fail(400, "InUseBackendAddressPoolCannotBeDeleted", why);
        }
    }
    Ok(())
}
