//! Tests of the calls that an announcer makes to its speaker.

use bgp::peer::State;
use serde_json::{Value, json};
use state::object::bgp::Password;

use super::*;
use crate::fixture::{Recorder, policy, router, service, state, tables};
use crate::secrets::Files;
use crate::status::{RouteQuery, RouteView};

const PEER: &str = "192.0.2.254";

fn announcer(settings: Settings) -> Announcer<Recorder> {
    Announcer::new(Recorder::default(), Arc::new(Files::default()), settings)
}

/// Returns a snapshot with one service that has these load balancer addresses.
fn web(addresses: &[&str]) -> ControlPlaneState {
    let frontends: Vec<_> =
        addresses.iter().map(|address| (*address, 80, "LoadBalancer")).collect();
    state(tables(&[service("web", json!({}), &frontends)]))
}

impl Announcer<Recorder> {
    /// Applies a policy without defects, and returns the calls to the speaker.
    fn round(&mut self, routers: Value, state: &ControlPlaneState) -> Vec<String> {
        self.configure_peers(Some(&policy("edge", routers)), state).unwrap();
        self.speaker.take_calls()
    }
}

#[test]
fn policy_adds_peers_with_routes_and_unchanged_rounds_change_nothing() {
    let mut announcer = announcer(Settings::default());
    let routers = json!([router(65001, PEER)]);
    let first = announcer.round(routers.clone(), &web(&["203.0.113.1"]));
    assert_eq!(first, ["add 65001-192.0.2.254", "routes 65001-192.0.2.254 1", "complete"]);
    let again = announcer.round(routers, &web(&["203.0.113.1"]));
    assert_eq!(again, ["complete"]);
}

#[test]
fn service_and_attribute_changes_keep_sessions() {
    let mut announcer = announcer(Settings::default());
    let mut router = router(65001, PEER);
    announcer.round(json!([router]), &web(&["203.0.113.1"]));
    let more = announcer.round(json!([router]), &web(&["203.0.113.1", "203.0.113.2"]));
    assert_eq!(more, ["routes 65001-192.0.2.254 2", "complete"]);
    router["advertisements"][0]["attributes"] = json!({"med": 5});
    router["neighbors"][0]["families"] =
        json!([{"family": "ipv4-unicast"}, {"family": "ipv6-unicast", "attributes": {"med": 7}}]);
    let changed = announcer.round(json!([router]), &web(&["203.0.113.1", "203.0.113.2"]));
    assert_eq!(changed, ["routes 65001-192.0.2.254 2", "complete"]);
    // A changed session setting restarts the session, with its routes.
    router["neighbors"][0]["hold_s"] = json!(60);
    let anew = announcer.round(json!([router]), &web(&["203.0.113.1", "203.0.113.2"]));
    let expected = [
        "remove 65001-192.0.2.254 Changed",
        "add 65001-192.0.2.254",
        "routes 65001-192.0.2.254 2",
        "complete",
    ];
    assert_eq!(anew, expected);
}

#[test]
fn neighbors_are_added_before_others_are_removed() {
    let mut announcer = announcer(Settings::default());
    announcer.round(json!([router(65001, PEER), router(65002, "192.0.2.2")]), &web(&[]));
    let calls = announcer.round(json!([router(65001, "192.0.2.253")]), &web(&["203.0.113.1"]));
    let expected = [
        "add 65001-192.0.2.253",
        "remove 65001-192.0.2.254 Deconfigured",
        "routes 65001-192.0.2.253 1",
        "remove 65002-192.0.2.2 Deconfigured",
        "complete",
    ];
    assert_eq!(calls, expected);
    // A neighbor that moves to another router has one session at a time.
    let calls = announcer.round(json!([router(65003, "192.0.2.253")]), &web(&[]));
    let expected = ["remove 65001-192.0.2.253 Deconfigured", "add 65003-192.0.2.253", "complete"];
    assert_eq!(calls, expected);
}

