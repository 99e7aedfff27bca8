//! The appliance as selection and planes see it: where it is and which addresses are its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::backend::Place;
use crate::labels::Pairs;
use crate::object::ApplianceSpec;

/// Ports that are node ports unless the appliance says otherwise (Kubernetes' own range).
pub const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// What an appliance is and calls local.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appliance {
    /// Its name.
    pub name: Box<str>,
    /// Labels as on the object.
    pub labels: Pairs,
    /// Its zone; empty for unknown, and then no zone is preferred.
    pub zone: Box<str>,
    /// Names of the nodes and zones whose backends are local.
    pub local: BTreeSet<Box<str>>,
    /// Its own addresses, on which node ports answer.
    pub addresses: Vec<IpAddr>,
    /// Number of its cluster; 0 where there is only one.
    pub cluster: u32,
    /// Whether packets from outside may go to cluster addresses.
    pub external_cluster_ip: bool,
    /// Ports that are node ports.
    pub node_ports: RangeInclusive<u16>,
    /// Whether services' preferences by place count.
    pub zone_aware: bool,
}

/// Without a name, a place or addresses: all with a node is elsewhere.
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
    /// What its object shows.
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

    /// Whether a backend there is local: its node or zone is called so, or nobody knows its node.
    pub fn is_local(&self, place: Option<&Place>) -> bool {
        let Some(place) = place else { return true };
        place.node.is_empty() || self.local.contains(&place.zone) || self.is_local_node(place)
    }

    /// Whether its node is known and called local.
    pub fn is_local_node(&self, place: &Place) -> bool {
        !place.node.is_empty() && self.local.contains(&place.node)
    }

    /// Whether a backend there is in this zone.
    pub fn is_of_zone(&self, place: &Place) -> bool {
        !self.zone.is_empty() && place.zone == self.zone
    }

    /// Whether its source asks this zone to use a backend there.
    pub fn is_hinted(&self, place: &Place) -> bool {
        !self.zone.is_empty() && place.for_zones.contains(&self.zone)
    }
}
