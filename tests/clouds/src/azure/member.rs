//! Members of backend pools, by interface or by address.

use serde_json::Value;

use crate::azure::answer::{list, text};
use crate::azure::path::{above, name, parent, same};
use crate::azure::state::AzureState;

/// A member that joined a pool by its interface.
pub struct Member {
    /// Id of the IP configuration.
    pub configuration: String,
    /// Address.
    pub address: String,
}

/// Returns the members that joined a pool by their interfaces.
pub fn members(cloud: &AzureState, pool: &str) -> Vec<Member> {
    let mut found = Vec::new();
    for nic in cloud.resources.iter().filter(|r| is_interface(&r.id)) {
        for part in list(&nic.body, "/properties/ipConfigurations") {
            let pools = list(part, "/properties/loadBalancerBackendAddressPools");
            if pools.iter().any(|to| same(text(to, "/id"), pool)) {
                let configuration = format!("{}/ipConfigurations/{}", nic.id, text(part, "/name"));
                let address = text(part, "/properties/privateIPAddress");
                let address = address.split('/').next().unwrap_or_default().to_owned();
                found.push(Member { configuration, address });
            }
        }
    }
    found
}

/// Returns true for the id of a network interface.
pub fn is_interface(id: &str) -> bool {
    name(parent_list(id)).eq_ignore_ascii_case("networkInterfaces")
}

fn parent_list(id: &str) -> &str {
    above(id)
}

/// Returns the entries of a pool that are members by address.
pub fn addresses(pool: &Value) -> impl Iterator<Item = &Value> {
    let entries = list(pool, "/properties/loadBalancerBackendAddresses");
    entries.iter().filter(|entry| entry.pointer("/properties/ipAddress").is_some())
}

/// Returns the `adminState` of the member of this name.
pub fn admin<'a>(pool: &'a Value, name: &str) -> Option<&'a Value> {
    let entries = list(pool, "/properties/loadBalancerBackendAddresses").iter();
    entries.filter(|e| text(e, "/name") == name).find_map(|e| e.pointer("/properties/adminState"))
}

/// Returns the name of the pool entry that Azure creates for an IP configuration, built from
/// resource group, interface and configuration: `north_weir-0-dataipconfig1`.
pub fn entry_name(configuration: &str) -> String {
    let group = configuration.split('/').nth(4).unwrap_or_default();
    format!("{group}_{}{}", name(parent(configuration)), name(configuration))
}
