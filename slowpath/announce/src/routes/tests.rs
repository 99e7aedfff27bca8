//! Table-driven and property tests of routes.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use state::appliance::Appliance;
use state::frontend::Progress;

use super::*;
use crate::fixture::{backends, pairs, pending_tables, policy, service, state, tables};

const LB: &str = "LoadBalancer";

/// Returns a router with one advertisement and one neighbor with these keys.
fn router(advertisement: Value, neighbor: Value) -> RouterSpec {
    let mut all = json!({"address": "192.0.2.254", "asn": 65000});
    for (key, value) in neighbor.as_object().unwrap() {
        all[key] = value.clone();
    }
    let router = json!({"local_asn": 65001, "advertisements": [advertisement], "neighbors": [all]});
    policy("edge", json!([router])).spec.routers[0].clone()
}

fn table_of(
    router: &RouterSpec,
    state: &ControlPlaneState,
    no_backends: NoBackends,
) -> (Table, Vec<DefectKind>) {
    let offered = offered_prefixes(router, &state.plane, no_backends);
    table(router, &router.neighbors[0], &offered, state)
}

/// Returns the prefixes that a router with this advertisement announces.
fn announced(advertisement: Value, state: &ControlPlaneState) -> Vec<String> {
    let (table, defects) = table_of(&router(advertisement, json!({})), state, NoBackends::Announce);
    assert_eq!(defects, []);
    table.routes.keys().map(ToString::to_string).collect()
}

fn all_kinds() -> Value {
    json!({"services": {}, "kinds": ["LoadBalancerIP", "ClusterIP", "ExternalIP"]})
}

