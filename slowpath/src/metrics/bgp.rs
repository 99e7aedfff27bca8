//! Metrics of BGP sessions.

use std::fmt;
use std::time::Instant;

use bgp::peer::State;
use bgp::speaker::status::PeerSocketStatus;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;

use super::family::Family;
use crate::routing::BgpState;

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

    fn labels(&self) -> [(&'static str, &str); 3] {
        [("router", &self.router), ("neighbor", &self.address), ("neighbor_asn", &self.asn)]
    }

    /// Returns the labels of the neighbor with one more.
    fn with<'l>(&'l self, name: &'static str, value: &'l str) -> [(&'static str, &'l str); 4] {
        let [router, address, asn] = self.labels();
        [router, address, asn, (name, value)]
    }

    /// Returns the neighbor's labels and those of an address family.
    fn family_labels(&self, family: bgp::wire::Family) -> [(&'static str, &str); 5] {
        let [router, address, asn] = self.labels();
        let afi = match family {
            bgp::wire::Family::Ipv4Unicast => "ipv4",
            bgp::wire::Family::Ipv6Unicast => "ipv6",
        };
        [router, address, asn, ("afi", afi), ("safi", "unicast")]
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
    let flag = |on: bool| f64::from(u8::from(on));
    family.gauges(
        "weir_bgp_session_state",
        "1 while the session with a BGP neighbor is established; `weir bgp peers --detail` shows \
         why it is not.",
        all.iter().map(|one| (one.labels(), flag(one.status.peer.state == State::Established))),
    )?;
    family.counters(
        "weir_bgp_session_flaps",
        "Established sessions that ended, by either side; `weir bgp peers --detail` shows the \
         last notification of each side.",
        all.iter().map(|one| (one.labels(), one.status.peer.flaps)),
    )?;
    family.counters(
        "weir_bgp_connections_refused",
        "Connections of a neighbor that were refused; check the ASN, address and password \
         configured on its side.",
        all.iter().map(|one| (one.labels(), one.status.peer.refused)),
    )?;
    let watched = all.iter().filter_map(|one| one.status.bfd.as_ref().map(|bfd| (one, bfd)));
    family.gauges(
        "weir_bgp_bfd_session_state",
        "1 while the BFD session with a neighbor is up, for neighbors with BFD. At 0 the BGP \
         session is kept down: check the cable, and BFD on the neighbor.",
        watched.map(|(one, bfd)| (one.labels(), flag(bfd.up))),
    )?;
    let connected =
        || all.iter().filter_map(|one| Some((one, one.status.peer.connection.as_ref()?)));
    family.counters(
        "weir_bgp_received_messages",
        "Messages received on the current connection, by type.",
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let types = [
                ("update", messages.updates),
                ("keepalive", messages.keepalives),
                ("route-refresh", messages.refreshes),
            ];
            types.map(|(kind, count)| (one.with("type", kind), count))
        }),
    )?;
    family.counters(
        "weir_bgp_malformed_updates",
        "Malformed UPDATEs on the current connection, by their treatment (RFC 7606): an attribute \
         was discarded, or the routes were treated as withdrawn. The neighbor is at fault; `weir \
         bgp peers --detail` shows the last error.",
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let handling = [
                ("attribute-discard", messages.discarded),
                ("treat-as-withdraw", messages.withdrawn),
            ];
            handling.map(|(handling, count)| (one.with("treated", handling), count))
        }),
    )
}

fn routes(all: &[Neighbor], family: &mut Family<'_, '_>) -> fmt::Result {
    let families =
        || all.iter().flat_map(|one| one.status.peer.families.iter().map(move |f| (one, f)));
    family.gauges(
        "weir_bgp_advertised_routes",
        "Routes advertised to a neighbor. At 0 where traffic is expected: `weir bgp routes \
         available` shows the routes to advertise, `weir status` whether this appliance is ready.",
        families().map(|(one, of)| (one.family_labels(of.family), of.advertised as f64)),
    )?;
    family.gauges(
        "weir_bgp_received_routes",
        "Routes received from a neighbor; they are counted and never installed.",
        families().map(|(one, of)| (one.family_labels(of.family), of.received.prefixes as f64)),
    )
}

fn reconciliations(state: &BgpState, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = state.counts.lock().clone();
    let errors: Vec<(String, u64)> =
        counts.errors.iter().map(|(asn, count)| (asn.to_string(), *count)).collect();
    family.counters(
        "weir_bgp_reconcile_errors",
        "Reconciliations that could not apply a router's policy completely; router 0: several \
         policies, or an invalid annotation. `weir bgp policies` shows what to fix.",
        errors.iter().map(|(asn, count)| ([("router", asn.as_str())], *count)),
    )?;
    family.gauge(
        "weir_bgp_reconcile_failing",
        "1 while the last reconciliation could not apply the policies completely; `weir bgp \
         policies` shows what to fix.",
        f64::from(u8::from(!counts.error.is_empty())),
    )?;
    family.metric(
        "weir_bgp_reconcile_run_duration_seconds",
        "Duration of BGP's reconciliations in seconds.",
        MetricType::Histogram,
        // Only the sum and the count are kept: a single bucket holds all runs.
        |encoder| {
            let all = [(f64::MAX, counts.runs)];
            encoder.encode_histogram::<NoLabelSet>(counts.seconds, counts.runs, &all, None)
        },
    )
}
