//! What those who look are told: rows of `weir bgp` and of the API, and the numbers of metrics.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bgp::peer::State;
use bgp::told::PeerTold;
use bgp::wire::{Attributes, Family};
use ipnet::IpNet;
use serde::Serialize;

use crate::announcer::Announcer;
use crate::controller::Counts;
use crate::speaker::{PeerKey, Speaker};

/// A peer and a family: a row of `weir bgp peers`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerRow {
    /// The appliance.
    pub node: Box<str>,
    /// Our number.
    pub local_asn: u32,
    /// The peer's: as agreed on, else as configured.
    pub peer_asn: u32,
    /// Where the peer is.
    pub peer: SocketAddr,
    /// How the session is.
    pub state: State,
    /// Seconds since it is established; none while it is not.
    pub uptime_s: Option<f64>,
    /// The family.
    pub family: Family,
    /// Routes that the peer told us.
    pub received: u64,
    /// Routes that the peer has from us.
    pub advertised: u64,
}

/// A route: a row of `weir bgp routes`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RouteRow {
    /// The appliance.
    pub node: Box<str>,
    /// The router's number.
    pub router: u32,
    /// The peer that has it, or shall have it.
    pub peer: SocketAddr,
    /// To where.
    pub prefix: IpNet,
    /// By where.
    pub next_hop: IpAddr,
    /// Seconds for which it is so.
    pub age_s: f64,
    /// The rest, in words.
    pub attributes: String,
}

/// Whether routes go to peers or come from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From us.
    Export,
    /// To us.
    Import,
}

/// What becomes of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RibAction {
    /// They are told.
    Accept,
    /// They are counted, and not installed.
    Reject,
}

/// Prefixes of one length in a policy's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PrefixRange {
    /// The network.
    pub prefix: IpNet,
    /// The shortest length that matches.
    pub min: u8,
    /// The longest.
    pub max: u8,
}

/// What is done to routes: a row of `weir bgp policies`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PolicyRow {
    /// The router's number.
    pub router: u32,
    /// The policy object's name.
    pub policy: String,
    /// To peers or from them.
    #[serde(rename = "type")]
    pub way: Way,
    /// Which peers; empty for all.
    pub peers: Vec<SocketAddr>,
    /// Which families.
    pub families: Vec<Family>,
    /// Which prefixes; empty for all.
    pub prefixes: Vec<PrefixRange>,
    /// What becomes of them.
    pub rib_action: RibAction,
    /// What is said of them, in words.
    pub path_actions: String,
}

/// What is said of which prefixes.
type Export = (Family, Arc<Attributes>, Vec<IpNet>);

impl<S: Speaker> Announcer<S> {
    /// `weir bgp peers`: a row for each peer and family.
    pub fn peer_rows(&self, now: Instant) -> Vec<PeerRow> {
        let peers = self.speaker.peers(now);
        let rows = peers.iter().flat_map(|(key, told)| {
            told.families.iter().map(|family| PeerRow {
                node: self.node.clone(),
                local_asn: key.local_asn,
                peer_asn: told.peer_asn,
                peer: key.peer,
                state: told.state,
                uptime_s: uptime(told),
                family: family.family,
                received: family.received.prefixes as u64,
                advertised: family.advertised as u64,
            })
        });
        rows.collect()
    }

    /// `weir bgp routes available`: what peers shall have, whether they are up or not.
    pub fn available(&self, now: Instant, family: Family) -> Vec<RouteRow> {
        let mut rows = Vec::new();
        for (key, running) in &self.peers {
            let routes = running.table.routes.iter();
            for (net, attributes) in routes.filter(|(net, _)| Family::of_prefix(net) == family) {
                let since = running.since.get(net).copied().unwrap_or(now);
                rows.push(RouteRow {
                    node: self.node.clone(),
                    router: key.local_asn,
                    peer: key.peer,
                    prefix: *net,
                    next_hop: attributes.next_hop,
                    age_s: now.saturating_duration_since(since).as_secs_f64(),
                    attributes: attributes.to_string(),
                });
            }
        }
        rows
    }

