//! The Resource Manager operations that Weir uses: each with its permission, its name in Azure's
//! specification, and its API version.

use std::collections::BTreeSet;

use clouds::failure::Operation;

use crate::arm::ArmRequest;

/// An operation with its requirements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArmOperation {
    /// Permission and name of the operation.
    pub operation: Operation,
    /// Value of the `api-version` parameter.
    pub version: &'static str,
    /// Further permissions, such as `.../join/action`, on resources to which the request's body
    /// refers.
    pub joins: &'static [&'static str],
}

impl ArmOperation {
    const fn new(
        permission: &'static str,
        name: &'static str,
        version: &'static str,
    ) -> ArmOperation {
        ArmOperation { operation: Operation::new(permission, name), version, joins: &[] }
    }

    const fn joining(self, joins: &'static [&'static str]) -> ArmOperation {
        ArmOperation { joins, ..self }
    }

    /// Returns the request for a path; a [`ResourceId`](crate::id::ResourceId) is the path of its
    /// resource.
    pub fn at(self, path: impl ToString) -> ArmRequest {
        ArmRequest { operation: self.operation, path: path.to_string(), version: self.version }
    }
}

/// Returns the path of the list of all resources of a `Microsoft.Network` type in a resource group.
pub fn in_group(subscription: &str, group: &str, kind: &str) -> String {
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{kind}"
    )
}

/// API version of `Microsoft.Network`, which defines the format of the bodies written.
pub const NETWORK: &str = "2024-05-01";
/// API version of `Microsoft.Compute`.
pub const COMPUTE: &str = "2024-03-01";
/// API version of scale set instances' interfaces; Azure supports no other.
pub const SCALE_SET_INTERFACES: &str = "2018-10-01";
/// API version of `Microsoft.Network/privateDnsZones`.
pub const PRIVATE_DNS: &str = "2020-06-01";
/// API version of `Microsoft.Authorization/permissions`.
pub const AUTHORIZATION: &str = "2022-04-01";

/// Defines the operations as constants: `name = permission, operation, version, [joins];`.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $permission:literal, $operation:literal, $version:ident,
       [$($join:literal),*];)*) => {
        $($(#[$doc])* pub const $name: ArmOperation =
            ArmOperation::new($permission, $operation, $version).joining(&[$($join),*]);)*
        /// All operations.
        pub const ALL: &[ArmOperation] = &[$($name),*];
    };
}