#[test]
fn services_are_selected_by_labels_and_by_name() {
    let web = service("shop/web", json!({"labels": {"tier": "front"}}), &[("203.0.113.1", 80, LB)]);
    let dns = service("shop/dns", json!({}), &[("203.0.113.2", 53, LB)]);
    let mail = service("mail", json!({}), &[("2001:db8:1::3", 25, LB)]);
    let state = state(tables(&[web, dns, mail]));
    let (web, dns, mail) = ("203.0.113.1/32", "203.0.113.2/32", "2001:db8:1::3/128");
    for (selector, expected) in [
        (json!({}), vec![web, dns, mail]),
        (json!({"match_labels": {"tier": "front"}}), vec![web]),
        (json!({"match_labels": {NAME: "dns"}}), vec![dns]),
        (json!({"match_labels": {NAMESPACE: "shop"}}), vec![web, dns]),
        (json!({"match_labels": {NAMESPACE: "default"}}), vec![mail]),
        (
            json!({"match_expressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            vec![dns, mail],
        ),
        (json!({"match_labels": {"tier": "back"}}), vec![]),
    ] {
        assert_eq!(announced(json!({"services": selector}), &state), expected, "{selector}");
    }
    // Without a selector no services are selected.
    assert_eq!(announced(json!({}), &state), Vec::<String>::new());
}

#[test]
fn address_kinds_are_announced_as_configured() {
    let web = service(
        "web",
        json!({}),
        &[
            ("203.0.113.1", 80, LB),
            ("10.96.0.1", 80, "ClusterIP"),
            ("198.51.100.1", 80, "ExternalIPs"),
            ("0.0.0.0", 30080, "NodePort"),
            ("203.0.113.64/26", 80, LB),
        ],
    );
    let mut state = state(tables(&[web]));
    let lb = ["203.0.113.1/32", "203.0.113.64/26"];
    let of = |kinds: Value, state: &ControlPlaneState| {
        announced(json!({"services": {}, "kinds": kinds}), state)
    };
    assert_eq!(announced(json!({"services": {}}), &state), lb);
    assert_eq!(of(json!(["ExternalIP"]), &state), ["198.51.100.1/32"]);
    // Cluster addresses accept no external packets unless the appliance is configured to.
    assert_eq!(of(json!(["ClusterIP"]), &state), Vec::<String>::new());
    let open = Appliance { external_cluster_ip: true, ..Appliance::clone(&state.plane.appliance) };
    state.plane.appliance = Arc::new(open);
    assert_eq!(of(json!(["ClusterIP"]), &state), ["10.96.0.1/32"]);
    assert_eq!(announced(all_kinds(), &state).len(), 4);
}

#[test]
fn gateway_endpoint_frontends_are_not_announced() {
    let mut web = service("web", json!({}), &[("203.0.113.1", 80, LB)]);
    web["spec"]["frontends"][0]["scope"] = "0x1f".into();
    assert_eq!(announced(all_kinds(), &state(tables(&[web]))), Vec::<String>::new());
}

#[test]
fn local_traffic_policy_needs_an_active_local_backend() {
    let external = json!({"external_policy": "local"});
    let internal = json!({"internal_policy": "local"});
    let (lb, cluster) = ("203.0.113.1/32", "10.96.0.1/32");
    let local = ("10.0.0.1", "active", "n1");
    for (policy, backend, expected) in [
        (&external, vec![local], vec![cluster, lb]),
        (&external, vec![("10.0.0.1", "active", "n2")], vec![cluster]),
        (&external, vec![("10.0.0.1", "terminating", "n1")], vec![cluster]),
        (&external, vec![("10.0.0.1", "quarantined", "n1")], vec![cluster]),
        (
            &external,
            vec![("10.0.0.1", "terminating", "n1"), ("10.0.0.2", "active", "n1")],
            vec![cluster, lb],
        ),
        // A backend without a known node counts as local on every appliance.
        (&external, vec![("10.0.0.1", "active", "")], vec![cluster, lb]),
        (&external, vec![], vec![cluster]),
        (&internal, vec![("10.0.0.1", "active", "n2")], vec![lb]),
        (&internal, vec![local], vec![cluster, lb]),
        (&json!({}), vec![], vec![cluster, lb]),
    ] {
        let frontends = [("203.0.113.1", 80, LB), ("10.96.0.1", 80, "ClusterIP")];
        let objects = [service("web", policy.clone(), &frontends), backends("web", &backend)];
        let mut state = state(tables(&objects));
        let open =
            Appliance { external_cluster_ip: true, ..Appliance::clone(&state.plane.appliance) };
        state.plane.appliance = Arc::new(open);
        assert_eq!(announced(all_kinds(), &state), expected, "{policy} {backend:?}");
    }
}

#[test]
fn one_local_backend_of_either_family_is_enough_for_all_addresses() {
    let frontends = [("203.0.113.1", 80, LB), ("2001:db8:1::1", 80, LB)];
    let objects = [
        service("web", json!({"external_policy": "local"}), &frontends),
        backends("web", &[("2001:db8:2::1", "active", "n1")]),
    ];
    let prefixes = announced(all_kinds(), &state(tables(&objects)));
    assert_eq!(prefixes, ["203.0.113.1/32", "2001:db8:1::1/128"]);
}

#[test]
fn cluster_policy_without_backends_follows_the_setting() {
    let router = router(json!({"services": {}}), json!({}));
    for (backend, announced) in [
        (vec![], false),
        (vec![("10.0.0.1", "active", "n2")], true),
        (vec![("10.0.0.1", "terminating", "n2")], true),
        (vec![("10.0.0.1", "maintenance", "n2")], false),
        (vec![("10.0.0.1", "quarantined", "n2")], false),
    ] {
        let web = service("web", json!({}), &[("203.0.113.1", 80, LB)]);
        let state = state(tables(&[web, backends("web", &backend)]));
        let count = |no_backends| table_of(&router, &state, no_backends).0.routes.len();
        assert_eq!(count(NoBackends::Announce), 1);
        assert_eq!(count(NoBackends::Withdraw), usize::from(announced), "{backend:?}");
    }
}

#[test]
fn shared_address_is_withdrawn_with_the_last_service() {
    let web = service("web", json!({}), &[("203.0.113.1", 80, LB)]);
    let dns = service("dns", json!({}), &[("203.0.113.1", 53, LB)]);
    for objects in [vec![web.clone(), dns.clone()], vec![web], vec![dns]] {
        assert_eq!(announced(all_kinds(), &state(tables(&objects))), ["203.0.113.1/32"]);
    }
    assert_eq!(announced(all_kinds(), &state(tables(&[]))), Vec::<String>::new());
}

#[test]
fn prefixes_and_aggregates_are_announced() {
    let objects = [
        service("web", json!({}), &[("203.0.113.1", 80, LB), ("203.0.113.9", 80, LB)]),
        service("six", json!({}), &[("2001:db8:1::1", 80, LB)]),
        service("here", json!({"external_policy": "local"}), &[("203.0.113.200", 80, LB)]),
        backends("here", &[("10.0.0.1", "active", "n1")]),
    ];
    let mut state = state(tables(&objects));
    let advertisement = json!({"services": {}, "aggregation": {"ipv4": 25, "ipv6": 48},
        "prefixes": ["198.51.100.0/24", "192.0.2.1"]});
    let expected = [
        "192.0.2.1/32",
        "198.51.100.0/24",
        "203.0.113.0/25",
        "203.0.113.200/32",
        "2001:db8:1::/48",
    ];
    assert_eq!(announced(advertisement.clone(), &state), expected);
    // While the data plane takes no traffic, nothing is announced, not even the prefixes that the
    // policy lists.
    state.plane.forwarding = false;
    assert_eq!(announced(advertisement, &state), Vec::<String>::new());
}

#[test]
fn attributes_of_all_matching_advertisements_are_merged() {
    let objects = [service(
        "web",
        json!({}),
        &[("203.0.113.1", 80, LB), ("198.51.100.1", 80, "ExternalIPs")],
    )];
    let state = state(tables(&objects));
    let of = |asn: u32| {
        let router = json!({
            "local_asn": 65001,
            "advertisements": [
                {"name": "a", "services": {}, "kinds": ["LoadBalancerIP", "ExternalIP"],
                    "attributes": {"communities": ["65000:2", "no-export", "65535:65281"],
                        "local_preference": 100, "med": 20, "prepend": 1}},
                {"name": "b", "services": {}, "attributes": {"communities": ["65000:1"],
                    "large_communities": ["1:2:3"], "local_preference": 200, "med": 10}},
                {"name": "never", "services": {}, "attributes": {"communities": ["9:9"]}}
            ],
            "neighbors": [{"address": "192.0.2.254", "asn": asn, "families": [{
                "family": "ipv4-unicast", "advertisements": ["a", "b"],
                "attributes": {"kinds": ["ExternalIP"], "prepend": 3}
            }]}]
        });
        let router = policy("edge", json!([router])).spec.routers[0].clone();
        let (table, defects) = table_of(&router, &state, NoBackends::Announce);
        assert_eq!(defects, []);
        let text = |(net, attributes): (&IpNet, &Arc<Attributes>)| {
            let local_pref = attributes.local_pref.unwrap_or_default();
            let (med, large) = (attributes.med.unwrap_or_default(), attributes.large.len());
            assert_eq!(attributes.next_hop.to_string(), "192.0.2.10");
            format!(
                "{net} {:x?} {large} {local_pref} {med} {}",
                attributes.communities, attributes.prepend
            )
        };
        table.routes.iter().map(text).collect::<Vec<_>>()
    };
    let external = [
        "198.51.100.1/32 [fde80002, ffffff01] 0 0 20 3",
        "203.0.113.1/32 [fde80001, fde80002, ffffff01] 1 0 10 1",
    ];
    assert_eq!(of(65000), external);
    let internal = [
        "198.51.100.1/32 [fde80002, ffffff01] 0 100 20 0",
        "203.0.113.1/32 [fde80001, fde80002, ffffff01] 1 200 10 0",
    ];
    assert_eq!(of(65001), internal);
}

#[test]
fn next_hop_must_be_owned_by_the_data_plane() {
    let frontends = [("203.0.113.1", 80, LB), ("2001:db8:1::1", 80, LB)];
    let both = state(tables(&[service("web", json!({}), &frontends)]));
    let without = |family: Family| {
        let mut state = both.clone();
        match family {
            Family::Ipv4Unicast => state.ipv4 = None,
            Family::Ipv6Unicast => state.ipv6 = None,
        }
        state
    };
    let other = "198.51.100.77";
    let neighbor: IpAddr = "192.0.2.254".parse().unwrap();
    let next_hops = |more: Value, state: &ControlPlaneState| {
        let (table, defects) =
            table_of(&router(json!({"services": {}}), more), state, NoBackends::Announce);
        let hops = table.routes.values().map(|attributes| attributes.next_hop.to_string());
        (hops.collect::<Vec<_>>(), defects)
    };
    let (four, six) = ("192.0.2.10".to_owned(), "2001:db8::10".to_owned());
    assert_eq!(next_hops(json!({}), &both), (vec![four.clone(), six.clone()], vec![]));
    // If the ingress port has no address of a family, only routes of this family are missing, and
    // the defect is reported.
    let missing = |family| vec![DefectKind::NoNextHop { neighbor, family }];
    let v4 = next_hops(json!({}), &without(Family::Ipv4Unicast));
    assert_eq!(v4, (vec![six.clone()], missing(Family::Ipv4Unicast)));
    let v6 = next_hops(json!({}), &without(Family::Ipv6Unicast));
    assert_eq!(v6, (vec![four.clone()], missing(Family::Ipv6Unicast)));
    let extended = json!({"extended_next_hop": true});
    let v4 = next_hops(extended, &without(Family::Ipv4Unicast));
    assert_eq!(v4, (vec![six.clone(), six.clone()], vec![]));
    // A next hop that the data plane does not own is rejected, and the error lists the addresses
    // that it owns.
    let (hops, defects) = next_hops(json!({"next_hop": {"ipv4": other}}), &both);
    assert_eq!(hops, [six]);
    let error = defects[0].to_string();
    assert!(error.contains(other) && error.contains("192.0.2.10, 2001:db8::10"), "{error}");
    let mut owner = both.clone();
    owner.plane.owned.insert(other.parse().unwrap());
    assert_eq!(next_hops(json!({"next_hop": {"ipv4": other}}), &owner).0[0], other);
    // A family without routes needs no address.
    let mut none = without(Family::Ipv6Unicast);
    none.plane.tables = tables(&[service("web", json!({}), &frontends[..1])]);
    assert_eq!(next_hops(json!({}), &none), (vec![four], vec![]));
}

proptest! {
    /// For arbitrary tables, an appliance that takes traffic announces exactly the prefixes that
    /// are in force, served and of a configured kind. Any other appliance announces none.
    #[test]
    fn only_served_frontends_of_the_snapshot_are_announced(
        services in proptest::collection::vec(
            (0_u8..8, 0_usize..4, 0_usize..3, any::<bool>(), any::<bool>()), 0..12),
        forwarding in proptest::bool::weighted(0.8),
        kinds in proptest::collection::vec(0_usize..3, 1..3),
    ) {
        const KINDS: [&str; 4] = [LB, "ClusterIP", "ExternalIPs", "NodePort"];
        const NAMES: [&str; 3] = ["LoadBalancerIP", "ClusterIP", "ExternalIP"];
        let mut objects = Vec::new();
        for (i, (address, kind, backend, local, _)) in services.iter().enumerate() {
            let address = format!("203.0.113.{address}");
            let more = if *local { json!({"external_policy": "local"}) } else { json!({}) };
            let name = format!("s{i}");
            // Node ports have a range of their own; each service has a distinct port.
            let port = 30_000 + i as u16;
            objects.push(service(&name, more, &[(&address, port, KINDS[*kind])]));
            // No backend, a local one, or one elsewhere.
            let at = [("10.0.0.1", "active", "n1"), ("10.0.0.1", "active", "n2")];
            objects.push(backends(&name, &at[backend.saturating_sub(1)..*backend]));
        }
        let tables = pending_tables(&objects);
        let mut in_force = HashSet::new();
        for row in tables.frontends() {
            let (_, _, name) = row.service.name.parts();
            let i: usize = name[1..].parse().unwrap();
            if services[i].4 {
                row.set_status(Progress::Done, None, std::time::SystemTime::UNIX_EPOCH);
                in_force.insert(row.address().prefix.addr);
            }
        }
        let mut state = state(tables);
        state.labels = pairs(&[]);
        state.plane.forwarding = forwarding;
        let kinds: Vec<&str> = kinds.iter().map(|kind| NAMES[*kind]).collect();
        let router = router(json!({"services": {}, "kinds": kinds}), json!({}));
        let (table, defects) = table_of(&router, &state, NoBackends::Withdraw);
        prop_assert!(defects.is_empty());
        for net in table.routes.keys() {
            prop_assert!(forwarding && in_force.contains(&net.addr()), "{net}");
            let is_served = state.plane.tables.frontends().any(|row| {
                let i: usize = row.service.name.as_str()[1..].parse().unwrap();
                let (_, kind, backend, local, done) = services[i];
                let named = match kind {
                    0 => kinds.contains(&"LoadBalancerIP"),
                    2 => kinds.contains(&"ExternalIP"),
                    _ => false,
                };
                let served = if local { backend == 1 } else { backend > 0 };
                row.address().prefix.addr == net.addr() && named && done && served
            });
            prop_assert!(is_served, "{net} of {services:?}");
        }
        // All prefixes that should be announced are.
        let expected = services.iter().filter(|(_, kind, backend, local, done)| {
            let named = match kind {
                0 => kinds.contains(&"LoadBalancerIP"),
                2 => kinds.contains(&"ExternalIP"),
                _ => false,
            };
            forwarding && named && *done && if *local { *backend == 1 } else { *backend > 0 }
        });
        let expected: BTreeSet<u8> = expected.map(|one| one.0).collect();
        prop_assert_eq!(table.routes.len(), expected.len());
    }
}
