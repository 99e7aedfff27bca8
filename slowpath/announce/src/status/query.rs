//! Route queries and their errors.

use std::net::{IpAddr, SocketAddr};

use bgp::wire::Family;
use schemars::JsonSchema;
use serde::Deserialize;
use state::object::bgp::RouterSpec;

use crate::announcer::Announcer;
use crate::peers;
use crate::speaker::{PeerKey, Speaker};

/// Which routes a query returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteView {
    /// Desired routes of peers, whether their sessions are up or not.
    Available,
    /// Routes that were sent to peers.
    Advertised,
}

/// A route query.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteQuery {
    /// Only routes of this family: `ipv4-unicast` or `ipv6-unicast`; empty for both.
    #[schemars(regex(pattern = r"^(ipv4-unicast|ipv6-unicast)?$"))]
    pub family: String,
    /// Only routes of the local router with this AS number.
    #[schemars(range(min = 1, max = 4294967295_u32))]
    pub router: Option<u32>,
    /// Only routes to this neighbor, given by address or by address and port: `192.0.2.1`,
    /// `[2001:db8::1]:179`; empty for all. With several routers, `router` is required as well.
    pub peer: String,
}

/// Why a query has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// The family is unknown.
    #[error("family: `{0}` is unknown; set ipv4-unicast or ipv6-unicast, or omit it")]
    Family(String),
    /// The peer is not an address.
    #[error("peer: `{0}` is not an address; set 192.0.2.1, 2001:db8::1 or [2001:db8::1]:179")]
    Peer(String),
    /// A peer is given without its router although there are several routers.
    #[error(
        "peer: several routers may have this neighbor; set `router` as well; available: {available}"
    )]
    Several {
        /// List of the routers of the policy in force.
        available: String,
    },
    /// There is no such router.
    #[error("there is no router {requested}; {available}")]
    NoRouter {
        /// The router of the query.
        requested: u32,
        /// The routers of the policy in force, or that there are none.
        available: String,
    },
    /// There is no such neighbor.
    #[error("there is no neighbor {requested}; {available}")]
    NoNeighbor {
        /// The neighbor of the query.
        requested: String,
        /// The neighbors of the matching routers, or that there are none.
        available: String,
    },
}

impl QueryError {
    /// Returns whether the query is valid, but no policy in force has its router or neighbor.
    pub fn is_absent(&self) -> bool {
        matches!(self, QueryError::NoRouter { .. } | QueryError::NoNeighbor { .. })
    }
}

impl RouteQuery {
    /// Returns the families of the query; both if none is given.
    pub(super) fn families(&self) -> Result<Vec<Family>, QueryError> {
        match self.family.as_str() {
            "" => Ok(Family::ALL.to_vec()),
            "ipv4-unicast" => Ok(vec![Family::Ipv4Unicast]),
            "ipv6-unicast" => Ok(vec![Family::Ipv6Unicast]),
            other => Err(QueryError::Family(other.to_owned())),
        }
    }

    /// Returns a predicate for peers that match the query's address, with or without port.
    fn peer(&self) -> Result<impl Fn(&PeerKey) -> bool + use<>, QueryError> {
        let address: Option<IpAddr> = self.peer.parse().ok();
        let socket: Option<SocketAddr> = self.peer.parse().ok();
        let all = self.peer.is_empty();
        if !all && address.is_none() && socket.is_none() {
            return Err(QueryError::Peer(self.peer.clone()));
        }
        Ok(move |key: &PeerKey| all || Some(key.peer.ip()) == address || Some(key.peer) == socket)
    }
}

impl<S: Speaker> Announcer<S> {
    /// Returns the peers of the policy in force that match the query.
    pub(super) fn matching_peers(&self, query: &RouteQuery) -> Result<Vec<PeerKey>, QueryError> {
        let matches = query.peer()?;
        let policy = self.policy.iter();
        let all: Vec<&RouterSpec> = policy.flat_map(|policy| &policy.spec.routers).collect();
        let named = |router: &&RouterSpec| query.router.is_none_or(|asn| asn == router.local_asn);
        let routers: Vec<&RouterSpec> = all.iter().copied().filter(named).collect();
        let asns = || list(all.iter().map(|router| router.local_asn));
        match (query.router, routers.len()) {
            (Some(asn), 0) => {
                return Err(QueryError::NoRouter {
                    requested: asn,
                    available: available_list(asns()),
                });
            }
            (None, 2..) if !query.peer.is_empty() => {
                return Err(QueryError::Several { available: asns() });
            }
            _ => {}
        }
        let neighbors = |router: &&RouterSpec| {
            let keys = router.neighbors.iter().map(|neighbor| peers::key(router, neighbor));
            keys.collect::<Vec<_>>()
        };
        let configured: Vec<PeerKey> = routers.iter().flat_map(neighbors).collect();
        let found: Vec<PeerKey> = configured.iter().copied().filter(matches).collect();
        if found.is_empty() && !query.peer.is_empty() {
            let available = available_list(list(configured.iter().map(|key| key.peer)));
            return Err(QueryError::NoNeighbor { requested: query.peer.clone(), available });
        }
        Ok(found)
    }
}

