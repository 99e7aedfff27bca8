//! The lifecycle's requests to Azure Resource Manager.

use crate::arm::ArmRequest;
use crate::id::ResourceId;
use crate::operations::{self, ArmOperation};

/// All operations of the lifecycle; the machine's role has to permit them.
pub const ALL: &[ArmOperation] = &[
    operations::MACHINES_GET,
    operations::SCALE_SET_MACHINES_GET,
    operations::SCALE_SET_INTERFACES_GET,
    operations::INTERFACES_GET,
    operations::INTERFACES_PUT,
    operations::LOAD_BALANCERS_LIST,
    operations::LOAD_BALANCERS_GET,
    operations::POOLS_GET,
    operations::POOLS_PUT,
];

/// Operations that `weir cloud doctor` uses in addition.
pub const DOCTOR: &[ArmOperation] =
    &[operations::PERMISSIONS_LIST, operations::SUBNETS_GET, operations::SECURITY_GROUPS_GET];

/// Returns the request that lists the load balancers of a resource group.
pub fn balancers(subscription: &str, group: &str) -> ArmRequest {
    operations::LOAD_BALANCERS_LIST.at(operations::in_group(subscription, group, "loadBalancers"))
}

/// Returns the request that reads a load balancer.
pub fn balancer(id: &ResourceId) -> ArmRequest {
    operations::LOAD_BALANCERS_GET.at(id)
}

/// Returns the request that reads a machine or a scale set instance.
pub fn machine(id: &ResourceId) -> ArmRequest {
    match id.named("virtualMachineScaleSets") {
        Some(_) => operations::SCALE_SET_MACHINES_GET.at(id),
        None => operations::MACHINES_GET.at(id),
    }
}

/// Returns the request that reads a network interface, also of a scale set instance.
pub fn interface(id: &ResourceId) -> ArmRequest {
    match id.named("virtualMachineScaleSets") {
        Some(_) => operations::SCALE_SET_INTERFACES_GET.at(id),
        None => operations::INTERFACES_GET.at(id),
    }
}

/// Returns the request that writes a network interface.
pub fn put_interface(id: &ResourceId) -> ArmRequest {
    operations::INTERFACES_PUT.at(id)
}

/// Returns the request that reads a pool.
pub fn pool(id: &ResourceId) -> ArmRequest {
    operations::POOLS_GET.at(id)
}

/// Returns the request that writes a pool.
pub fn put_pool(id: &ResourceId) -> ArmRequest {
    operations::POOLS_PUT.at(id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn role_lists_exactly_the_permissions_of_lifecycle_and_doctor() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../config/azure/role.json");
        let role: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let actions = role["Actions"].as_array().unwrap();
        let allowed: BTreeSet<&str> = actions.iter().map(|a| a.as_str().unwrap()).collect();
        assert_eq!(allowed.len(), actions.len(), "an action is listed twice");
        assert_eq!(allowed, operations::permissions(&[ALL, DOCTOR].concat()));
    }
}
