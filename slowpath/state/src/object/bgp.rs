//! BGP peering policies: which appliances have sessions with which routers, and what they
//! advertise.

mod address_kind;
mod attributes;
mod bfd;
mod bounds;
mod neighbor;
mod selector;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::example;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use config::checked::Prefix;
use config::services::{is_default, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ChangeError;
use super::spec::ObjectSpec;
use bounds::{check_count, within};

pub use address_kind::AddressKind;
pub use attributes::{Community, LargeCommunity, PathAttributes};
pub use bfd::BfdSpec;
pub use neighbor::{
    Family, FamilySpec, GracefulRestartSpec, Neighbor, NextHops, Password, TcpAoAlgorithm, TcpAoKey,
};
pub use selector::{Operator, Requirement, Selector};

/// Maximum number of routers in a policy, the same as in Cilium.
const ROUTERS_MAX: usize = 16;
/// Maximum number of neighbors of a router.
const NEIGHBORS_MAX: usize = 256;

/// BGP peering policy: virtual routers and their neighbors, for the appliances that it selects. If
/// several policies select an appliance, `bgp.on_conflict` in the appliance's configuration decides
/// whether it closes its sessions or keeps the policy that applied before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BgpPeeringPolicySpec {
    /// Labels of the appliances that the policy applies to. Default: all appliances.
    #[serde(skip_serializing_if = "is_default")]
    pub node_selector: Option<Selector>,
    /// Virtual routers, 1 to 16, each with an AS number of its own.
    pub routers: Vec<RouterSpec>,
}

/// Virtual router: a BGP speaker of one autonomous system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouterSpec {
    /// AS number of the router, 1 to 4294967295.
    #[schemars(range(min = 1, max = 4294967295_u32))]
    pub local_asn: u32,
    /// BGP identifier of the router. Default: the identifier in the appliance's annotation, else
    /// `bgp.router_id` of its configuration, else the IPv4 address of its `ingress`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub router_id: Option<Ipv4Addr>,
    /// TCP port on which the router accepts connections, 1 to 65535. Default: the port in the
    /// appliance's annotation, else none: the router accepts no connections.
    #[serde(default, skip_serializing_if = "is_default")]
    pub listen_port: Option<u16>,
    /// Advertisements of the router. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub advertisements: Vec<AdvertisementSpec>,
    /// Neighbors of the router, 1 to 256 together with `unresolved`.
    #[serde(default)]
    pub neighbors: Vec<Neighbor>,
    /// Descriptions of neighbors that refer to a missing object. Such a neighbor has no session
    /// until the object exists; other neighbors are not affected. Written by sources that combine
    /// several objects to a policy, such as Cilium's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unresolved: Vec<Box<str>>,
}

/// Set of routes that a router advertises.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdvertisementSpec {
    /// Name by which the neighbors' families refer to this advertisement.
    #[serde(skip_serializing_if = "is_default")]
    pub name: Box<str>,
    /// Services whose addresses are advertised, selected by their labels and by the labels
    /// `io.kubernetes.service.name` and `io.kubernetes.service.namespace`, which every service has.
    /// An empty selector selects all services. Default: no service.
    #[serde(skip_serializing_if = "is_default")]
    pub services: Option<Selector>,
    /// Kinds of service addresses that are advertised. Default: `LoadBalancerIP`.
    #[serde(skip_serializing_if = "is_default_kinds")]
    pub kinds: Vec<AddressKind>,
    /// Addresses and networks that are advertised independently of services.
    #[serde(skip_serializing_if = "is_default", with = "text::prefixes")]
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<Prefix>,
    /// Networks that are advertised instead of the services' addresses in them. Each address of a
    /// service with traffic policy Local has its own route, because other appliances may not serve
    /// it.
    #[serde(skip_serializing_if = "is_default")]
    pub aggregation: Aggregation,
    /// Path attributes of the routes.
    #[serde(skip_serializing_if = "is_default")]
    pub attributes: PathAttributes,
}

impl Default for AdvertisementSpec {
    fn default() -> AdvertisementSpec {
        AdvertisementSpec {
            name: Box::default(),
            services: None,
            kinds: vec![AddressKind::LoadBalancerIp],
            prefixes: Vec::new(),
            aggregation: Aggregation::default(),
            attributes: PathAttributes::default(),
        }
    }
}

fn is_default_kinds(kinds: &[AddressKind]) -> bool {
    *kinds == [AddressKind::LoadBalancerIp]
}

/// Prefix lengths of the networks that are advertised instead of addresses. Default: each address
/// has its own route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Aggregation {
    /// Prefix length for IPv4, 1 to 32.
    #[schemars(range(min = 1, max = 32))]
    #[serde(skip_serializing_if = "is_default")]
    pub ipv4: Option<u8>,
    /// Prefix length for IPv6, 1 to 128.
    #[schemars(range(min = 1, max = 128))]
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: Option<u8>,
}

impl BgpPeeringPolicySpec {
    /// Returns whether the policy applies to an appliance with these labels.
    pub fn selects<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.node_selector.as_ref().is_none_or(|selector| selector.matches(label))
    }
}

impl ObjectSpec for BgpPeeringPolicySpec {
    fn check(&self) -> Result<(), ChangeError> {
        if let Some(selector) = &self.node_selector {
            selector.check("spec.node_selector")?;
        }
        check_count("spec.routers", self.routers.len(), ROUTERS_MAX)?;
        let mut asns = BTreeMap::new();
        for (i, router) in self.routers.iter().enumerate() {
            let at = format!("spec.routers[{i}]");
            router.check(&at)?;
            if let Some(first) = asns.insert(router.local_asn, i) {
                let asn = router.local_asn;
                let wrong = format!("{asn} is already the AS number of spec.routers[{first}]");
                let allowed = "give each router its own AS number, or merge them";
                return Err(ChangeError::new(format!("{at}.local_asn"), wrong, allowed));
            }
        }
        self.check_sessions()
    }
}

