//! Properties of the appliance on which the selection of backends and the derivation of tables from
//! objects depend.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::backend::Placement;
use crate::labels::Pairs;
use crate::object::ApplianceSpec;

/// Node port range that applies unless the appliance sets another: the default of Kubernetes.
pub const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// Identity, location, addresses and node ports of an appliance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appliance {
    /// Name of the appliance.
    pub name: Box<str>,
    /// Labels of the appliance's object, by which policies and services select it.
    pub labels: Pairs,
    /// Zone of the appliance; empty if unknown. Without a zone no zone is preferred.
    pub zone: Box<str>,
    /// Names of the nodes and zones whose backends are local.
    pub local: BTreeSet<Box<str>>,
    /// The appliance's own addresses, on which node ports answer.
    pub addresses: Vec<IpAddr>,
    /// Number of the appliance's cluster; 0 if there is only one.
    pub cluster: u32,
    /// Whether packets from outside the cluster to frontends of type ClusterIP are accepted.
    pub external_cluster_ip: bool,
    /// Range of ports that are node ports.
    pub node_ports: RangeInclusive<u16>,
    /// Whether the services' preferences for backends by node or zone (`distribution`) are applied.
    pub zone_aware: bool,
}

/// The default is an appliance without name, zone and addresses. Only backends whose node is
/// unknown are local to it.
impl Default for Appliance {
    fn default() -> Appliance {
        Appliance {
            name: Box::default(),
            labels: None,
            zone: Box::default(),
            local: BTreeSet::new(),
            addresses: Vec::new(),
            cluster: 0,
            external_cluster_ip: false,
            node_ports: NODE_PORTS,
            zone_aware: true,
        }
    }
}

impl Appliance {
    /// Returns the spec of the appliance's object.
    pub fn spec(&self) -> ApplianceSpec {
        ApplianceSpec {
            zone: self.zone.clone(),
            local: self.local.clone(),
            addresses: self.addresses.clone(),
            cluster: self.cluster,
            external_cluster_ip: self.external_cluster_ip,
            node_ports: [*self.node_ports.start(), *self.node_ports.end()],
            zone_aware: self.zone_aware,
        }
    }

    /// Returns whether a backend with this placement is local: its node or zone is in `local`, or
    /// its node is unknown.
    pub fn is_local(&self, placement: Option<&Placement>) -> bool {
        let Some(placement) = placement else { return true };
        placement.node.is_empty()
            || self.local.contains(&placement.zone)
            || self.is_local_node(placement)
    }

    /// Returns whether the backend's node is known and in `local`.
    pub fn is_local_node(&self, placement: &Placement) -> bool {
        !placement.node.is_empty() && self.local.contains(&placement.node)
    }

    /// Returns whether the backend runs in the appliance's zone; false if that is unknown.
    pub fn is_of_zone(&self, placement: &Placement) -> bool {
        !self.zone.is_empty() && placement.zone == self.zone
    }

    /// Returns whether the backend's zone hints (`for_zones`) include the appliance's zone; false
    /// if that is unknown.
    pub fn is_hinted(&self, placement: &Placement) -> bool {
        !self.zone.is_empty() && placement.for_zones.contains(&self.zone)
    }
}