operations! {
    /// Lists the load balancers of a resource group.
    LOAD_BALANCERS_LIST = "Microsoft.Network/loadBalancers/read",
        "LoadBalancers_List", NETWORK, [];
    /// Reads a load balancer.
    LOAD_BALANCERS_GET = "Microsoft.Network/loadBalancers/read",
        "LoadBalancers_Get", NETWORK, [];
    /// Reads a pool of a load balancer.
    POOLS_GET = "Microsoft.Network/loadBalancers/backendAddressPools/read",
        "LoadBalancerBackendAddressPools_Get", NETWORK, [];
    /// Writes a pool as a whole.
    POOLS_PUT = "Microsoft.Network/loadBalancers/backendAddressPools/write",
        "LoadBalancerBackendAddressPools_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/backendAddressPools/join/action",
         "Microsoft.Network/virtualNetworks/joinLoadBalancer/action"];
    /// Reads a network interface.
    INTERFACES_GET = "Microsoft.Network/networkInterfaces/read",
        "NetworkInterfaces_Get", NETWORK, [];
    /// Writes a network interface as a whole.
    INTERFACES_PUT = "Microsoft.Network/networkInterfaces/write",
        "NetworkInterfaces_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/backendAddressPools/join/action",
         "Microsoft.Network/virtualNetworks/subnets/join/action",
         "Microsoft.Network/networkSecurityGroups/join/action",
         "Microsoft.Network/publicIPAddresses/join/action"];
    /// Reads a virtual machine.
    MACHINES_GET = "Microsoft.Compute/virtualMachines/read",
        "VirtualMachines_Get", COMPUTE, [];
    /// Reads an instance of a scale set.
    SCALE_SET_MACHINES_GET = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "VirtualMachineScaleSetVMs_Get", COMPUTE, [];
    /// Reads a network interface of a scale set instance.
    SCALE_SET_INTERFACES_GET =
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
        "NetworkInterfaces_GetVirtualMachineScaleSetNetworkInterface", SCALE_SET_INTERFACES, [];
    /// Reads a network security group, for `weir cloud doctor`.
    SECURITY_GROUPS_GET = "Microsoft.Network/networkSecurityGroups/read",
        "NetworkSecurityGroups_Get", NETWORK, [];
    /// Lists the permissions of the machine's identity at a resource group, for `weir cloud
    /// doctor`.
    PERMISSIONS_LIST = "Microsoft.Authorization/permissions/read",
        "Permissions_ListForResourceGroup", AUTHORIZATION, [];
    /// Reads a virtual network.
    NETWORKS_GET = "Microsoft.Network/virtualNetworks/read",
        "VirtualNetworks_Get", NETWORK, [];
    /// Writes a virtual network.
    NETWORKS_PUT = "Microsoft.Network/virtualNetworks/write",
        "VirtualNetworks_CreateOrUpdate", NETWORK, [];
    /// Reads a subnet.
    SUBNETS_GET = "Microsoft.Network/virtualNetworks/subnets/read",
        "Subnets_Get", NETWORK, [];
    /// Lists the subnets of a virtual network.
    SUBNETS_LIST = "Microsoft.Network/virtualNetworks/subnets/read",
        "Subnets_List", NETWORK, [];
    /// Writes a subnet.
    SUBNETS_PUT = "Microsoft.Network/virtualNetworks/subnets/write",
        "Subnets_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/networkSecurityGroups/join/action",
         "Microsoft.Network/routeTables/join/action"];
    /// Deletes a subnet.
    SUBNETS_DELETE = "Microsoft.Network/virtualNetworks/subnets/delete",
        "Subnets_Delete", NETWORK, [];
    /// Reads a private link service.
    LINK_SERVICES_GET = "Microsoft.Network/privateLinkServices/read",
        "PrivateLinkServices_Get", NETWORK, [];
    /// Writes a private link service.
    LINK_SERVICES_PUT = "Microsoft.Network/privateLinkServices/write",
        "PrivateLinkServices_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/loadBalancers/frontendIPConfigurations/join/action",
         "Microsoft.Network/virtualNetworks/subnets/join/action"];
    /// Deletes a private link service.
    LINK_SERVICES_DELETE = "Microsoft.Network/privateLinkServices/delete",
        "PrivateLinkServices_Delete", NETWORK, [];
    /// Lists the endpoint connections of a private link service, including pending ones.
    LINK_CONNECTIONS_LIST =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/read",
        "PrivateLinkServices_ListPrivateEndpointConnections", NETWORK, [];
    /// Approves or rejects an endpoint connection.
    LINK_CONNECTIONS_PUT =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
        "PrivateLinkServices_UpdatePrivateEndpointConnection", NETWORK, [];
    /// Deletes an endpoint connection.
    LINK_CONNECTIONS_DELETE =
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
        "PrivateLinkServices_DeletePrivateEndpointConnection", NETWORK, [];
    /// Reads a private endpoint.
    ENDPOINTS_GET = "Microsoft.Network/privateEndpoints/read",
        "PrivateEndpoints_Get", NETWORK, [];
    /// Writes a private endpoint.
    ENDPOINTS_PUT = "Microsoft.Network/privateEndpoints/write",
        "PrivateEndpoints_CreateOrUpdate", NETWORK,
        ["Microsoft.Network/virtualNetworks/subnets/join/action"];
    /// Deletes a private endpoint.
    ENDPOINTS_DELETE = "Microsoft.Network/privateEndpoints/delete",
        "PrivateEndpoints_Delete", NETWORK, [];
    /// Reads a private DNS zone.
    ZONES_GET = "Microsoft.Network/privateDnsZones/read",
        "PrivateZones_Get", PRIVATE_DNS, [];
    /// Writes a private DNS zone.
    ZONES_PUT = "Microsoft.Network/privateDnsZones/write",
        "PrivateZones_CreateOrUpdate", PRIVATE_DNS, [];
    /// Deletes a private DNS zone.
    ZONES_DELETE = "Microsoft.Network/privateDnsZones/delete",
        "PrivateZones_Delete", PRIVATE_DNS, [];
    /// Lists all record sets of a private DNS zone.
    RECORDS_LIST = "Microsoft.Network/privateDnsZones/ALL/read",
        "RecordSets_List", PRIVATE_DNS, [];
    /// Reads an A record set.
    RECORDS_GET = "Microsoft.Network/privateDnsZones/A/read",
        "RecordSets_Get", PRIVATE_DNS, [];
    /// Writes an A record set.
    RECORDS_PUT = "Microsoft.Network/privateDnsZones/A/write",
        "RecordSets_CreateOrUpdate", PRIVATE_DNS, [];
    /// Deletes an A record set.
    RECORDS_DELETE = "Microsoft.Network/privateDnsZones/A/delete",
        "RecordSets_Delete", PRIVATE_DNS, [];
    /// Reads a TXT record set.
    TEXTS_GET = "Microsoft.Network/privateDnsZones/TXT/read",
        "RecordSets_Get", PRIVATE_DNS, [];
    /// Writes a TXT record set.
    TEXTS_PUT = "Microsoft.Network/privateDnsZones/TXT/write",
        "RecordSets_CreateOrUpdate", PRIVATE_DNS, [];
    /// Lists the virtual network links of a private DNS zone.
    ZONE_LINKS_LIST = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/read",
        "VirtualNetworkLinks_List", PRIVATE_DNS, [];
    /// Reads a virtual network link of a private DNS zone.
    ZONE_LINKS_GET = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/read",
        "VirtualNetworkLinks_Get", PRIVATE_DNS, [];
    /// Writes a virtual network link.
    ZONE_LINKS_PUT = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/write",
        "VirtualNetworkLinks_CreateOrUpdate", PRIVATE_DNS,
        ["Microsoft.Network/virtualNetworks/join/action"];
    /// Deletes a virtual network link.
    ZONE_LINKS_DELETE = "Microsoft.Network/privateDnsZones/virtualNetworkLinks/delete",
        "VirtualNetworkLinks_Delete", PRIVATE_DNS, [];
}

/// Permissions for polling long-running operations, by `Azure-AsyncOperation` and by `Location`.
pub const POLLS: [&str; 2] = [
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/locations/operationResults/read",
];

/// Returns the permissions that a role needs for these operations, including polling.
pub fn permissions(operations: &[ArmOperation]) -> BTreeSet<&'static str> {
    let own = operations.iter().map(|known| known.operation.service);
    own.chain(operations.iter().flat_map(|known| known.joins).copied()).chain(POLLS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_unique_and_its_permission_matches_its_name() {
        // Records of several types share one operation, each with its own permission.
        let own = |known: &ArmOperation| (known.operation.service, known.operation.name);
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
    fn role_includes_permissions_of_referenced_resources() {
        let role = permissions(&[POOLS_GET, INTERFACES_PUT]);
        assert!(role.contains("Microsoft.Network/networkInterfaces/write"));
        assert!(role.contains("Microsoft.Network/virtualNetworks/subnets/join/action"));
        assert!(!role.contains("Microsoft.Network/privateEndpoints/write"));
    }
}
