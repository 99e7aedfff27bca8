//! BGP status of the appliance as shown by the API and `weir bgp`: peers, routes and policies.

mod query;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bgp::peer::State;
use bgp::status::PeerStatus;
use bgp::wire::{Attributes, Family};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::announcer::Announcer;
use crate::controller::Counts;
use crate::speaker::{PeerKey, Speaker};
pub use query::{QueryError, RouteQuery, RouteView};

/// BGP status of this appliance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BgpStatus {
    /// Name of the appliance; empty before the first reconciliation.
    pub node: Box<str>,
    /// Number of BGP peering policies, including those for other appliances.
    pub policies: usize,
    /// Name of the policy in force; null if there is none.
    pub policy: Option<String>,
    /// Local AS numbers of the policy's routers.
    pub routers: Vec<u32>,
    /// Number of neighbors with a session, established or not.
    pub neighbors: usize,
    /// Number of established sessions.
    pub established: usize,
    /// What is wrong with the policies and how to fix it; empty if nothing is wrong.
    pub error: String,
}

/// A peer and an address family: a row of `weir bgp peers`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PeerRow {
    /// Name of the appliance.
    pub node: Box<str>,
    /// Local AS number.
    pub local_asn: u32,
    /// AS number of the peer: as negotiated, or as configured before that (0 accepts any).
    pub peer_asn: u32,
    /// Address and port of the peer.
    #[schemars(with = "String")]
    pub peer: SocketAddr,
    /// State (RFC 4271): `idle`, `connect`, `active`, `open-sent`, `open-confirm`, `established`.
    #[schemars(with = "String")]
    pub state: State,
    /// Seconds since the session was established; null while it is not.
    pub uptime_s: Option<f64>,
    /// Address family: `ipv4-unicast` or `ipv6-unicast`.
    #[schemars(with = "String")]
    pub family: Family,
    /// Number of routes received from the peer; counted up to 100,000.
    pub received: u64,
    /// Number of routes advertised to the peer.
    pub advertised: u64,
}

/// A route: a row of `weir bgp routes`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteRow {
    /// Name of the appliance.
    pub node: Box<str>,
    /// AS number of the local router.
    pub router: u32,
    /// Address and port of the peer.
    #[schemars(with = "String")]
    pub peer: SocketAddr,
    /// Destination prefix.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// Next hop.
    #[schemars(with = "String")]
    pub next_hop: IpAddr,
    /// Seconds since the route was last changed; for advertised routes, at most the age of the
    /// session.
    pub age_s: f64,
    /// The other path attributes as text.
    pub attributes: String,
}

/// Direction of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteDirection {
    /// Advertised to peers.
    Export,
    /// Received from peers.
    Import,
}

/// How routes are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RibAction {
    /// Advertised.
    Accept,
    /// Counted, but not installed.
    Reject,
}

/// Prefixes that a policy row matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PrefixRange {
    /// Network.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// Minimum prefix length.
    pub min: u8,
    /// Maximum prefix length.
    pub max: u8,
}

/// How a router handles routes: a row of `weir bgp policies`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRow {
    /// AS number of the local router.
    pub router: u32,
    /// Name of the BgpPeeringPolicy object.
    pub policy: String,
    /// Whether the row applies to routes to peers or from peers.
    #[serde(rename = "type")]
    pub direction: RouteDirection,
    /// Peers; empty for all.
    #[schemars(with = "Vec<String>")]
    pub peers: Vec<SocketAddr>,
    /// Address families.
    #[schemars(with = "Vec<String>")]
    pub families: Vec<Family>,
    /// Prefixes; empty for all.
    pub prefixes: Vec<PrefixRange>,
    /// How matching routes are handled.
    pub rib_action: RibAction,
    /// Path attributes of advertised routes as text; empty for rejected routes.
    pub path_actions: String,
}

/// Prefixes of one family that are advertised with the same attributes.
type Export = (Family, Arc<Attributes>, Vec<IpNet>);

impl<S: Speaker> Announcer<S> {
    /// Returns the rows of `weir bgp peers`: one per peer and family.
    pub fn peer_rows(&self, now: Instant) -> Vec<PeerRow> {
        let peers = self.speaker.peers(now);
        let rows = peers.iter().flat_map(|(key, status)| {
            status.families.iter().map(|family| PeerRow {
                node: self.node.clone(),
                local_asn: key.local_asn,
                peer_asn: status.peer_asn,
                peer: key.peer,
                state: status.state,
                uptime_s: uptime(status),
                family: family.family,
                received: family.received.prefixes as u64,
                advertised: family.advertised as u64,
            })
        });
        rows.collect()
    }