impl BgpPeeringPolicySpec {
    /// Rejects two routers with the same neighbor, unless they use different local addresses or
    /// interfaces: the neighbor accepts one session from each address, and the session of a second
    /// router would end that of the first.
    fn check_sessions(&self) -> Result<(), ChangeError> {
        let mut by_address: BTreeMap<IpAddr, Vec<(u32, &Neighbor)>> = BTreeMap::new();
        for (i, router) in self.routers.iter().enumerate() {
            for (j, neighbor) in router.neighbors.iter().enumerate() {
                let sessions = by_address.entry(neighbor.address).or_default();
                let same = sessions.iter().find(|(_, other)| neighbor.shares_session(other));
                if let Some((asn, _)) = same {
                    let (own, address) = (router.local_asn, neighbor.address);
                    let wrong = format!("{address} is a neighbor of routers {asn} and {own}");
                    let allowed = "keep it in one of them, or write a different local_address for \
                                   it in each";
                    let field = format!("spec.routers[{i}].neighbors[{j}].address");
                    return Err(ChangeError::new(field, wrong, allowed));
                }
                sessions.push((router.local_asn, neighbor));
            }
        }
        Ok(())
    }
}

impl RouterSpec {
    fn check(&self, at: &str) -> Result<(), ChangeError> {
        if self.local_asn == 0 {
            let wrong = "0 is not a valid AS number (RFC 7607)";
            let allowed = "allowed: 1 to 4294967295";
            return Err(ChangeError::new(format!("{at}.local_asn"), wrong, allowed));
        }
        if self.router_id.is_some_and(|id| id.is_unspecified()) {
            let wrong = "0.0.0.0 is not a valid router ID";
            let allowed = "write one that no other router uses, or leave it out";
            return Err(ChangeError::new(format!("{at}.router_id"), wrong, allowed));
        }
        if self.listen_port == Some(0) {
            let allowed = "allowed: 1 to 65535; leave it out to listen on none";
            let field = format!("{at}.listen_port");
            return Err(ChangeError::new(field, "0 is out of range", allowed));
        }
        let mut names = BTreeMap::new();
        for (i, advertisement) in self.advertisements.iter().enumerate() {
            let at = format!("{at}.advertisements[{i}]");
            advertisement.check(&at)?;
            let name = &*advertisement.name;
            if !name.is_empty() && names.insert(name, i).is_some() {
                let wrong = format!("`{name}` is used twice");
                return Err(ChangeError::new(
                    format!("{at}.name"),
                    wrong,
                    "give each its own name",
                ));
            }
        }
        let neighbors = self.neighbors.len() + self.unresolved.len();
        check_count(&format!("{at}.neighbors"), neighbors, NEIGHBORS_MAX)?;
        let mut addresses = BTreeMap::new();
        for (i, neighbor) in self.neighbors.iter().enumerate() {
            let field = format!("{at}.neighbors[{i}]");
            neighbor.check(&field, self.local_asn)?;
            self.check_advertisement_names(neighbor, &field)?;
            if let Some(first) = addresses.insert(neighbor.address, i) {
                let wrong =
                    format!("{} is already the address of neighbors[{first}]", neighbor.address);
                return Err(ChangeError::new(
                    format!("{field}.address"),
                    wrong,
                    "remove one of them",
                ));
            }
        }
        Ok(())
    }

    /// Rejects families of a neighbor that refer to a missing advertisement.
    fn check_advertisement_names(&self, neighbor: &Neighbor, at: &str) -> Result<(), ChangeError> {
        for (i, family) in neighbor.families.iter().enumerate() {
            for (j, name) in family.advertisements.iter().flatten().enumerate() {
                if name.is_empty() || !self.advertisements.iter().any(|one| one.name == *name) {
                    let names: Vec<&str> =
                        self.advertisements.iter().map(|one| &*one.name).collect();
                    return Err(ChangeError::new(
                        format!("{at}.families[{i}].advertisements[{j}]"),
                        format!("this router has no advertisement `{name}`"),
                        format!("it has: {}", names.join(", ")),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl AdvertisementSpec {
    pub(crate) fn check(&self, at: &str) -> Result<(), ChangeError> {
        if let Some(selector) = &self.services {
            selector.check(&format!("{at}.services"))?;
        }
        if self.kinds.is_empty() && self.services.is_some() {
            let allowed = "write at least one of LoadBalancerIP, ClusterIP, ExternalIP";
            let wrong = "`services` selects services, but no kind of address is listed";
            return Err(ChangeError::new(format!("{at}.kinds"), wrong, allowed));
        }
        for (i, prefix) in self.prefixes.iter().enumerate() {
            if prefix.addr.is_multicast() || prefix.addr.is_loopback() {
                let field = format!("{at}.prefixes[{i}]");
                let wrong = format!("{prefix} is a multicast or loopback network");
                return Err(ChangeError::new(field, wrong, "write a unicast address or network"));
            }
        }
        let lengths = [("ipv4", self.aggregation.ipv4, 32), ("ipv6", self.aggregation.ipv6, 128)];
        for (family, length, max) in lengths {
            let length = length.map(u32::from);
            within(&format!("{at}.aggregation.{family}"), length.unwrap_or(1), 1, max)?;
        }
        self.attributes.check(&format!("{at}.attributes"))
    }
}
