//! The lifecycle's questions to Resource Manager, each about its resource.

use crate::arm::Ask;
use crate::id::ResourceId;
use crate::names::{self, Known};

/// All that the lifecycle asks of it: what the machine's role has to allow.
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

/// The load balancers of a resource group.
pub fn balancers(subscription: &str, group: &str) -> Ask {
    names::LOAD_BALANCERS_LIST.at(names::in_group(subscription, group, "loadBalancers"))
}

/// A load balancer.
pub fn balancer(id: &ResourceId) -> Ask {
    names::LOAD_BALANCERS_GET.at(id)
}

/// A machine, a scale set's instance too.
pub fn machine(id: &ResourceId) -> Ask {
    match id.named("virtualMachineScaleSets") {
        Some(_) => names::SCALE_SET_MACHINES_GET.at(id),
        None => names::MACHINES_GET.at(id),
    }
}

/// A network interface, of a scale set's instance too.
pub fn interface(id: &ResourceId) -> Ask {
    match id.named("virtualMachineScaleSets") {
        Some(_) => names::SCALE_SET_INTERFACES_GET.at(id),
        None => names::INTERFACES_GET.at(id),
    }
}

/// A network interface as it is to be.
pub fn put_interface(id: &ResourceId) -> Ask {
    names::INTERFACES_PUT.at(id)
}

/// A pool.
pub fn pool(id: &ResourceId) -> Ask {
    names::POOLS_GET.at(id)
}

/// A pool as it is to be.
pub fn put_pool(id: &ResourceId) -> Ask {
    names::POOLS_PUT.at(id)
}
