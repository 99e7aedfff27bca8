//! Routes for a neighbor: prefixes of services and of the policy, with their attributes. They
//! depend only on the policy, the snapshot and [`NoBackends`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bgp::advertise::Table;
use bgp::wire::Attributes;
use config::checked::Prefix;
use ipnet::IpNet;
use state::backend::State;
use state::frontend::{Frontend, Kind};
use state::object::bgp::{
    AddressKind, AdvertisementSpec, Family, FamilySpec, Neighbor, PathAttributes, RouterSpec,
    Selector,
};
use state::select::is_local_only;
use state::service::Service;
use state::tables::Entry;

use crate::apply::DefectKind;
use crate::snapshot::{ControlPlaneState, Plane};

/// Keys of labels that each service has in addition to its own: its name and its namespace.
const NAME: &str = "io.kubernetes.service.name";
const NAMESPACE: &str = "io.kubernetes.service.namespace";

/// How the addresses of a service with traffic policy Cluster and without usable backends are
/// handled. A backend is usable while it is active or terminating.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NoBackends {
    /// They stay announced, because other appliances have no backend either.
    #[default]
    Announce,
    /// They are withdrawn.
    Withdraw,
}

/// The prefixes that a router announces, one map for each advertisement of the policy, in its
/// order. Each prefix has the kinds of its addresses; a prefix that the policy lists itself has the
/// kind `None`.
pub type OfferedPrefixes = Vec<BTreeMap<IpNet, BTreeSet<Option<AddressKind>>>>;

/// Returns the prefixes that a router announces; none while the data plane takes no traffic.
pub fn offered_prefixes(
    router: &RouterSpec,
    plane: &Plane,
    no_backends: NoBackends,
) -> OfferedPrefixes {
    let one = |advertisement: &AdvertisementSpec| {
        let mut all = BTreeMap::new();
        if plane.forwarding {
            add_prefixes(advertisement, &mut all);
            add_services(advertisement, plane, no_backends, &mut all);
        }
        all
    };
    router.advertisements.iter().map(one).collect()
}

/// Returns a defect if the policy announces cluster addresses although they accept no external
/// packets. In that case they are not announced.
pub fn cluster_ip_defect(router: &RouterSpec, plane: &Plane) -> Option<DefectKind> {
    let announces = |one: &AdvertisementSpec| {
        one.services.is_some() && one.kinds.contains(&AddressKind::ClusterIp)
    };
    let announced = router.advertisements.iter().any(announces);
    (announced && !plane.appliance.external_cluster_ip).then_some(DefectKind::ClusterIpClosed)
}

/// The prefixes of one advertisement, as in [`OfferedPrefixes`].
type AdvertisementPrefixes = BTreeMap<IpNet, BTreeSet<Option<AddressKind>>>;

fn add_prefixes(advertisement: &AdvertisementSpec, to: &mut AdvertisementPrefixes) {
    for net in advertisement.prefixes.iter().filter_map(announceable) {
        to.entry(net).or_default().insert(None);
    }
}

fn add_services(
    advertisement: &AdvertisementSpec,
    plane: &Plane,
    no_backends: NoBackends,
    to: &mut AdvertisementPrefixes,
) {
    let Some(selector) = &advertisement.services else { return };
    for (_, entry) in plane.tables.entries() {
        let Some(service) = entry.service.as_ref().filter(|s| selects(selector, s)) else {
            continue;
        };
        for row in &entry.frontends {
            let kind = kind_of(row, plane).filter(|kind| advertisement.kinds.contains(kind));
            let Some(kind) = kind.filter(|_| is_served(row, entry, plane, no_backends)) else {
                continue;
            };
            let Some(net) = announceable(&row.address().prefix) else { continue };
            let aggregates = !is_local_only(row) && !has_local_policy(service);
            let net = if aggregates { aggregated(net, advertisement) } else { net };
            to.entry(net).or_default().insert(Some(kind));
        }
    }
}

fn selects(selector: &Selector, service: &Service) -> bool {
    let (_, namespace, name) = service.name.parts();
    selector.matches(|key| match key {
        NAME => Some(name),
        NAMESPACE => Some(if namespace.is_empty() { "default" } else { namespace }),
        key => service.labels.as_ref()?.get(key).map(|value| &**value),
    })
}

