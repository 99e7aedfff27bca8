//! Metrics of BGP sessions.

use std::fmt;
use std::time::Instant;

use bgp::peer::State;
use bgp::speaker::status::PeerSocketStatus;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;

use super::family::Family;
use crate::routing::BgpState;

/// A neighbor and the values of its labels.
struct Neighbor {
    told: PeerSocketStatus,
    router: String,
    address: String,
    asn: String,
}

impl Neighbor {
    fn new(told: PeerSocketStatus) -> Neighbor {
        let peer = &told.peer;
        let (router, address) = (peer.local_asn.to_string(), peer.peer.to_string());
        Neighbor { router, address, asn: peer.peer_asn.to_string(), told }
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        [("router", &self.router), ("neighbor", &self.address), ("neighbor_asn", &self.asn)]
    }

    /// Returns the neighbor's labels and one more.
    fn and<'l>(&'l self, name: &'static str, value: &'l str) -> [(&'static str, &'l str); 4] {
        let [router, address, asn] = self.labels();
        [router, address, asn, (name, value)]
    }

    /// Returns the neighbor's labels and those of an address family.
    fn of(&self, family: bgp::wire::Family) -> [(&'static str, &str); 5] {
        let [router, address, asn] = self.labels();
        let afi = match family {
            bgp::wire::Family::Ipv4Unicast => "ipv4",
            bgp::wire::Family::Ipv6Unicast => "ipv6",
        };
        [router, address, asn, ("afi", afi), ("safi", "unicast")]
    }
}

/// Encodes all metrics of BGP.
pub(super) fn encode(state: &BgpState, family: &mut Family<'_, '_>) -> fmt::Result {
    let report = state.sockets.status(Instant::now());
    let all: Vec<Neighbor> = report.peers.into_iter().map(Neighbor::new).collect();
    sessions(&all, family)?;
    routes(&all, family)?;
    rounds(state, family)
}

fn sessions(all: &[Neighbor], family: &mut Family<'_, '_>) -> fmt::Result {
    let flag = |on: bool| f64::from(u8::from(on));
    family.gauges(
        "weir_bgp_session_state",
        "1 while the session with a BGP neighbor is established; `weir bgp peers --detail` says \
         why it is not.",
        all.iter().map(|one| (one.labels(), flag(one.told.peer.state == State::Established))),
    )?;
    family.counters(
        "weir_bgp_session_flaps",
        "How often an established session ended, whoever ended it; `weir bgp peers --detail` has \
         the last notification of either side.",
        all.iter().map(|one| (one.labels(), one.told.peer.flaps)),
    )?;
    family.counters(
        "weir_bgp_connections_refused",
        "Connections of a neighbor that were not let in: look for a wrong ASN, address or \
         password on its side.",
        all.iter().map(|one| (one.labels(), one.told.peer.refused)),
    )?;
    let watched = all.iter().filter_map(|one| one.told.bfd.as_ref().map(|bfd| (one, bfd)));
    family.gauges(
        "weir_bgp_bfd_session_state",
        "1 while BFD hears the neighbor, of those neighbors that it watches; at 0 the session is \
         kept down: look at the cable, and at BFD on the neighbor.",
        watched.map(|(one, bfd)| (one.labels(), flag(bfd.up))),
    )?;
    let connected = || all.iter().filter_map(|one| Some((one, one.told.peer.connection.as_ref()?)));
    family.counters(
        "weir_bgp_received_messages",
        "Messages that came on the connection of now, by type.",
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let types = [
                ("update", messages.updates),
                ("keepalive", messages.keepalives),
                ("route-refresh", messages.refreshes),
            ];
            types.map(|(kind, count)| (one.and("type", kind), count))
        }),
    )?;
    family.counters(
        "weir_bgp_malformed_updates",
        "UPDATEs of the connection of now with something wrong in them, by what became of them \
         (RFC 7606): an attribute was passed over, or its routes counted as withdrawn. The \
         neighbor is at fault; `weir bgp peers --detail` names the last one's.",
        connected().flat_map(|(one, connection)| {
            let messages = connection.messages;
            let handling = [
                ("attribute-discard", messages.discarded),
                ("treat-as-withdraw", messages.withdrawn),
            ];
            handling.map(|(handling, count)| (one.and("treated", handling), count))
        }),
    )
}

fn routes(all: &[Neighbor], family: &mut Family<'_, '_>) -> fmt::Result {
    let families =
        || all.iter().flat_map(|one| one.told.peer.families.iter().map(move |f| (one, f)));
    family.gauges(
        "weir_bgp_advertised_routes",
        "Routes that a neighbor has from us; 0 where traffic is expected: `weir bgp routes \
         available` says what it shall have, `weir status` whether this appliance is able.",
        families().map(|(one, of)| (one.of(of.family), of.advertised as f64)),
    )?;
    family.gauges(
        "weir_bgp_received_routes",
        "Routes that a neighbor told us; they are counted and never installed.",
        families().map(|(one, of)| (one.of(of.family), of.received.prefixes as f64)),
    )
}

fn rounds(state: &BgpState, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = state.counts.lock().clone();
    let errors: Vec<(String, u64)> =
        counts.errors.iter().map(|(asn, count)| (asn.to_string(), *count)).collect();
    family.counters(
        "weir_bgp_reconcile_errors",
        "Rounds in which a router could not be carried out as its policy says; router 0: several \
         policies, or an annotation that means nothing. `weir bgp policies` says what to mend.",
        errors.iter().map(|(asn, count)| ([("router", asn.as_str())], *count)),
    )?;
    family.gauge(
        "weir_bgp_reconcile_failing",
        "1 while the last round could not carry out all that policies say; `weir bgp policies` \
         says what to mend.",
        f64::from(u8::from(!counts.error.is_empty())),
    )?;
    family.metric(
        "weir_bgp_reconcile_run_duration_seconds",
        "How long rounds of BGP's control loop took, together, and how many there were.",
        MetricType::Histogram,
        // Only the sum and the count are kept: a single bucket holds all runs.
        |encoder| {
            let all = [(f64::MAX, counts.runs)];
            encoder.encode_histogram::<NoLabelSet>(counts.seconds, counts.runs, &all, None)
        },
    )
}