#[test]
fn changed_identity_restarts_all_sessions_of_the_router() {
    let mut announcer = announcer(Settings::default());
    let both = |id: &str| {
        let mut router = router(65001, PEER);
        router["router_id"] = id.into();
        router["neighbors"].as_array_mut().unwrap().push(json!({"address": "192.0.2.253"}));
        json!([router])
    };
    announcer.round(both("192.0.2.1"), &web(&["203.0.113.1"]));
    let calls = announcer.round(both("192.0.2.2"), &web(&["203.0.113.1"]));
    let expected = [
        "remove 65001-192.0.2.253 Changed",
        "remove 65001-192.0.2.254 Changed",
        "add 65001-192.0.2.254",
        "add 65001-192.0.2.253",
        "routes 65001-192.0.2.254 1",
        "routes 65001-192.0.2.253 1",
        "complete",
    ];
    assert_eq!(calls, expected);
    let mut listening = both("192.0.2.2");
    listening[0]["listen_port"] = json!(179);
    let calls = announcer.round(listening, &web(&["203.0.113.1"]));
    assert_eq!(calls[0], "remove 65001-192.0.2.253 Changed");
    let ports: Vec<_> = announcer.speaker.peers.values().map(|peer| peer.0.listen_port).collect();
    assert_eq!(ports, [Some(179); 2]);
}

#[test]
fn no_policy_removes_all_peers_once() {
    let mut announcer = announcer(Settings::default());
    announcer.round(json!([router(65001, PEER)]), &web(&["203.0.113.1"]));
    let state = web(&[]);
    announcer.configure_peers(None, &state).unwrap();
    assert_eq!(announcer.speaker.take_calls(), ["remove 65001-192.0.2.254 Deconfigured"]);
    announcer.configure_peers(None, &state).unwrap();
    assert_eq!(announcer.speaker.take_calls(), Vec::<String>::new());
}

#[test]
fn stopped_data_plane_withdraws_routes_and_keeps_the_session() {
    let mut announcer = announcer(Settings::default());
    let routers = json!([router(65001, PEER)]);
    let mut state = web(&["203.0.113.1"]);
    announcer.round(routers.clone(), &state);
    state.plane.forwarding = false;
    let calls = announcer.round(routers.clone(), &state);
    assert_eq!(calls, ["routes 65001-192.0.2.254 0", "complete"]);
    state.plane.forwarding = true;
    let calls = announcer.round(routers, &state);
    assert_eq!(calls, ["routes 65001-192.0.2.254 1", "complete"]);
}

#[test]
fn end_of_rib_waits_until_all_frontends_are_acknowledged() {
    let mut announcer = announcer(Settings::default());
    let mut state = web(&["203.0.113.1"]);
    state.plane.complete = false;
    let calls = announcer.round(json!([router(65001, PEER)]), &state);
    assert_eq!(calls, ["add 65001-192.0.2.254", "routes 65001-192.0.2.254 1"]);
    state.plane.complete = true;
    assert_eq!(announcer.round(json!([router(65001, PEER)]), &state), ["complete"]);
}

#[test]
fn defect_is_reported_and_affects_only_its_router() {
    let mut announcer = announcer(Settings::default());
    let mut state = web(&["203.0.113.1"]);
    announcer.round(json!([router(65001, PEER)]), &state);
    // Without an address the router keeps its identity, so that its routes follow the state.
    state.ipv4 = None;
    state.plane.forwarding = false;
    let routers = json!([router(65001, PEER), {"local_asn": 65002, "router_id": "192.0.2.9",
        "neighbors": [{"address": "192.0.2.1"}]}]);
    let defect = announcer.configure_peers(Some(&policy("edge", routers)), &state).unwrap_err();
    assert_eq!(defect.0.len(), 1, "{defect}");
    assert_eq!((defect.0[0].local_asn, &defect.0[0].kind), (65001, &DefectKind::NoRouterId));
    let expected = ["routes 65001-192.0.2.254 0", "add 65002-192.0.2.1", "complete"];
    assert_eq!(announcer.speaker.take_calls(), expected);
}

/// Secrets with keys that a test sets and removes.
#[derive(Default)]
struct FakeSecrets(parking_lot::Mutex<BTreeMap<Password, String>>);

impl FakeSecrets {
    fn set(&self, secret: &str, key: Option<&str>) {
        let named = Password::Secret(secret.into());
        match key {
            Some(key) => self.0.lock().insert(named, key.to_owned()),
            None => self.0.lock().remove(&named),
        };
    }
}

impl Secrets for FakeSecrets {
    fn password(&self, named: &Password) -> Result<String, String> {
        self.0.lock().get(named).cloned().ok_or_else(|| format!("/etc/weir/{named:?}: gone"))
    }
}