/// Returns whether either traffic policy is Local. The addresses of such a service are not
/// aggregated, because an appliance may serve only some addresses of the aggregate.
fn has_local_policy(service: &Service) -> bool {
    use config::services::TrafficPolicy::Local;
    service.spec.external_policy == Local || service.spec.internal_policy == Local
}

/// Returns the kind of a frontend's address; `None` if packets from a router cannot reach the
/// frontend or frontends of its type are never announced.
fn kind_of(row: &Frontend, plane: &Plane) -> Option<AddressKind> {
    let address = row.address();
    // Packets from a router are external and come through no gateway endpoint.
    if address.traffic_scope != state::address::TrafficScope::External || address.endpoint != 0 {
        return None;
    }
    match row.spec.kind {
        Kind::LoadBalancer => Some(AddressKind::LoadBalancerIp),
        Kind::ExternalIps => Some(AddressKind::ExternalIp),
        Kind::ClusterIp => plane.appliance.external_cluster_ip.then_some(AddressKind::ClusterIp),
        Kind::NodePort | Kind::HostPort | Kind::LocalRedirect => None,
    }
}

/// Returns whether the frontend is in force on every lcore and has the backend that it needs: with
/// traffic policy Local, an active local one; otherwise, with [`NoBackends::Withdraw`], a usable
/// one.
fn is_served(row: &Frontend, entry: &Entry, plane: &Plane, no_backends: NoBackends) -> bool {
    if !plane.acknowledged.contains(row.address()) {
        return false;
    }
    let entry = match &row.redirect_to {
        Some(other) => plane.tables.entry(other).map(|entry| &**entry),
        None => Some(entry),
    };
    let mut used = entry.into_iter().flat_map(Entry::used);
    if is_local_only(row) {
        return used.any(|instance| {
            let is_local = plane.appliance.is_local(instance.placement.as_deref());
            is_local && instance.effective() == State::Active
        });
    }
    let serves = |state| matches!(state, State::Active | State::Terminating);
    no_backends == NoBackends::Announce || used.any(|instance| serves(instance.effective()))
}

/// Returns the prefix if it may be announced: multicast, loopback and unspecified addresses may
/// not, but a default route may.
fn announceable(prefix: &Prefix) -> Option<IpNet> {
    let is_default = prefix.len == 0;
    let addr = prefix.addr;
    let never = addr.is_multicast() || addr.is_loopback() || (addr.is_unspecified() && !is_default);
    IpNet::new(addr, prefix.len).ok().filter(|_| !never).map(|net| net.trunc())
}

/// Returns the aggregate of the advertisement's length that covers `net`, or `net` if the
/// advertisement has no shorter length.
fn aggregated(net: IpNet, advertisement: &AdvertisementSpec) -> IpNet {
    let length = match net {
        IpNet::V4(_) => advertisement.aggregation.ipv4,
        IpNet::V6(_) => advertisement.aggregation.ipv6,
    };
    let shorter = length.filter(|length| *length < net.prefix_len());
    let aggregate = shorter.and_then(|length| IpNet::new(net.addr(), length).ok());
    aggregate.map_or(net, |aggregate| aggregate.trunc())
}

/// Returns the routes for a neighbor, and the defects that prevent further routes.
pub fn table(
    router: &RouterSpec,
    neighbor: &Neighbor,
    offered: &OfferedPrefixes,
    state: &ControlPlaneState,
) -> (Table, Vec<DefectKind>) {
    let (mut table, mut defects) = (Table::default(), Vec::new());
    for family in &neighbor.families {
        let prefixes = route_attributes(router, neighbor, family, offered);
        if prefixes.is_empty() {
            continue;
        }
        let next_hop = match next_hop(neighbor, family.family, state) {
            Ok(next_hop) => next_hop,
            Err(wrong) => {
                defects.push(wrong);
                continue;
            }
        };
        let mut same: BTreeMap<RouteAttributes, Arc<Attributes>> = BTreeMap::new();
        for (net, attributes) in prefixes {
            let attributes = same
                .entry(attributes)
                .or_insert_with_key(|attributes| Arc::new(attributes.with(next_hop)));
            table.routes.insert(net, Arc::clone(attributes));
        }
    }
    (table, defects)
}