    /// `weir bgp routes advertised`: what peers have, as it was said to them. The age is that of
    /// the route, or of the session where that is younger.
    pub fn advertised(&self, now: Instant, family: Family) -> Vec<RouteRow> {
        let mut rows = Vec::new();
        for (key, told) in self.speaker.peers(now) {
            let Some(uptime) = uptime(&told) else { continue };
            let since = self.peers.get(&key).map(|running| &running.since);
            for route in self.speaker.advertised(key, family) {
                let wanted = since.and_then(|since| since.get(&route.prefix));
                let age = wanted.map(|since| now.saturating_duration_since(*since).as_secs_f64());
                rows.push(RouteRow {
                    node: self.node.clone(),
                    router: key.local_asn,
                    peer: key.peer,
                    prefix: route.prefix,
                    next_hop: route.next_hop,
                    age_s: age.map_or(uptime, |age| age.min(uptime)),
                    attributes: route.attributes,
                });
            }
        }
        rows
    }

    /// `weir bgp policies`: what is said of which prefixes to whom, and that nothing is taken.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let row = |router: u32, way: Way| PolicyRow {
            router,
            policy: policy.name.to_string(),
            way,
            peers: Vec::new(),
            families: Family::ALL.to_vec(),
            prefixes: Vec::new(),
            rib_action: RibAction::Reject,
            path_actions: String::new(),
        };
        let mut rows = Vec::new();
        for router in &policy.spec.routers {
            for ((family, said, prefixes), peers) in self.exports(router.local_asn) {
                rows.push(PolicyRow {
                    peers,
                    families: vec![family],
                    prefixes: prefixes.iter().map(range).collect(),
                    rib_action: RibAction::Accept,
                    path_actions: format!("next hop {}, {said}", said.next_hop),
                    ..row(router.local_asn, Way::Export)
                });
            }
            rows.push(row(router.local_asn, Way::Import));
        }
        rows
    }

    /// Prefixes of which the same is said, with the peers to which exactly these are told so.
    fn exports(&self, asn: u32) -> BTreeMap<Export, Vec<SocketAddr>> {
        let mut all: BTreeMap<Export, Vec<SocketAddr>> = BTreeMap::new();
        for (key, running) in self.peers.iter().filter(|(key, _)| key.local_asn == asn) {
            let mut of_peer: BTreeMap<_, Vec<IpNet>> = BTreeMap::new();
            for (net, attributes) in &running.table.routes {
                let group = (Family::of_prefix(net), Arc::clone(attributes));
                of_peer.entry(group).or_default().push(*net);
            }
            for ((family, said), nets) in of_peer {
                all.entry((family, said, nets)).or_default().push(key.peer);
            }
        }
        all
    }

    /// The numbers of metrics.
    pub fn numbers(&self, now: Instant, counts: &Counts) -> Numbers {
        let peers = self.speaker.peers(now).into_iter().map(|(key, told)| PeerNumbers {
            key,
            neighbor_asn: told.peer_asn,
            is_established: told.state == State::Established,
            families: told
                .families
                .iter()
                .map(|one| (one.family, one.advertised as u64, one.received.prefixes as u64))
                .collect(),
        });
        Numbers { peers: peers.collect(), counts: counts.clone() }
    }
}

fn range(prefix: &IpNet) -> PrefixRange {
    PrefixRange { prefix: *prefix, min: prefix.prefix_len(), max: prefix.prefix_len() }
}

fn uptime(told: &PeerTold) -> Option<f64> {
    (told.state == State::Established).then_some(told.since_s)
}

/// The numbers of metrics: `session_state`, `advertised_routes` and `received_routes` by peer,
/// `reconcile_errors_total` and `reconcile_run_duration_seconds` of the control loop.
#[derive(Clone, PartialEq, Debug)]
pub struct Numbers {
    /// By peer.
    pub peers: Vec<PeerNumbers>,
    /// Of the control loop.
    pub counts: Counts,
}

/// The numbers of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNumbers {
    /// The peer.
    pub key: PeerKey,
    /// Its number.
    pub neighbor_asn: u32,
    /// Whether the session is up.
    pub is_established: bool,
    /// By family: routes that it has from us, and routes that it told.
    pub families: Vec<(Family, u64, u64)>,
}

#[cfg(test)]
mod tests;
