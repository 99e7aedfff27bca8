//! Metrics of BGP sessions.

use std::fmt;
use std::time::Instant;

use super::declared as metric;
use super::family::{Family, flag};
use crate::routing::BgpState;
use bgp::peer::State;
use bgp::speaker::status::PeerSocketStatus;

/// The status of a neighbor, and the values of the labels of its metrics.
struct Neighbor {
    status: PeerSocketStatus,
    router: String,
    address: String,
    asn: String,
}

impl Neighbor {
    fn new(status: PeerSocketStatus) -> Neighbor {
        let peer = &status.peer;
        let (router, address) = (peer.local_asn.to_string(), peer.peer.to_string());
        Neighbor { router, address, asn: peer.peer_asn.to_string(), status }
    }

    /// Returns the values of the labels router, neighbor and neighbor_asn.
    fn labels(&self) -> [&str; 3] {
        [&self.router, &self.address, &self.asn]
    }

    /// Returns the labels of the neighbor with one more.
    fn with<'l>(&'l self, value: &'l str) -> [&'l str; 4] {
        let [router, address, asn] = self.labels();
        [router, address, asn, value]
    }

    /// Returns the neighbor's labels and those of an address family.
    fn family_labels(&self, family: bgp::wire::Family) -> [&str; 5] {
        let [router, address, asn] = self.labels();
        let afi = match family {
            bgp::wire::Family::Ipv4Unicast => "ipv4",
            bgp::wire::Family::Ipv6Unicast => "ipv6",
        };
        [router, address, asn, afi, "unicast"]
    }
}

/// Encodes the metrics of BGP sessions, routes and reconciliations.
pub(super) fn encode(state: &BgpState, family: &mut Family<'_, '_>) -> fmt::Result {
    let report = state.sockets.status(Instant::now());
    let all: Vec<Neighbor> = report.peers.into_iter().map(Neighbor::new).collect();
    sessions(&all, family)?;
    routes(&all, family)?;
    reconciliations(state, family)
}

fn sessions(all: &[Neighbor], family: &mut Family<'_, '_>) -> fmt::Result {
    family.gauges(
        &metric::BGP_SESSION,
        all.iter().map(|one| (one.labels(), flag(one.status.peer.state == State::Established))),
    )?;
    family.counters(
        &metric::BGP_FLAPS,
        all.iter().map(|one| (one.labels(), one.status.peer.flaps)),
    )?;
    family.counters(
        &metric::BGP_REFUSED,
        all.iter().map(|one| (one.labels(), one.status.peer.refused)),
    )?;
    let watched = all.iter().filter_map(|one| one.status.bfd.as_ref().map(|bfd| (one, bfd)));
    family.gauges(&metric::BGP_BFD, watched.map(|(one, bfd)| (one.labels(), flag(bfd.up))))?;
    let connected =
        || all.iter().filter_map(|one| Some((one, one.status.peer.connection.as_ref()?)));
    family.counters(
        &metric::BGP_MESSAGES,
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let types = [
                ("update", messages.updates),
                ("keepalive", messages.keepalives),
                ("route-refresh", messages.refreshes),
            ];
            types.map(|(kind, count)| (one.with(kind), count))
        }),
    )?;
    family.counters(
        &metric::BGP_MALFORMED,
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let handling = [
                ("attribute-discard", messages.discarded),
                ("treat-as-withdraw", messages.withdrawn),
            ];
            handling.map(|(handling, count)| (one.with(handling), count))
        }),
    )
}

fn routes(all: &[Neighbor], family: &mut Family<'_, '_>) -> fmt::Result {
    let families =
        || all.iter().flat_map(|one| one.status.peer.families.iter().map(move |f| (one, f)));
    family.gauges(
        &metric::BGP_ADVERTISED,
        families().map(|(one, of)| (one.family_labels(of.family), of.advertised as f64)),
    )?;
    family.gauges(
        &metric::BGP_RECEIVED,
        families().map(|(one, of)| (one.family_labels(of.family), of.received.prefixes as f64)),
    )
}

fn reconciliations(state: &BgpState, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = state.counts.lock().clone();
    let errors: Vec<(String, u64)> =
        counts.errors.iter().map(|(asn, count)| (asn.to_string(), *count)).collect();
    family.counters(
        &metric::BGP_ERRORS,
        errors.iter().map(|(asn, count)| ([asn.as_str()], *count)),
    )?;
    family.gauge(&metric::BGP_FAILING, flag(!counts.error.is_empty()))?;
    family.histogram(&metric::BGP_RUNS, &counts.durations)
}
