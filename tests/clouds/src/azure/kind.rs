//! Supported resource types, where each is stored, and how it may be written.

use crate::azure::path::Path;

/// Where a resource is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// As a resource of its own.
    Own,
    /// In a list of this name in its parent's properties.
    Inside(&'static str),
}

/// How a write completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// The type does not support this write.
    Never,
    /// Synchronously.
    Now,
    /// Asynchronously, polled at the URL in the header `Azure-AsyncOperation`.
    Operation,
    /// Asynchronously, polled at the URL in the header `Location`.
    Location,
}

/// A resource type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Resource provider, `Microsoft.Network` for instance.
    pub provider: &'static str,
    /// Type, `loadBalancers/backendAddressPools` for instance.
    pub types: &'static str,
    /// Where resources of the type are stored.
    pub storage: Storage,
    /// How `PUT` completes.
    pub put: Completion,
    /// How `DELETE` completes.
    pub delete: Completion,
}

const fn network(
    types: &'static str,
    storage: Storage,
    put: Completion,
    delete: Completion,
) -> Kind {
    Kind { provider: "Microsoft.Network", types, storage, put, delete }
}

const fn compute(types: &'static str) -> Kind {
    let (put, delete) = (Completion::Never, Completion::Never);
    Kind { provider: "Microsoft.Compute", types, storage: Storage::Own, put, delete }
}

use Completion::{Location, Never, Now, Operation};
use Storage::{Inside, Own};

/// All supported types.
pub const KINDS: &[Kind] = &[
    network("loadBalancers", Own, Operation, Location),
    network(
        "loadBalancers/backendAddressPools",
        Inside("backendAddressPools"),
        Operation,
        Location,
    ),
    network(
        "loadBalancers/frontendIPConfigurations",
        Inside("frontendIPConfigurations"),
        Never,
        Never,
    ),
    network("loadBalancers/loadBalancingRules", Inside("loadBalancingRules"), Never, Never),
    network("loadBalancers/probes", Inside("probes"), Never, Never),
    network("loadBalancers/inboundNatRules", Inside("inboundNatRules"), Never, Never),
    network("networkInterfaces", Own, Operation, Location),
    network("networkInterfaces/ipConfigurations", Inside("ipConfigurations"), Never, Never),
    network("networkSecurityGroups", Own, Operation, Location),
    network("virtualNetworks", Own, Operation, Location),
    network("virtualNetworks/subnets", Inside("subnets"), Operation, Location),
    network("privateLinkServices", Own, Operation, Operation),
    network("privateLinkServices/ipConfigurations", Inside("ipConfigurations"), Never, Never),
    network(
        "privateLinkServices/privateEndpointConnections",
        Inside("privateEndpointConnections"),
        Now,
        Operation,
    ),
    network("privateEndpoints", Own, Operation, Location),
    network(
        "privateEndpoints/manualPrivateLinkServiceConnections",
        Inside("manualPrivateLinkServiceConnections"),
        Never,
        Never,
    ),
    network("privateDnsZones", Own, Operation, Location),
    network("privateDnsZones/A", Own, Now, Now),
    network("privateDnsZones/TXT", Own, Now, Now),
    network("privateDnsZones/SOA", Own, Never, Never),
    network("privateDnsZones/ALL", Own, Never, Never),
    network("privateDnsZones/virtualNetworkLinks", Own, Operation, Location),
    compute("virtualMachines"),
    compute("virtualMachineScaleSets"),
    compute("virtualMachineScaleSets/virtualMachines"),
    compute("virtualMachineScaleSets/virtualMachines/networkInterfaces"),
    Kind {
        storage: Inside("ipConfigurations"),
        ..compute("virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations")
    },
];

impl Kind {
    /// Returns the type of the resource or list of a path.
    pub fn of(path: &Path) -> Option<&'static Kind> {
        let types = path.types();
        KINDS.iter().find(|kind| {
            kind.provider.eq_ignore_ascii_case(&path.provider)
                && kind.types.eq_ignore_ascii_case(&types)
        })
    }

    /// Parses an id; returns its type and path.
    pub fn parse(id: &str) -> Option<(&'static Kind, Path)> {
        let path = Path::parse(id)?;
        Some((Kind::of(&path)?, path))
    }

    /// Returns the full type, `Microsoft.Network/loadBalancers/backendAddressPools` for instance.
    pub fn full_type(&self) -> String {
        format!("{}/{}", self.provider, self.types)
    }

    /// Returns the path of the resource whose ETag applies: itself, or the one in which it is
    /// stored.
    pub fn holder(&self, path: &Path) -> Path {
        match self.storage {
            Storage::Own => path.clone(),
            Storage::Inside(_) => path.parent().unwrap_or_else(|| path.clone()),
        }
    }
}
