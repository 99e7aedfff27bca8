//! The types of resources that there are, where each is kept, and what may be done with it.

use crate::azure::path::Path;

/// Where a resource is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// As one of its own.
    Own,
    /// In a list of this name in its parent's properties.
    Inside(&'static str),
}

/// How a write ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// There is no such write.
    Never,
    /// With the answer.
    Now,
    /// Later, by `Azure-AsyncOperation`.
    Operation,
    /// Later, by `Location`.
    Location,
}

/// A type of resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// `Microsoft.Network`.
    pub provider: &'static str,
    /// `loadBalancers/backendAddressPools`.
    pub types: &'static str,
    /// Where it is kept.
    pub place: Place,
    /// How `PUT` ends.
    pub put: How,
    /// How `DELETE` ends.
    pub delete: How,
}

const fn network(types: &'static str, place: Place, put: How, delete: How) -> Kind {
    Kind { provider: "Microsoft.Network", types, place, put, delete }
}

const fn compute(types: &'static str) -> Kind {
    let (put, delete) = (How::Never, How::Never);
    Kind { provider: "Microsoft.Compute", types, place: Place::Own, put, delete }
}

use How::{Location, Never, Now, Operation};
use Place::{Inside, Own};

/// All of them.
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
        place: Inside("ipConfigurations"),
        ..compute("virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations")
    },
];

impl Kind {
    /// Of what a path names or lists.
    pub fn of(path: &Path) -> Option<&'static Kind> {
        let types = path.types();
        KINDS.iter().find(|kind| {
            kind.provider.eq_ignore_ascii_case(&path.provider)
                && kind.types.eq_ignore_ascii_case(&types)
        })
    }

    /// Of what an id names, and the id taken apart.
    pub fn parse(id: &str) -> Option<(&'static Kind, Path)> {
        let path = Path::parse(id)?;
        Some((Kind::of(&path)?, path))
    }

    /// `Microsoft.Network/loadBalancers/backendAddressPools`.
    pub fn whole(&self) -> String {
        format!("{}/{}", self.provider, self.types)
    }

    /// The resource by whose ETag it is known: itself, or what it is kept in.
    pub fn home(&self, path: &Path) -> Path {
        match self.place {
            Place::Own => path.clone(),
            Place::Inside(_) => path.parent().unwrap_or_else(|| path.clone()),
        }
    }
}
