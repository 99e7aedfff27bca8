//! Tests of the validation of policies and its errors, and of defaults, selectors and communities.

use serde_json::{Value, json};

use super::*;
use crate::object::Object;

/// Returns a policy that contains every key.
pub(in crate::object) fn example() -> Value {
    json!({
        "node_selector": {
            "match_labels": {"rack": "a"},
            "match_expressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
        },
        "routers": [{
            "local_asn": 4200000001_u32, "router_id": "192.0.2.1", "listen_port": 1790,
            "advertisements": [{
                "name": "web", "services": {"match_labels": {"tier": "front"}},
                "kinds": ["LoadBalancerIP", "ClusterIP", "ExternalIP"],
                "prefixes": ["198.51.100.0/24", "2001:db8::1"],
                "aggregation": {"ipv4": 24, "ipv6": 64},
                "attributes": {
                    "kinds": ["ExternalIP"],
                    "communities": ["65000:100", "no-export", "4259840100"],
                    "large_communities": ["4200000001:1:2"], "local_preference": 200,
                    "prepend": 3, "med": 50
                }
            }],
            "neighbors": [{
                "address": "192.0.2.254", "interface": "up0", "port": 1179, "asn": 65000,
                "local_address": "192.0.2.1", "passive": true, "connect_retry_s": 5, "hold_s": 9,
                "keepalive_s": 3, "hops": 2, "ttl_security": true,
                "password": {"secret": "peers"},
                "next_hop": {"ipv4": "2001:db8::10", "ipv6": "2001:db8::10"},
                "extended_next_hop": true,
                "graceful_restart": {"enabled": true, "restart_s": 60, "long_lived_s": 3600},
                "families": [
                    {"family": "ipv4-unicast", "advertisements": ["web"],
                        "attributes": {"med": 10}},
                    {"family": "ipv6-unicast"}
                ],
                "bfd": {"enabled": true, "transmit_ms": 100, "receive_ms": 50, "multiplier": 5,
                    "multihop": true, "minimum_ttl": 63, "strict": true}
            }],
            "unresolved": ["peer `tor3`: there is no CiliumBGPPeerConfig `gone`"]
        }]
    })
}

fn read(spec: &Value) -> Result<Object, ChangeError> {
    Object::from_json(&json!({"kind": "BgpPeeringPolicy", "name": "edge", "spec": spec}))
}

/// Returns a policy of one router with one neighbor and only the required keys.
fn minimal() -> Value {
    json!({"routers": [{"local_asn": 65001, "neighbors": [{"address": "192.0.2.254"}]}]})
}

#[test]
fn omitted_fields_have_defaults() {
    let spec: BgpPeeringPolicySpec = serde_json::from_value(minimal()).unwrap();
    spec.check().unwrap();
    let router = &spec.routers[0];
    assert_eq!((router.router_id, router.listen_port), (None, None));
    let neighbor = Neighbor::new("192.0.2.254".parse().unwrap(), 0);
    assert_eq!(router.neighbors, std::slice::from_ref(&neighbor));
    let times = (neighbor.connect_retry_s, neighbor.hold_s, neighbor.keepalive_s);
    assert_eq!((neighbor.port, times, neighbor.hops), (179, (120, 90, 30), 1));
    let restart = neighbor.graceful_restart;
    assert_eq!((restart.enabled, restart.restart_s, restart.long_lived_s), (false, 120, 0));
    let families: Vec<Family> = neighbor.families.iter().map(|one| one.family).collect();
    assert_eq!(families, [Family::Ipv4Unicast, Family::Ipv6Unicast]);
    let advertisement: AdvertisementSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(advertisement.kinds, [AddressKind::LoadBalancerIp]);
    assert!(advertisement.services.is_none() && advertisement.prefixes.is_empty());
}