#[test]
fn missing_key_prevents_a_session_and_keeps_an_authenticated_one() {
    let keys = Arc::new(FakeSecrets::default());
    let mut announcer =
        Announcer::new(Recorder::default(), Arc::clone(&keys) as _, Settings::default());
    let named = |secret: Option<&str>| {
        let mut router = router(65001, PEER);
        if let Some(secret) = secret {
            router["neighbors"][0]["password"] = json!({"secret": secret});
        }
        json!([router])
    };
    let md5 = |announcer: &Announcer<Recorder>| {
        let peer = announcer.speaker.peers.values().next();
        peer.map(|peer| peer.0.settings.transport.md5.clone())
    };
    let missing = |announcer: &mut Announcer<Recorder>, secret: &str| {
        let policy = policy("edge", named(Some(secret)));
        let defect = announcer.configure_peers(Some(&policy), &web(&[])).unwrap_err();
        let neighbor = PEER.parse().unwrap();
        assert_eq!(defect.0[0].kind, DefectKind::MissingAuthSecret { neighbor });
        // Path and cause are only logged.
        assert!(!defect.to_string().contains("gone"), "{defect}");
        announcer.speaker.take_calls()
    };
    // Key missing: no session. Key present: an authenticated session.
    assert_eq!(missing(&mut announcer, "peers"), ["complete"]);
    keys.set("peers", Some("hidden"));
    let calls = announcer.round(named(Some("peers")), &web(&[]));
    assert_eq!(calls, ["add 65001-192.0.2.254", "complete"]);
    assert_eq!(md5(&announcer), Some(Some("hidden".to_owned())));
    // Key removed: the session continues with its current key.
    keys.set("peers", None);
    assert_eq!(missing(&mut announcer, "peers"), ["complete"]);
    assert_eq!(md5(&announcer), Some(Some("hidden".to_owned())));
    // The removed key counts as rejected once; a key that was missing from the start does not.
    let counts = announcer.key_counts();
    assert_eq!((counts.rejected(), counts.unusable()), (1, 1));
    // Key set to another value: it is replaced in the session.
    keys.set("peers", Some("newer"));
    let calls = announcer.round(named(Some("peers")), &web(&[]));
    assert_eq!(calls, ["keys 65001-192.0.2.254", "complete"]);
    assert_eq!(md5(&announcer), Some(Some("newer".to_owned())));
    assert_eq!((counts.rejected(), counts.unusable()), (1, 0));
    assert_eq!(announcer.round(named(Some("peers")), &web(&[])), ["complete"], "once");
    // The policy names another secret, which is missing: the session ends, rather than continue
    // with the previous key or without authentication.
    let calls = missing(&mut announcer, "others");
    assert_eq!(calls, ["remove 65001-192.0.2.254 Deconfigured", "complete"]);
    // An unauthenticated session ends if a key is configured that is missing.
    announcer.round(named(None), &web(&[]));
    assert_eq!(md5(&announcer), Some(None));
    let calls = missing(&mut announcer, "others");
    assert_eq!(calls, ["remove 65001-192.0.2.254 Deconfigured", "complete"]);
}

#[test]
fn restart_bit_is_set_only_for_peers_of_the_first_policy() {
    let settings = Settings { restarted: true, ..Settings::default() };
    let mut announcer = announcer(settings);
    let routers = |addresses: &[&str]| {
        let neighbors: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"address": address, "graceful_restart": {"enabled": true}}))
            .collect();
        json!([{"local_asn": 65001, "neighbors": neighbors}])
    };
    announcer.round(routers(&["192.0.2.1"]), &web(&[]));
    // The R bit of the first session does not count as a difference in later rounds.
    let calls = announcer.round(routers(&["192.0.2.1", "192.0.2.2"]), &web(&[]));
    assert_eq!(calls, ["add 65001-192.0.2.2", "complete"]);
    let restart_bits = |announcer: &Announcer<Recorder>| -> Vec<(bool, bool)> {
        let peers = announcer.speaker.peers.values();
        let peers = peers.map(|peer| peer.0.settings.graceful_restart.unwrap());
        peers.map(|restart| (restart.restarted, restart.forwarding)).collect()
    };
    assert_eq!(restart_bits(&announcer), [(true, true), (false, true)]);
    // After a restart of the machine, the data plane serves none of the routes that neighbors kept,
    // so the R and F bits are both cleared.
    let mut fresh = self::announcer(Settings::default());
    fresh.round(routers(&["192.0.2.1"]), &web(&[]));
    assert_eq!(restart_bits(&fresh), [(false, false)]);
}

