//! What those who look are told: rows of `weir bgp` and of the API.

mod asked;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bgp::peer::State;
use bgp::told::PeerTold;
use bgp::wire::{Attributes, Family};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::announcer::Announcer;
use crate::controller::Counts;
use crate::speaker::{PeerKey, Speaker};
pub use asked::{Asked, Refused, Which};

/// How BGP stands on this appliance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// The appliance; empty before the first round.
    pub node: Box<str>,
    /// How many policies there are, whichever appliances they are for.
    pub policies: usize,
    /// The policy that is carried out; none where none is.
    pub policy: Option<String>,
    /// Numbers of its routers' autonomous systems.
    pub routers: Vec<u32>,
    /// How many neighbors are spoken to, or tried.
    pub neighbors: usize,
    /// How many sessions with them are established.
    pub established: usize,
    /// What is wrong with the policies, and what to do; empty where nothing is.
    pub error: String,
}

/// A peer and a family: a row of `weir bgp peers`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PeerRow {
    /// The appliance.
    pub node: Box<str>,
    /// Our number.
    pub local_asn: u32,
    /// The peer's: as agreed on, else as configured.
    pub peer_asn: u32,
    /// Where the peer is.
    #[schemars(with = "String")]
    pub peer: SocketAddr,
    /// How the session is.
    #[schemars(with = "String")]
    pub state: State,
    /// Seconds since it is established; none while it is not.
    pub uptime_s: Option<f64>,
    /// The family.
    #[schemars(with = "String")]
    pub family: Family,
    /// Routes that the peer told us.
    pub received: u64,
    /// Routes that the peer has from us.
    pub advertised: u64,
}

/// A route: a row of `weir bgp routes`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteRow {
    /// The appliance.
    pub node: Box<str>,
    /// The router's number.
    pub router: u32,
    /// The peer that has it, or shall have it.
    #[schemars(with = "String")]
    pub peer: SocketAddr,
    /// To where.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// By where.
    #[schemars(with = "String")]
    pub next_hop: IpAddr,
    /// Seconds for which it is so.
    pub age_s: f64,
    /// The rest, in words.
    pub attributes: String,
}

/// Whether routes go to peers or come from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From us.
    Export,
    /// To us.
    Import,
}

/// What becomes of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RibAction {
    /// They are told.
    Accept,
    /// They are counted, and not installed.
    Reject,
}

/// Prefixes of one length in a policy's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PrefixRange {
    /// The network.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// The shortest length that matches.
    pub min: u8,
    /// The longest.
    pub max: u8,
}

/// What is done to routes: a row of `weir bgp policies`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRow {
    /// The router's number.
    pub router: u32,
    /// The policy object's name.
    pub policy: String,
    /// To peers or from them.
    #[serde(rename = "type")]
    pub way: Way,
    /// Which peers; empty for all.
    #[schemars(with = "Vec<String>")]
    pub peers: Vec<SocketAddr>,
    /// Which families.
    #[schemars(with = "Vec<String>")]
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

    /// How BGP stands, of so many `policies`.
    pub fn standing(&self, now: Instant, counts: &Counts, policies: usize) -> Standing {
        let peers = self.speaker.peers(now);
        let policy = self.policy.as_ref();
        let routers = policy.iter().flat_map(|policy| &policy.spec.routers);
        Standing {
            node: self.node.clone(),
            policies,
            policy: policy.map(|policy| policy.name.to_string()),
            routers: routers.map(|router| router.local_asn).collect(),
            neighbors: peers.len(),
            established: peers.iter().filter(|(_, told)| uptime(told).is_some()).count(),
            error: counts.error.clone(),
        }
    }

    /// `weir bgp routes`: of those that are asked for. Nothing of a neighbor that is not up, where
    /// it is asked what it has.
    ///
    /// # Errors
    /// Nobody is called so, or several are.
    pub fn routes(
        &self,
        now: Instant,
        which: Which,
        asked: &Asked,
    ) -> Result<Vec<RouteRow>, Refused> {
        let (families, keys) = (asked.families()?, self.asked(asked)?);
        let of = |family: &Family| match which {
            Which::Available => self.available(now, *family, &keys),
            Which::Advertised => self.advertised(now, *family, &keys),
        };
        Ok(families.iter().flat_map(of).collect())
    }

    /// What these peers shall have, whether they are up or not.
    fn available(&self, now: Instant, family: Family, keys: &[PeerKey]) -> Vec<RouteRow> {
        let mut rows = Vec::new();
        for (key, running) in self.peers.iter().filter(|(key, _)| keys.contains(key)) {
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

    /// What they have, as it was said to them. The age is that of the route, or of the session
    /// where that is younger.
    fn advertised(&self, now: Instant, family: Family, keys: &[PeerKey]) -> Vec<RouteRow> {
        let mut rows = Vec::new();
        for (key, told) in self.speaker.peers(now) {
            let Some(uptime) = uptime(&told).filter(|_| keys.contains(&key)) else { continue };
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
}

fn range(prefix: &IpNet) -> PrefixRange {
    PrefixRange { prefix: *prefix, min: prefix.prefix_len(), max: prefix.prefix_len() }
}

fn uptime(told: &PeerTold) -> Option<f64> {
    (told.state == State::Established).then_some(told.since_s)
}

#[cfg(test)]
mod tests;