#[test]
fn invalid_value_is_rejected_with_its_field() {
    let router = "/routers/0";
    let one = "/routers/0/advertisements/0";
    let neighbor = "/routers/0/neighbors/0";
    let many: Vec<String> = (0..256).map(|n| format!("65000:{n}")).collect();
    let twice = json!([{"family": "ipv4-unicast"}, {"family": "ipv4-unicast"}]);
    for (at, key, value, field, message) in [
        ("", "routers", json!([]), "spec.routers", "at least one"),
        (router, "local_asn", json!(0), "spec.routers[0].local_asn", "RFC 7607"),
        (
            router,
            "local_asn",
            json!(4294967296_u64),
            "spec.routers[0].local_asn",
            "0 to 4294967295",
        ),
        (
            router,
            "router_id",
            json!("0.0.0.0"),
            "spec.routers[0].router_id",
            "not a valid router ID",
        ),
        (router, "listen_port", json!(0), "spec.routers[0].listen_port", "1 to 65535"),
        (one, "kinds", json!([]), "spec.routers[0].advertisements[0].kinds", "ClusterIP"),
        (one, "prefixes", json!(["224.0.0.0/4"]), ".advertisements[0].prefixes[0]", "unicast"),
        (one, "prefixes", json!(["10.0.0.1/8"]), ".advertisements[0].prefixes", "10.0.0.0/8"),
        (one, "aggregation", json!({"ipv4": 33}), ".aggregation.ipv4", "1 to 32"),
        (one, "aggregation", json!({"ipv6": 0}), ".aggregation.ipv6", "1 to 128"),
        (one, "attributes", json!({"prepend": 255}), ".attributes.prepend", "0 to 254"),
        (one, "attributes", json!({"communities": ["a:b"]}), ".communities[0]", "no-export"),
        (one, "attributes", json!({"communities": ["1:65536"]}), ".communities[0]", "`1:65536`"),
        (one, "attributes", json!({"communities": ["4294967296"]}), ".communities[0]", "number"),
        (one, "attributes", json!({"communities": ["+1:1"]}), ".communities[0]", "`+1:1`"),
        (one, "attributes", json!({"communities": many}), ".attributes.communities", "up to 255"),
        (
            one,
            "attributes",
            json!({"large_communities": ["1:2"]}),
            ".large_communities[0]",
            "three",
        ),
        (neighbor, "address", json!("0.0.0.0"), ".neighbors[0].address", "unicast"),
        (neighbor, "address", json!("224.0.0.1"), ".neighbors[0].address", "not a unicast"),
        (neighbor, "local_address", json!("2001:db8::1"), ".local_address", "family"),
        (neighbor, "port", json!(0), ".neighbors[0].port", "1 to 65535"),
        (neighbor, "connect_retry_s", json!(0), ".connect_retry_s", "1 to 65535"),
        (neighbor, "hold_s", json!(2), ".neighbors[0].hold_s", "3 to 65535"),
        (neighbor, "hold_s", json!(65536), ".neighbors[0].hold_s", "3 to 65535"),
        (neighbor, "keepalive_s", json!(10), ".neighbors[0].keepalive_s", "a third of hold_s"),
        (neighbor, "keepalive_s", json!(0), ".neighbors[0].keepalive_s", "1 to 65535"),
        (neighbor, "hops", json!(0), ".neighbors[0].hops", "1 to 255"),
        (neighbor, "hops", json!(256), ".neighbors[0].hops", "0 to 255"),
        (neighbor, "graceful_restart", json!({"restart_s": 0}), ".restart_s", "1 to 4095"),
        (neighbor, "graceful_restart", json!({"restart_s": 4096}), ".restart_s", "1 to 4095"),
        (neighbor, "graceful_restart", json!({"long_lived_s": 9}), ".long_lived_s", "enable"),
        (
            neighbor,
            "graceful_restart",
            json!({"enabled": true, "long_lived_s": 1 << 24}),
            ".graceful_restart.long_lived_s",
            "0 to 16777215",
        ),
        (neighbor, "password", json!({"secret": "a/b"}), ".password.secret", "without `/`"),
        (neighbor, "password", json!({"text": "x"}), ".password", "file"),
        (
            neighbor,
            "tcp_ao",
            json!([{"send_id": 1, "key": {"secret": "k"}}]),
            ".neighbors[0].tcp_ao",
            "leave one of them out",
        ),
        (neighbor, "families", json!([]), ".neighbors[0].families", "ipv6-unicast"),
        (neighbor, "families", twice, ".families[1].family", "twice"),
        (
            neighbor,
            "families",
            json!([{"family": "ipv4-unicast", "advertisements": ["mail"]}]),
            ".families[0].advertisements[0]",
            "it has: web",
        ),
        (
            neighbor,
            "families",
            json!([{"family": "ipv4-unicast", "attributes": {"local_preference": 7}}]),
            ".families[0].attributes.local_preference",
            "within AS 4200000001 only",
        ),
        (neighbor, "extended_next_hop", json!(false), ".next_hop.ipv4", "RFC 8950"),
        (neighbor, "next_hop", json!({"ipv4": "0.0.0.0"}), ".next_hop.ipv4", "unicast"),
        (neighbor, "next_hop", json!({"ipv6": "192.0.2.1"}), ".next_hop.ipv6", "IPv6"),
        (neighbor, "bfd", json!({"transmit_ms": 9}), ".bfd.transmit_ms", "10 to 60000"),
        (neighbor, "bfd", json!({"receive_ms": 60001}), ".bfd.receive_ms", "10 to 60000"),
        (neighbor, "bfd", json!({"multiplier": 1}), ".bfd.multiplier", "2 to 255"),
        (neighbor, "bfd", json!({"multiplier": 256}), ".bfd.multiplier", "0 to 255"),
        (
            neighbor,
            "bfd",
            json!({"multihop": true, "minimum_ttl": 0}),
            ".bfd.minimum_ttl",
            "1 to 255",
        ),
        (neighbor, "bfd", json!({"minimum_ttl": 254}), ".bfd.minimum_ttl", "set multihop"),
        (neighbor, "interface", json!("sixteen-octets-a"), ".neighbors[0].interface", "ip link"),
        (neighbor, "interface", json!("a/b"), ".neighbors[0].interface", "`a/b` is not"),
        (neighbor, "color", json!("red"), ".neighbors[0].color", "unknown field"),
        (
            "/node_selector",
            "match_expressions",
            json!([{"key": "zone", "operator": "In"}]),
            "spec.node_selector.match_expressions[0].values",
            "at least one value",
        ),
        (
            "/node_selector",
            "match_expressions",
            json!([{"key": "zone", "operator": "Exists", "values": ["a"]}]),
            "spec.node_selector.match_expressions[0].values",
            "leave the values out",
        ),
        (
            "/node_selector",
            "match_expressions",
            json!([{"key": "", "operator": "Exists"}]),
            "spec.node_selector.match_expressions[0].key",
            "label's name",
        ),
    ] {
        let mut spec = example();
        spec.pointer_mut(at).unwrap()[key] = value.clone();
        let error = read(&spec).expect_err(&format!("{at} {key} {value}"));
        let result = error.to_string();
        assert!(error.field.contains(field), "no {field} in: {result}");
        assert!(result.contains(message), "no {message:?} in: {result}");
    }
    read(&example()).unwrap();
}