#[test]
fn restarted_announcer_waits_for_the_data_plane() {
    let after_restart = || announcer(Settings { restarted: true, ..Settings::default() });
    let neighbor = json!({"address": "192.0.2.1", "graceful_restart": {"enabled": true}});
    let routers = json!([{"local_asn": 65001, "neighbors": [neighbor]}]);
    let mut state = web(&[]);
    state.plane.forwarding = false;
    let forwarding = |announcer: &Announcer<Recorder>| {
        let peers = announcer.speaker.peers.values();
        peers.map(|peer| peer.0.settings.graceful_restart.unwrap().forwarding).collect::<Vec<_>>()
    };
    let (mut with_plane, mut without_plane) = (after_restart(), after_restart());
    for waiting in [&mut with_plane, &mut without_plane] {
        assert_eq!(waiting.round(routers.clone(), &state), Vec::<String>::new());
        assert_eq!(waiting.next_due(), Some(state.taken + DATA_PLANE_TIMEOUT));
    }
    let mut running = state.clone();
    running.plane.forwarding = true;
    with_plane.round(routers.clone(), &running);
    assert_eq!(forwarding(&with_plane), [true]);
    // Without a running data plane, the F bit informs neighbors that forwarding was interrupted.
    state.taken += DATA_PLANE_TIMEOUT;
    without_plane.round(routers, &state);
    assert_eq!(forwarding(&without_plane), [false]);
}

#[test]
fn drain_withdraws_at_once_or_after_graceful_shutdown() {
    let routers = json!([router(65001, PEER)]);
    let mut state = web(&["203.0.113.1"]);
    let mut plain = announcer(Settings::default());
    plain.round(routers.clone(), &state);
    state.plane.draining = true;
    let calls = plain.round(routers.clone(), &state);
    assert_eq!(calls, ["routes 65001-192.0.2.254 0", "complete"]);
    assert!(plain.is_withdrawn());

    let wait = Duration::from_secs(30);
    let drain = DrainStart::GracefulShutdown(wait);
    let mut graceful = announcer(Settings { drain, ..Settings::default() });
    state.plane.draining = false;
    graceful.round(routers.clone(), &state);
    state.plane.draining = true;
    let began = state.taken;
    let calls = graceful.round(routers.clone(), &state);
    assert_eq!(calls, ["graceful shutdown true", "complete"]);
    assert_eq!((graceful.next_due(), graceful.is_withdrawn()), (Some(began + wait), false));
    state.taken = began + wait;
    let calls = graceful.round(routers.clone(), &state);
    assert_eq!(calls, ["routes 65001-192.0.2.254 0", "complete"]);
    assert_eq!((graceful.next_due(), graceful.is_withdrawn()), (None, true));
    // After the drain, graceful shutdown is off and the routes are back.
    state.plane.draining = false;
    let calls = graceful.round(routers, &state);
    assert_eq!(calls, ["graceful shutdown false", "routes 65001-192.0.2.254 1", "complete"]);
}

#[test]
fn drain_from_before_the_restart_withdraws_at_once() {
    let routers = json!([router(65001, PEER)]);
    let drain = DrainStart::GracefulShutdown(Duration::from_secs(30));
    let mut announcer = announcer(Settings { drain, restarted: true, ..Settings::default() });
    let mut state = web(&["203.0.113.1"]);
    state.plane.draining = true;
    let calls = announcer.round(routers.clone(), &state);
    assert_eq!(calls, ["add 65001-192.0.2.254", "complete"]);
    assert_eq!(announcer.next_due(), None);
    state.plane.draining = false;
    let calls = announcer.round(routers.clone(), &state);
    assert_eq!(calls, ["routes 65001-192.0.2.254 1", "complete"]);
    // The next drain begins in this process, so graceful shutdown precedes the withdrawal.
    state.plane.draining = true;
    let calls = announcer.round(routers, &state);
    assert_eq!(calls, ["graceful shutdown true", "complete"]);
}

