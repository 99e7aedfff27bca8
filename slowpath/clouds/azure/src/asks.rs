//! The lifecycle's requests to Resource Manager.

use crate::arm::Ask;
use crate::id::ResourceId;
use crate::names::{self, Known};

/// All operations of the lifecycle, which the machine's role has to permit.
pub const ALL: &[Known] = &[
    names::MACHINES_GET,
    names::SCALE_SET_MACHINES_GET,
    names::SCALE_SET_INTERFACES_GET,
    names::INTERFACES_GET,
    names::INTERFACES_PUT,
    names::LOAD_BALANCERS_LIST,
    names::LOAD_BALANCERS_GET,
    names::POOLS_GET,
    names::POOLS_PUT,
];

/// Operations that `weir cloud doctor` uses in addition.
pub const DOCTOR: &[Known] =
    &[names::PERMISSIONS_LIST, names::SUBNETS_GET, names::SECURITY_GROUPS_GET];

/// Returns the request that lists the load balancers of a resource group.
pub fn balancers(subscription: &str, group: &str) -> Ask {
    names::LOAD_BALANCERS_LIST.at(names::in_group(subscription, group, "loadBalancers"))
}

/// Returns the request that reads a load balancer.
pub fn balancer(id: &ResourceId) -> Ask {
    names::LOAD_BALANCERS_GET.at(id)
}

/// Returns the request that reads a machine or a scale set instance.
pub fn machine(id: &ResourceId) -> Ask {
    match id.named("virtualMachineScaleSets") {
        Some(_) => names::SCALE_SET_MACHINES_GET.at(id),
        None => names::MACHINES_GET.at(id),
    }
}

/// Returns the request that reads a network interface, also of a scale set instance.
pub fn interface(id: &ResourceId) -> Ask {
    match id.named("virtualMachineScaleSets") {
        Some(_) => names::SCALE_SET_INTERFACES_GET.at(id),
        None => names::INTERFACES_GET.at(id),
    }
}

/// Returns the request that writes a network interface.
pub fn put_interface(id: &ResourceId) -> Ask {
    names::INTERFACES_PUT.at(id)
}

/// Returns the request that reads a pool.
pub fn pool(id: &ResourceId) -> Ask {
    names::POOLS_GET.at(id)
}

/// Returns the request that writes a pool.
pub fn put_pool(id: &ResourceId) -> Ask {
    names::POOLS_PUT.at(id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_role_allows_exactly_what_is_used() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../config/azure/role.json");
        let role: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let actions = role["Actions"].as_array().unwrap();
        let allowed: BTreeSet<&str> = actions.iter().map(|a| a.as_str().unwrap()).collect();
        assert_eq!(allowed.len(), actions.len(), "an action stands twice");
        assert_eq!(allowed, names::permissions(&[ALL, DOCTOR].concat()));
    }
}