#[test]
fn duplicates_and_invalid_list_lengths_are_rejected() {
    let mut spec = minimal();
    let router = spec["routers"][0].clone();
    spec["routers"].as_array_mut().unwrap().push(router);
    let result = read(&spec).unwrap_err().to_string();
    assert!(
        result.contains(
            "spec.routers[1].local_asn: 65001 is already the AS number of spec.routers[0]"
        ),
        "{result}"
    );
    let mut spec = minimal();
    let neighbor = json!({"address": "192.0.2.254", "port": 1179});
    spec["routers"][0]["neighbors"].as_array_mut().unwrap().push(neighbor);
    let result = read(&spec).unwrap_err().to_string();
    assert!(
        result.contains("neighbors[1].address: 192.0.2.254 is already the address of neighbors[0]"),
        "{result}"
    );
    let mut spec = minimal();
    spec["routers"][0]["advertisements"] = json!([{"name": "a"}, {"name": "a"}]);
    assert!(
        read(&spec).unwrap_err().to_string().contains("advertisements[1].name: `a` is used twice")
    );
    let mut spec = minimal();
    spec["routers"][0]["neighbors"] = json!([]);
    let result = read(&spec).unwrap_err().to_string();
    assert!(
        result.contains("spec.routers[0].neighbors: the list is empty; write at least one"),
        "{result}"
    );
    let mut spec = minimal();
    spec["routers"] = (1..=17)
        .map(|asn| json!({"local_asn": asn, "neighbors": [{"address": "192.0.2.254"}]}))
        .collect();
    assert!(read(&spec).unwrap_err().to_string().contains("17 are too many; allowed: up to 16"));
}

