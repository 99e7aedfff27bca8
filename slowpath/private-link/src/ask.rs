//! What is asked of Azure, by type of resource: operations, permissions and versions.

use azure::arm::Ask;
use azure::id::ResourceId;
use clouds::failure::Operation;

/// What can be asked about resources of a type.
pub(crate) struct Type {
    get: Operation,
    put: Operation,
    delete: Operation,
    list: Operation,
    version: &'static str,
}

/// A type by its permissions' name and its operations' name.
macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $permission:literal, $operation:literal, $version:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: Type = Type {
            get: Operation::new(concat!($permission, "/read"), concat!($operation, "_Get")),
            put: Operation::new(
                concat!($permission, "/write"),
                concat!($operation, "_CreateOrUpdate"),
            ),
            delete: Operation::new(concat!($permission, "/delete"), concat!($operation, "_Delete")),
            list: Operation::new(concat!($permission, "/read"), concat!($operation, "_List")),
            version: $version,
        };)*
    };
}

types! {
    /// Load balancers.
    BALANCERS = "Microsoft.Network/loadBalancers", "LoadBalancers", "2024-05-01";
    /// Private link services.
    SERVICES = "Microsoft.Network/privateLinkServices", "PrivateLinkServices", "2024-05-01";
    /// Virtual networks.
    NETWORKS = "Microsoft.Network/virtualNetworks", "VirtualNetworks", "2024-05-01";
    /// Their subnets.
    SUBNETS = "Microsoft.Network/virtualNetworks/subnets", "Subnets", "2024-05-01";
    /// Private endpoints.
    ENDPOINTS = "Microsoft.Network/privateEndpoints", "PrivateEndpoints", "2024-05-01";
    /// Network interfaces.
    INTERFACES = "Microsoft.Network/networkInterfaces", "NetworkInterfaces", "2024-05-01";
    /// Private DNS zones.
    ZONES = "Microsoft.Network/privateDnsZones", "PrivateZones", "2020-06-01";
    /// Their links to networks.
    LINKS = "Microsoft.Network/privateDnsZones/virtualNetworkLinks", "VirtualNetworkLinks",
        "2020-06-01";
    /// Their A records.
    A_RECORDS = "Microsoft.Network/privateDnsZones/A", "RecordSets", "2020-06-01";
    /// Their AAAA records.
    AAAA_RECORDS = "Microsoft.Network/privateDnsZones/AAAA", "RecordSets", "2020-06-01";
    /// Their TXT records.
    TXT_RECORDS = "Microsoft.Network/privateDnsZones/TXT", "RecordSets", "2020-06-01";
    /// All of their records.
    ALL_RECORDS = "Microsoft.Network/privateDnsZones/ALL", "RecordSets", "2020-06-01";
}

/// Connections of a service have operations of their own names.
pub(crate) const CONNECTIONS: Type = Type {
    get: Operation::new(
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/read",
        "PrivateLinkServices_GetPrivateEndpointConnection",
    ),
    put: Operation::new(
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
        "PrivateLinkServices_UpdatePrivateEndpointConnection",
    ),
    delete: Operation::new(
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
        "PrivateLinkServices_DeletePrivateEndpointConnection",
    ),
    list: Operation::new(
        "Microsoft.Network/privateLinkServices/privateEndpointConnections/read",
        "PrivateLinkServices_ListPrivateEndpointConnections",
    ),
    version: "2024-05-01",
};

impl Type {
    /// For one of them.
    pub(crate) fn get(&self, id: &ResourceId) -> Ask {
        self.ask(self.get, id.to_string())
    }

    /// To make or replace it.
    pub(crate) fn put(&self, id: &ResourceId) -> Ask {
        self.ask(self.put, id.to_string())
    }

    /// To delete it.
    pub(crate) fn delete(&self, id: &ResourceId) -> Ask {
        self.ask(self.delete, id.to_string())
    }

    /// For all that belong to a resource: `kind` is `subnets`.
    pub(crate) fn list_of(&self, parent: &ResourceId, kind: &str) -> Ask {
        self.ask(self.list, format!("{parent}/{kind}"))
    }

    /// For all of a resource group: `kind` is `loadBalancers`.
    pub(crate) fn list_in(&self, subscription: &str, group: &str, kind: &str) -> Ask {
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{kind}"
        );
        self.ask(self.list, path)
    }

    fn ask(&self, operation: Operation, path: String) -> Ask {
        Ask { operation, path, version: self.version }
    }
}