#[test]
fn rows_show_peers_routes_and_policies() {
    let mut announcer = announcer(Settings::default());
    let mut router = router(65001, PEER);
    router["advertisements"][0]["attributes"] = json!({"communities": ["no-export"]});
    router["neighbors"].as_array_mut().unwrap().push(json!({"address": "192.0.2.253"}));
    let mut state = web(&["203.0.113.1", "203.0.113.2"]);
    let first = state.taken;
    announcer.round(json!([router]), &state);
    // An unchanged route keeps its age; a new one starts at 0.
    let later = first + Duration::from_secs(10);
    let now = first + Duration::from_secs(15);
    state = ControlPlaneState { taken: later, ..web(&["203.0.113.2", "203.0.113.3"]) };
    announcer.round(json!([router]), &state);
    let peers = announcer.peer_rows(now);
    assert_eq!(peers.len(), 4);
    let row = &peers[2];
    assert_eq!((&*row.node, row.local_asn, row.peer_asn), ("edge-1", 65001, 65000));
    assert_eq!((row.peer.to_string(), row.state), ("192.0.2.254:179".to_owned(), State::Connect));
    assert_eq!((row.uptime_s, row.received, row.advertised), (None, 0, 0));
    let query = |family: &str| RouteQuery { family: family.to_owned(), ..RouteQuery::default() };
    let routes = |which, family: &str| announcer.routes(now, which, &query(family)).unwrap();
    let rows = routes(RouteView::Available, "ipv4-unicast");
    let text: Vec<String> = rows
        .iter()
        .filter(|row| row.peer.ip().to_string() == PEER)
        .map(|row| format!("{} {} {} {}", row.prefix, row.next_hop, row.age_s, row.attributes))
        .collect();
    let attributes = "origin igp, communities 65535:65281";
    let expected = [
        format!("203.0.113.2/32 192.0.2.10 15 {attributes}"),
        format!("203.0.113.3/32 192.0.2.10 5 {attributes}"),
    ];
    assert_eq!((text, rows.len()), (expected.to_vec(), 4));
    assert!(routes(RouteView::Available, "ipv6-unicast").is_empty());
    // No session is established, so no routes are advertised.
    assert!(routes(RouteView::Advertised, "").is_empty());
    let rows = serde_json::to_value(announcer.policy_rows()).unwrap();
    let expected = json!([
        {
            "router": 65001, "policy": "edge", "type": "export",
            "peers": ["192.0.2.253:179", "192.0.2.254:179"], "families": ["ipv4-unicast"],
            "prefixes": [
                {"prefix": "203.0.113.2/32", "min": 32, "max": 32},
                {"prefix": "203.0.113.3/32", "min": 32, "max": 32}
            ],
            "rib_action": "accept", "path_actions": format!("next hop 192.0.2.10, {attributes}")
        },
        {
            "router": 65001, "policy": "edge", "type": "import", "peers": [],
            "families": ["ipv4-unicast", "ipv6-unicast"], "prefixes": [],
            "rib_action": "reject", "path_actions": ""
        }
    ]);
    assert_eq!(rows, expected);
}

/// Regression test: the routers used to remove each other's session in every round.
#[test]
fn two_routers_peer_with_one_neighbor_from_separate_addresses() {
    let mut announcer = announcer(Settings::default());
    let from = |asn: u32, local: &str| {
        let mut router = router(asn, PEER);
        router["neighbors"][0]["local_address"] = local.into();
        router
    };
    let both = json!([from(65001, "192.0.2.1"), from(65002, "192.0.2.2")]);
    let calls = announcer.round(both.clone(), &web(&[]));
    assert_eq!(calls, ["add 65001-192.0.2.254", "add 65002-192.0.2.254", "complete"]);
    assert_eq!(announcer.round(both, &web(&[])), ["complete"]);
    // A router with the same local address replaces the session of the first router.
    let calls = announcer.round(json!([from(65003, "192.0.2.1")]), &web(&[]));
    let expected = [
        "remove 65001-192.0.2.254 Deconfigured",
        "add 65003-192.0.2.254",
        "remove 65002-192.0.2.254 Deconfigured",
        "complete",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn unresolved_neighbors_and_closed_cluster_ips_are_only_reported() {
    let mut announcer = announcer(Settings::default());
    let mut router = router(65001, PEER);
    let missing = "peer `tor2`: there is no CiliumBGPPeerConfig `gone`";
    router["unresolved"] = json!([missing]);
    router["advertisements"][0]["kinds"] = json!(["LoadBalancerIP", "ClusterIP"]);
    let policy = policy("edge", json!([router]));
    let mut state = web(&["203.0.113.1"]);
    let defect = announcer.configure_peers(Some(&policy), &state).unwrap_err();
    let kinds: Vec<&DefectKind> = defect.0.iter().map(|defect| &defect.kind).collect();
    assert_eq!(kinds, [&DefectKind::Unresolved(missing.into()), &DefectKind::ClusterIpClosed]);
    let calls = announcer.speaker.take_calls();
    assert_eq!(calls, ["add 65001-192.0.2.254", "routes 65001-192.0.2.254 1", "complete"]);
    Arc::make_mut(&mut state.plane.appliance).external_cluster_ip = true;
    let defect = announcer.configure_peers(Some(&policy), &state).unwrap_err();
    assert_eq!(defect.0.len(), 1, "{defect}");
}