fn list(all: impl Iterator<Item = impl ToString>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn available_list(names: String) -> String {
    match names.as_str() {
        "" => "the policy in force configures none".to_owned(),
        names => format!("available: {names}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::*;
    use crate::announcer::Settings;
    use crate::apply::PolicyApplier;
    use crate::fixture::{Recorder, policy, router, service, state, tables};
    use crate::secrets::Files;
    use crate::status::RouteRow;

    fn announcer(routers: Value) -> Announcer<Recorder> {
        let files = std::sync::Arc::new(Files::default());
        let mut announcer = Announcer::new(Recorder::default(), files, Settings::default());
        let web = service("web", json!({}), &[("203.0.113.1", 80, "LoadBalancer")]);
        let edge = policy("edge", routers);
        announcer.configure_peers(Some(&edge), &state(tables(&[web]))).unwrap();
        announcer
    }

    fn query(router: Option<u32>, peer: &str) -> RouteQuery {
        RouteQuery { router, peer: peer.to_owned(), ..RouteQuery::default() }
    }

    #[test]
    fn routes_are_filtered_by_router_and_peer() {
        let mut one = router(65001, "192.0.2.254");
        one["neighbors"].as_array_mut().unwrap().push(json!({"address": "192.0.2.253"}));
        let announcer = announcer(json!([one, router(65002, "192.0.2.252")]));
        let list_routes = |router, peer: &str| -> Result<Vec<String>, QueryError> {
            let query = query(router, peer);
            let rows = announcer.routes(Instant::now(), RouteView::Available, &query)?;
            let text = |row: RouteRow| format!("{} {}", row.router, row.peer.ip());
            Ok(rows.into_iter().map(text).collect())
        };
        assert_eq!(list_routes(None, "").unwrap().len(), 3);
        assert_eq!(list_routes(Some(65002), "").unwrap(), ["65002 192.0.2.252"]);
        assert_eq!(list_routes(Some(65001), "192.0.2.254:179").unwrap(), ["65001 192.0.2.254"]);
        assert_eq!(list_routes(Some(65001), "192.0.2.253").unwrap(), ["65001 192.0.2.253"]);
        let assert_error = |router, peer: &str, parts: &[&str], absent| {
            let error = list_routes(router, peer).unwrap_err();
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(error.is_absent(), absent, "{text}");
        };
        assert_error(None, "192.0.2.254", &["several routers", "65001, 65002"], false);
        assert_error(Some(65003), "", &["no router 65003", "available: 65001, 65002"], true);
        let configured = "192.0.2.254:179, 192.0.2.253:179";
        assert_error(Some(65001), "192.0.2.252", &["no neighbor 192.0.2.252", configured], true);
        assert_error(Some(65001), "192.0.2.254:180", &["no neighbor 192.0.2.254:180"], true);
        assert_error(Some(65001), "router-1", &["`router-1` is not an address"], false);
        let family = RouteQuery { family: "ipv4".to_owned(), ..RouteQuery::default() };
        let error = announcer.routes(Instant::now(), RouteView::Available, &family).unwrap_err();
        assert!(error.to_string().contains("set ipv4-unicast"), "{error}");
    }

    #[test]
    fn single_router_is_implied_and_without_a_policy_nothing_matches() {
        let mut announcer = announcer(json!([router(65001, "192.0.2.254")]));
        let list_routes = |announcer: &Announcer<Recorder>, router, peer: &str| {
            announcer.routes(Instant::now(), RouteView::Available, &query(router, peer))
        };
        assert_eq!(list_routes(&announcer, None, "192.0.2.254").unwrap().len(), 1);
        announcer.configure_peers(None, &state(tables(&[]))).unwrap();
        assert!(list_routes(&announcer, None, "").unwrap().is_empty());
        for error in
            [list_routes(&announcer, Some(65001), ""), list_routes(&announcer, None, "192.0.2.254")]
        {
            let text = error.unwrap_err().to_string();
            assert!(text.contains("the policy in force configures none"), "{text}");
        }
    }
}