/// Attributes of a prefix, before the next hop is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct RouteAttributes {
    communities: BTreeSet<u32>,
    large: BTreeSet<[u32; 3]>,
    local_pref: Option<u32>,
    prepend: u8,
    med: Option<u32>,
}

impl RouteAttributes {
    /// Merges further attributes if they apply to these kinds of addresses: all communities, the
    /// highest local preference, the longest prepending and the lowest MED.
    fn add(&mut self, more: &PathAttributes, kinds: &BTreeSet<Option<AddressKind>>) {
        let applies = |kind: &AddressKind| kinds.contains(&Some(*kind));
        if !more.kinds.is_empty() && !more.kinds.iter().any(applies) {
            return;
        }
        self.communities.extend(more.communities.iter().map(|community| community.number));
        self.large.extend(more.large_communities.iter().map(|community| community.0));
        self.local_pref = self.local_pref.max(more.local_preference);
        self.prepend = self.prepend.max(more.prepend);
        let lower = self.med.into_iter().chain(more.med).min();
        self.med = lower;
    }

    fn with(&self, next_hop: IpAddr) -> Attributes {
        Attributes {
            prepend: self.prepend,
            med: self.med,
            local_pref: self.local_pref,
            communities: self.communities.iter().copied().collect(),
            large: self.large.iter().copied().collect(),
            ..Attributes::new(next_hop)
        }
    }
}

/// Returns all prefixes of a family with their attributes.
fn route_attributes(
    router: &RouterSpec,
    neighbor: &Neighbor,
    family: &FamilySpec,
    offered: &OfferedPrefixes,
) -> BTreeMap<IpNet, RouteAttributes> {
    let is_selected = |one: &AdvertisementSpec| {
        family.advertisements.as_ref().is_none_or(|names| names.contains(&one.name))
    };
    let is_v4 = family.family == Family::Ipv4Unicast;
    let mut all: BTreeMap<IpNet, RouteAttributes> = BTreeMap::new();
    let selected = router.advertisements.iter().zip(offered).filter(|(one, _)| is_selected(one));
    for (advertisement, offer) in selected {
        let of_family = offer.iter().filter(|(net, _)| matches!(net, IpNet::V4(_)) == is_v4);
        for (net, kinds) in of_family {
            let attributes = all.entry(*net).or_default();
            attributes.add(&advertisement.attributes, kinds);
            attributes.add(&family.attributes, kinds);
        }
    }
    // Attributes that are not sent on a session must not make routes differ: prepending on internal
    // sessions, local preference on external ones. With ASN 0 a session may be either, so both
    // attributes are kept.
    for attributes in all.values_mut() {
        match neighbor.asn {
            0 => {}
            asn if asn == router.local_asn => attributes.prepend = 0,
            _ => attributes.local_pref = None,
        }
    }
    all
}

/// Returns the next hop for routes of a family: the neighbor's `next_hop`, or the ingress port's
/// address of the family. Without either, IPv4 routes get the ingress port's IPv6 address if the
/// neighbor has `extended_next_hop` (RFC 8950).
///
/// # Errors
/// There is no such address, or it is not an address of the data plane.
fn next_hop(
    neighbor: &Neighbor,
    family: Family,
    state: &ControlPlaneState,
) -> Result<IpAddr, DefectKind> {
    let (v4, v6) = (state.ipv4.map(IpAddr::V4), state.ipv6.map(IpAddr::V6));
    let found = match family {
        Family::Ipv4Unicast => {
            neighbor.next_hop.ipv4.or(v4).or(v6.filter(|_| neighbor.extended_next_hop))
        }
        Family::Ipv6Unicast => neighbor.next_hop.ipv6.map(IpAddr::V6).or(v6),
    };
    let neighbor = neighbor.address;
    let found = found.filter(|address| !address.is_unspecified());
    let next_hop = found.ok_or(DefectKind::NoNextHop { neighbor, family })?;
    if !state.plane.owned.contains(&next_hop) {
        let owned: Vec<String> = state.plane.owned.iter().map(IpAddr::to_string).collect();
        let owned = if owned.is_empty() { "none".to_owned() } else { owned.join(", ") };
        return Err(DefectKind::NotOwned { neighbor, family, next_hop, owned });
    }
    Ok(next_hop)
}

#[cfg(test)]
mod tests;
