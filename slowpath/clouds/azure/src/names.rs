//! All that is asked of Resource Manager: each operation by the permission that it needs, its name
//! in Azure's specification, and the version of the interface that its form is of.

use std::collections::BTreeSet;

use clouds::failure::Operation;

use crate::arm::Ask;

/// An operation, and what else it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its permission and name.
    pub operation: Operation,
    /// `api-version`.
    pub version: &'static str,
    /// Permissions on what a body refers to, beside its own.
    pub joins: &'static [&'static str],
}

impl Known {
    const fn new(permission: &'static str, name: &'static str, version: &'static str) -> Known {
        Known { operation: Operation::new(permission, name), version, joins: &[] }
    }

    const fn joining(self, joins: &'static [&'static str]) -> Known {
        Known { joins, ..self }
    }

    /// Asked about a path, which a [`ResourceId`](crate::id::ResourceId) is.
    pub fn at(self, path: impl ToString) -> Ask {
        Ask { operation: self.operation, path: path.to_string(), version: self.version }
    }
}

/// All resources of a kind of `Microsoft.Network` in a resource group.
pub fn in_group(subscription: &str, group: &str, kind: &str) -> String {
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{kind}"
    )
}

/// `api-version` of `Microsoft.Network`, of which the bodies are that we write.
pub const NETWORK: &str = "2024-05-01";
/// Of `Microsoft.Compute`.
pub const COMPUTE: &str = "2024-03-01";
/// Of the interfaces of a scale set's instances, which Azure serves under this one alone.
pub const SCALE_SET_INTERFACES: &str = "2018-10-01";
/// Of `Microsoft.Network/privateDnsZones`.
pub const PRIVATE_DNS: &str = "2020-06-01";
/// Of `Microsoft.Authorization/permissions`.
pub const AUTHORIZATION: &str = "2022-04-01";