#[test]
fn routers_share_a_neighbor_only_with_distinct_sessions() {
    let spec = |one: Value, other: Value| {
        let router = |asn: u32, more: Value| {
            let mut neighbor = json!({"address": "192.0.2.254"});
            neighbor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"local_asn": asn, "neighbors": [neighbor]})
        };
        json!({"routers": [router(65001, one), router(65002, other)]})
    };
    let from = |local: &str| json!({"local_address": local});
    for (one, other) in [
        (json!({}), json!({})),
        (json!({}), json!({"port": 1179})),
        (from("192.0.2.1"), json!({})),
        (from("192.0.2.1"), from("192.0.2.1")),
    ] {
        let result = read(&spec(one, other)).unwrap_err().to_string();
        let message = "spec.routers[1].neighbors[0].address: 192.0.2.254 is a neighbor of routers \
                       65001 and 65002";
        assert!(result.contains(message), "{result}");
    }
    read(&spec(from("192.0.2.1"), from("192.0.2.2"))).unwrap();
    read(&spec(json!({"interface": "up0"}), json!({"interface": "up1"}))).unwrap();
}

#[test]
fn link_local_neighbor_requires_an_interface() {
    let spec = |more: Value| {
        let mut neighbor = json!({"address": "fe80::1"});
        neighbor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"routers": [{"local_asn": 65001, "neighbors": [neighbor]}]})
    };
    read(&spec(json!({"interface": "up0", "bfd": {"enabled": true}}))).unwrap();
    for (more, field, message) in [
        (json!({}), ".interface", "no interface is set"),
        (json!({"interface": "up0", "hops": 2}), ".hops", "are not routed"),
        (json!({"interface": "up0", "bfd": {"multihop": true}}), ".bfd.multihop", "are not routed"),
    ] {
        let result = read(&spec(more)).unwrap_err().to_string();
        assert!(result.contains(field) && result.contains(message), "{result}");
    }
}

#[test]
fn local_preference_for_an_external_neighbor_is_rejected() {
    let spec = |asn: u32| {
        let family = json!({"family": "ipv4-unicast", "attributes": {"local_preference": 7}});
        json!({"routers": [{"local_asn": 65001, "neighbors":
            [{"address": "192.0.2.254", "asn": asn, "families": [family]}]}]})
    };
    assert!(read(&spec(65001)).is_ok());
    // AS number 0 accepts any AS: the neighbor may be internal, which only the session shows.
    assert!(read(&spec(0)).is_ok());
    assert!(read(&spec(65002)).is_err());
}