    /// Returns the BGP status; `policies` is the number of all policies.
    pub fn status(&self, now: Instant, counts: &Counts, policies: usize) -> BgpStatus {
        let peers = self.speaker.peers(now);
        let policy = self.policy.as_ref();
        let routers = policy.iter().flat_map(|policy| &policy.spec.routers);
        BgpStatus {
            node: self.node.clone(),
            policies,
            policy: policy.map(|policy| policy.name.to_string()),
            routers: routers.map(|router| router.local_asn).collect(),
            neighbors: peers.len(),
            established: peers.iter().filter(|(_, status)| uptime(status).is_some()).count(),
            error: counts.error.clone(),
        }
    }

    /// Returns the rows of `weir bgp routes` that match the query. Neighbors without an established
    /// session have no advertised routes.
    ///
    /// # Errors
    /// The query is invalid, matches no router or neighbor, or is ambiguous.
    pub fn routes(
        &self,
        now: Instant,
        view: RouteView,
        query: &RouteQuery,
    ) -> Result<Vec<RouteRow>, QueryError> {
        let (families, keys) = (query.families()?, self.matching_peers(query)?);
        let rows = |family: &Family| match view {
            RouteView::Available => self.available(now, *family, &keys),
            RouteView::Advertised => self.advertised(now, *family, &keys),
        };
        Ok(families.iter().flat_map(rows).collect())
    }

    /// Returns the desired routes of these peers, whether their sessions are up or not.
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

    /// Returns the routes advertised to these peers, as sent. The age is the time since the route
    /// changed or since the session was established, whichever is shorter.
    fn advertised(&self, now: Instant, family: Family, keys: &[PeerKey]) -> Vec<RouteRow> {
        let mut rows = Vec::new();
        for (key, status) in self.speaker.peers(now) {
            let Some(uptime) = uptime(&status).filter(|_| keys.contains(&key)) else { continue };
            let since = self.peers.get(&key).map(|running| &running.since);
            for route in self.speaker.advertised(key, family) {
                let changed = since.and_then(|since| since.get(&route.prefix));
                let age = changed.map(|since| now.saturating_duration_since(*since).as_secs_f64());
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

    /// Returns the rows of `weir bgp policies`: which prefixes are advertised with which attributes
    /// to which peers, and that all received routes are rejected.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let row = |router: u32, direction: RouteDirection| PolicyRow {
            router,
            policy: policy.name.to_string(),
            direction,
            peers: Vec::new(),
            families: Family::ALL.to_vec(),
            prefixes: Vec::new(),
            rib_action: RibAction::Reject,
            path_actions: String::new(),
        };
        let mut rows = Vec::new();
        for router in &policy.spec.routers {
            for ((family, attributes, prefixes), peers) in self.exports(router.local_asn) {
                rows.push(PolicyRow {
                    peers,
                    families: vec![family],
                    prefixes: prefixes.iter().map(range).collect(),
                    rib_action: RibAction::Accept,
                    path_actions: format!("next hop {}, {attributes}", attributes.next_hop),
                    ..row(router.local_asn, RouteDirection::Export)
                });
            }
            rows.push(row(router.local_asn, RouteDirection::Import));
        }
        rows
    }

    /// Returns the groups of prefixes with equal attributes that the router `asn` advertises, each
    /// with the peers that get exactly this group.
    fn exports(&self, asn: u32) -> BTreeMap<Export, Vec<SocketAddr>> {
        let mut all: BTreeMap<Export, Vec<SocketAddr>> = BTreeMap::new();
        for (key, running) in self.peers.iter().filter(|(key, _)| key.local_asn == asn) {
            let mut of_peer: BTreeMap<_, Vec<IpNet>> = BTreeMap::new();
            for (net, attributes) in &running.table.routes {
                let group = (Family::of_prefix(net), Arc::clone(attributes));
                of_peer.entry(group).or_default().push(*net);
            }
            for ((family, attributes), nets) in of_peer {
                all.entry((family, attributes, nets)).or_default().push(key.peer);
            }
        }
        all
    }
}

fn range(prefix: &IpNet) -> PrefixRange {
    PrefixRange { prefix: *prefix, min: prefix.prefix_len(), max: prefix.prefix_len() }
}

fn uptime(status: &PeerStatus) -> Option<f64> {
    (status.state == State::Established).then_some(status.since_s)
}

#[cfg(test)]
mod tests;