/// Names that are consts, and lists of them: `name = permission, operation, version, [joins];`.
macro_rules! known {
    ($($(#[$doc:meta])* $name:ident = $permission:literal, $operation:literal, $version:ident,
       [$($join:literal),*];)*) => {
        $($(#[$doc])* pub const $name: Known =
            Known::new($permission, $operation, $version).joining(&[$($join),*]);)*
        /// All of them.
        pub const ALL: &[Known] = &[$($name),*];
    };
}

known! {
    /// The load balancers of a resource group.
    LOAD_BALANCERS_LIST = "Microsoft.Network/loadBalancers/read",
        "LoadBalancers_List", NETWORK, [];
    /// One load balancer.
    LOAD_BALANCERS_GET = "Microsoft.Network/loadBalancers/read",
        "LoadBalancers_Get", NETWORK, [];
    /// One pool of a load balancer.
    POOLS_GET = "Microsoft.Network/loadBalancers/backendAddressPools/read",
        "LoadBalancerBackendAddressPools_Get", NETWORK, [];
    /// A pool as it is to be, with all that it has.
    POOLS_PUT = "Microsoft.Network/loadBalancers/backendAddressPools/write",
        "LoadBalancerBackendAddressPools_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/backendAddressPools/join/action",
         "Microsoft.Network/virtualNetworks/joinLoadBalancer/action"];
    /// One network interface.
    INTERFACES_GET = "Microsoft.Network/networkInterfaces/read",
        "NetworkInterfaces_Get", NETWORK, [];
    /// A network interface as it is to be, with all that it has.
    INTERFACES_PUT = "Microsoft.Network/networkInterfaces/write",
        "NetworkInterfaces_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/backendAddressPools/join/action",
         "Microsoft.Network/virtualNetworks/subnets/join/action",
         "Microsoft.Network/networkSecurityGroups/join/action",
         "Microsoft.Network/publicIPAddresses/join/action"];
    /// A machine.
    MACHINES_GET = "Microsoft.Compute/virtualMachines/read",
        "VirtualMachines_Get", COMPUTE, [];
    /// An instance of a scale set.
    SCALE_SET_MACHINES_GET = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "VirtualMachineScaleSetVMs_Get", COMPUTE, [];
    /// A network interface of a scale set's instance.
    SCALE_SET_INTERFACES_GET =
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
        "NetworkInterfaces_GetVirtualMachineScaleSetNetworkInterface", SCALE_SET_INTERFACES, [];
    /// A security group, for the doctor.
    SECURITY_GROUPS_GET = "Microsoft.Network/networkSecurityGroups/read",
        "NetworkSecurityGroups_Get", NETWORK, [];
    /// What the machine's identity may do, for the doctor.
    PERMISSIONS_LIST = "Microsoft.Authorization/permissions/read",
        "Permissions_ListForResourceGroup", AUTHORIZATION, [];
    /// A virtual network.
    NETWORKS_GET = "Microsoft.Network/virtualNetworks/read",
        "VirtualNetworks_Get", NETWORK, [];
    /// A virtual network as it is to be.
    NETWORKS_PUT = "Microsoft.Network/virtualNetworks/write",
        "VirtualNetworks_CreateOrUpdate", NETWORK, [];
    /// A subnet.
    SUBNETS_GET = "Microsoft.Network/virtualNetworks/subnets/read",
        "Subnets_Get", NETWORK, [];
    /// The subnets of a network.
    SUBNETS_LIST = "Microsoft.Network/virtualNetworks/subnets/read",
        "Subnets_List", NETWORK, [];
    /// A subnet as it is to be.
    SUBNETS_PUT = "Microsoft.Network/virtualNetworks/subnets/write",
        "Subnets_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/networkSecurityGroups/join/action",
         "Microsoft.Network/routeTables/join/action"];
    /// A subnet that is to go.
    SUBNETS_DELETE = "Microsoft.Network/virtualNetworks/subnets/delete",
        "Subnets_Delete", NETWORK, [];
    /// A private link service.
    LINK_SERVICES_GET = "Microsoft.Network/privateLinkServices/read",
        "PrivateLinkServices_Get", NETWORK, [];
    /// A private link service as it is to be.
    LINK_SERVICES_PUT = "Microsoft.Network/privateLinkServices/write",
        "PrivateLinkServices_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/frontendIPConfigurations/join/action",
         "Microsoft.Network/virtualNetworks/subnets/join/action"];
    /// A private link service that is to go.
    LINK_SERVICES_DELETE = "Microsoft.Network/privateLinkServices/delete",
        "PrivateLinkServices_Delete", NETWORK, [];
    /// Who is connected to a private link service, or wants to be.
    LINK_CONNECTIONS_LIST =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/read",
        "PrivateLinkServices_ListPrivateEndpointConnections", NETWORK, [];
    /// A connection that is approved or refused.
    LINK_CONNECTIONS_PUT =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
        "PrivateLinkServices_UpdatePrivateEndpointConnection", NETWORK, [];
    /// A connection that is to go.
    LINK_CONNECTIONS_DELETE =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
        "PrivateLinkServices_DeletePrivateEndpointConnection", NETWORK, [];
    /// A private endpoint.
    ENDPOINTS_GET = "Microsoft.Network/privateEndpoints/read",
        "PrivateEndpoints_Get", NETWORK, [];
    /// A private endpoint as it is to be.
    ENDPOINTS_PUT = "Microsoft.Network/privateEndpoints/write",
        "PrivateEndpoints_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/virtualNetworks/subnets/join/action"];
    /// A private endpoint that is to go.
    ENDPOINTS_DELETE = "Microsoft.Network/privateEndpoints/delete",
        "PrivateEndpoints_Delete", NETWORK, [];
    /// A private DNS zone.
    ZONES_GET = "Microsoft.Network/privateDnsZones/read",
        "PrivateZones_Get", PRIVATE_DNS, [];
    /// A private DNS zone as it is to be.
    ZONES_PUT = "Microsoft.Network/privateDnsZones/write",
        "PrivateZones_CreateOrUpdate", PRIVATE_DNS, [];
    /// A private DNS zone that is to go.
    ZONES_DELETE = "Microsoft.Network/privateDnsZones/delete",
        "PrivateZones_Delete", PRIVATE_DNS, [];
    /// All names of a private DNS zone.
    RECORDS_LIST = "Microsoft.Network/privateDnsZones/ALL/read",
        "RecordSets_List", PRIVATE_DNS, [];
    /// Addresses of a name in a private DNS zone.
    RECORDS_GET = "Microsoft.Network/privateDnsZones/A/read",
        "RecordSets_Get", PRIVATE_DNS, [];
    /// The same as they are to be.
    RECORDS_PUT = "Microsoft.Network/privateDnsZones/A/write",
        "RecordSets_CreateOrUpdate", PRIVATE_DNS, [];
    /// A name that is to go.
    RECORDS_DELETE = "Microsoft.Network/privateDnsZones/A/delete",
        "RecordSets_Delete", PRIVATE_DNS, [];
    /// Texts of a name in a private DNS zone.
    TEXTS_GET = "Microsoft.Network/privateDnsZones/TXT/read",
        "RecordSets_Get", PRIVATE_DNS, [];
    /// The same as they are to be.
    TEXTS_PUT = "Microsoft.Network/privateDnsZones/TXT/write",
        "RecordSets_CreateOrUpdate", PRIVATE_DNS, [];
    /// The links of a private DNS zone.
    ZONE_LINKS_LIST = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/read",
        "VirtualNetworkLinks_List", PRIVATE_DNS, [];
    /// For which virtual network a private DNS zone speaks.
    ZONE_LINKS_GET = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/read",
        "VirtualNetworkLinks_Get", PRIVATE_DNS, [];
    /// The same as it is to be.
    ZONE_LINKS_PUT = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/write",
        "VirtualNetworkLinks_CreateOrUpdate", PRIVATE_DNS,
        ["Microsoft.Network/virtualNetworks/join/action"];
    /// A link that is to go.
    ZONE_LINKS_DELETE = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/delete",
        "VirtualNetworkLinks_Delete", PRIVATE_DNS, [];
}