#[test]
fn communities_compare_by_number() {
    let of = |text: &str| Community::try_from(text.to_owned()).unwrap();
    for same in [["65000:100", "4259840100"], ["no-export", "65535:65281"], ["internet", "0:0"]] {
        assert_eq!(of(same[0]), of(same[1]), "{same:?}");
    }
    assert_eq!(of("planned-shut"), of("graceful-shutdown"));
    assert_eq!(of("blackhole").number, 0xffff_029a);
    assert_ne!(of("65000:100"), of("65000:101"));
    // A community is written in the notation in which it was read.
    assert_eq!(String::from(of("4259840100")), "4259840100");
}

#[test]
fn selectors_match_as_in_kubernetes() {
    let label = |key: &str| match key {
        "zone" => Some("a"),
        "tier" => Some("front"),
        _ => None,
    };
    let of = |selector: Value| serde_json::from_value::<Selector>(selector).unwrap().matches(label);
    let is_match = |operator: &str, key: &str, values: &[&str]| {
        of(json!({"match_expressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    assert!(of(json!({})) && of(json!({"match_labels": {"zone": "a", "tier": "front"}})));
    assert!(!of(json!({"match_labels": {"zone": "a", "tier": "back"}})));
    assert!(of(json!({"matchLabels": {"zone": "a"}})));
    for (operator, key, values, result) in [
        ("In", "zone", &["a", "b"][..], true),
        ("In", "zone", &["b"], false),
        ("In", "disk", &["b"], false),
        ("NotIn", "zone", &["b"], true),
        ("NotIn", "zone", &["a"], false),
        ("NotIn", "disk", &["b"], true),
        ("Exists", "zone", &[], true),
        ("Exists", "disk", &[], false),
        ("DoesNotExist", "zone", &[], false),
        ("DoesNotExist", "disk", &[], true),
        // An invalid requirement selects nothing.
        ("In", "zone", &[], false),
        ("NotIn", "disk", &[], false),
    ] {
        assert_eq!(is_match(operator, key, values), result, "{operator} {key} {values:?}");
    }
    let policy = |selector: Value| BgpPeeringPolicySpec {
        node_selector: serde_json::from_value(selector).unwrap(),
        ..BgpPeeringPolicySpec::default()
    };
    assert!(policy(Value::Null).selects(label) && policy(json!({})).selects(label));
    assert!(!policy(json!({"match_labels": {"zone": "b"}})).selects(label));
}

#[test]
fn invalid_tcp_ao_keys_are_rejected() {
    let check = |keys: Value| {
        let mut policy = example();
        let neighbor = &mut policy["routers"][0]["neighbors"][0];
        neighbor.as_object_mut().unwrap().remove("password");
        neighbor["tcp_ao"] = keys;
        let spec: BgpPeeringPolicySpec =
            serde_json::from_value(policy).map_err(|error| error.to_string())?;
        spec.check().map_err(|error| error.to_string())
    };
    let key = |send: u32, receive: u32| {
        json!({"send_id": send, "receive_id": receive,
        "algorithm": "aes-128-cmac-96", "key": {"file": "k"}})
    };
    assert_eq!(check(json!([key(1, 2), key(2, 1), {"send_id": 3, "key": {"file": "k"}}])), Ok(()));
    let keys: Vec<Value> = (0..9).map(|id| key(id, id)).collect();
    for (keys, expected) in [
        (json!([key(1, 2), key(1, 3)]), "tcp_ao[1].send_id: 1 is used by another key"),
        (json!([key(1, 2), key(2, 2)]), "tcp_ao[1].receive_id: 2 is used by another key"),
        (json!([key(2, 7), {"send_id": 7, "key": {"file": "k"}}]), "tcp_ao[1].receive_id: 7"),
        (json!(keys), "allowed: up to 8"),
        (json!([key(256, 1)]), "256"),
        (json!([{"send_id": 1, "key": {"secret": "a/b"}}]), "tcp_ao[0].key.secret"),
        (json!([{"send_id": 1, "algorithm": "md5", "key": {"file": "k"}}]), "hmac-sha-1-96"),
    ] {
        let error = check(keys).unwrap_err();
        assert!(error.contains(expected), "{error}, expected {expected}");
    }
}