/// What polls of long operations need, by either header.
pub const POLLS: [&str; 2] = [
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/locations/operationResults/read",
];

/// What a role needs for some operations, polls of what they begin included, sorted.
pub fn permissions(of: &[Known]) -> BTreeSet<&'static str> {
    let own = of.iter().map(|known| known.operation.service);
    own.chain(of.iter().flat_map(|known| known.joins).copied()).chain(POLLS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stands_once_and_its_permission_fits_its_name() {
        // Records of several types are asked for by one operation, each by its own permission.
        let own = |known: &Known| (known.operation.service, known.operation.name);
        let operations: BTreeSet<_> = ALL.iter().map(own).collect();
        assert_eq!(operations.len(), ALL.len());
        for known in ALL {
            let (permission, name) = (known.operation.service, known.operation.name);
            let (_, verb) = permission.rsplit_once('/').unwrap();
            let (_, what) = name.split_once('_').unwrap();
            let right = match verb {
                "read" => what.starts_with("Get") || what.starts_with("List"),
                "write" => what == "CreateOrUpdate" || what.starts_with("Update"),
                "delete" => what.starts_with("Delete"),
                "action" => what.starts_with("Check"),
                _ => false,
            };
            assert!(right, "{name} needs {permission}");
            assert!(known.joins.iter().all(|join| join.ends_with("/action")), "{known:?}");
        }
    }

    #[test]
    fn a_role_has_what_operations_need_and_what_their_bodies_refer_to() {
        let role = permissions(&[POOLS_GET, INTERFACES_PUT]);
        assert!(role.contains("Microsoft.Network/networkInterfaces/write"));
        assert!(role.contains("Microsoft.Network/virtualNetworks/subnets/join/action"));
        assert!(!role.contains("Microsoft.Network/privateEndpoints/write"));
    }
}
