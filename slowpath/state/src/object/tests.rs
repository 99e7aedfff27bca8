//! Tests of objects: encoding, changes, errors, snapshots and history.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::*;

fn service(name: &str, port: u16) -> serde_json::Value {
    json!({
        "kind": "Service",
        "name": name,
        "spec": { "frontends": [{ "address": "203.0.113.10", "port": port, "protocol": "tcp" }] },
    })
}

fn object(name: &str, port: u16) -> Object {
    Object::from_json(&service(name, port)).unwrap()
}

/// Returns a private link that contains every key.
fn private_link() -> serde_json::Value {
    let id = |rest: &str| {
        format!(
            "/subscriptions/660e8400-e29b-41d4-a716-446655440000/resourceGroups/guest/providers/\
             Microsoft.Network/virtualNetworks/{rest}"
        )
    };
    let subscription = "550e8400-e29b-41d4-a716-446655440000";
    json!({
        "kind": "PrivateLinkService", "name": "shop/web", "source": "api", "revision": 9,
        "generation": 8,
        "spec": {
            "load_balancer_ip": "10.0.1.5", "subscription": subscription,
            "resource_group": "management", "location": "westeurope", "service_name": "pls-web",
            "cluster": "c1", "nat_subnet": id("hub/subnets/nat"),
            "additional_allowed_subscriptions": [subscription],
            "auto_approved_subscriptions": [subscription], "tags": {"team": "shop"},
            "paused": "2026-11-22T08:00:00Z",
            "endpoint": {
                "subnet": id("spoke/subnets/nodes"), "network": id("spoke"),
                "resource_group": "guest",
                "zones": [{"name": "shop.local", "records": ["api", "@"], "link": "l"}]
            }
        },
        "finalizers": ["weir.dev/private-link-cleanup"], "progress": {"status": {"observed": 8}}
    })
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::new(1_795_000_000, 250_000_000)
}

fn rejection(json: &serde_json::Value) -> String {
    Object::from_json(json).unwrap_err().to_string()
}

/// Policies may have their names in Kubernetes, which earlier builds stored, or those in the
/// services file.
#[test]
fn policies_accept_kubernetes_names() {
    let of = |external: &str, distribution: &str| {
        let spec = json!({"external_policy": external, "distribution": distribution, "mode": "nat",
            "frontends": []});
        Object::from_json(&json!({"kind": "Service", "name": "a", "source": "b", "spec": spec}))
            .unwrap()
            .spec
    };
    for (kubernetes, own) in [("PreferSameZone", "same-zone"), ("PreferSameNode", "same-node")] {
        assert_eq!(of("Local", kubernetes), of("local", own));
    }
}

#[test]
fn objects_of_every_kind_round_trip() {
    let spec = json!({
        "properties": {"p": "q"}, "nat_policy": "nat46", "external_policy": "local",
        "internal_policy": "local", "distribution": "same-node",
        "mode": "tunnel", "tunnel": "geneve", "tunnel_port": 6081, "vni": 5,
        "outer_checksum": true, "dont_fragment": false,
        "algorithm": "random", "loopback_host_port": true, "affinity_s": 30,
        "health_check_port": 31000, "health": {"kind": "https",
            "port": 8443, "path": "/live", "host": "web.example", "expect": "200-299",
            "verify": false, "server_name": "web", "interval_ms": 1000,
            "timeout_ms": 500, "rise": 1, "fall": 2, "jitter_percent": 0},
        "mss": 1400, "tcp_idle_s": 60, "table_size": 251,
        "too_big": "drop", "failed_udp": "keep", "failed_tcp": "reset",
        "proxy_redirect": {"port": 9000, "ports": [80]},
        "source_ranges": ["10.0.0.0/8", "fd00::1"], "source_policy": "deny",
        "port_names": {"http": 80},
        "frontends": [{
            "address": "203.0.113.0/24", "port": 80, "protocol": "tcp",
            "type": "NodePort", "port_name": "http", "service_port": 8080,
            "traffic_scope": "internal", "scope": "0x1f2e"
        }]
    });
    let all = [
        json!({
            "kind": "Service", "name": "shop/web", "source": "file", "labels": {"tier": "front"},
            "annotations": {"weir.dev/x": "1"}, "revision": 7, "generation": 5,
            "spec": spec,
            "status": {"observed": 5, "conditions": [{
                "type": "Accepted", "status": "False", "reason": "Conflict", "message": "taken",
                "since": "2026-11-18T12:26:40.25Z"
            }]},
            "deletion": "2026-11-18T12:26:41Z", "finalizers": ["weir/flows"]
        }),
        json!({
            "kind": "Backends", "name": "shop/web-1", "source": "kubernetes", "revision": 1,
            "generation": 1,
            "spec": {"service": "shop/web", "endpoints": [{
                "address": "10.0.2.11", "port": 8080, "protocol": "tcp", "port_names": ["http"],
                "weight": 7, "state": "terminating-not-serving", "arm": "ingress",
                "node": "n1", "zone": "a", "for_zones": ["a", "b"], "cluster": 3,
                "probe": "198.18.0.1"
            }]}
        }),
        json!({
            "kind": "Appliance", "name": "weir-1", "source": "api", "revision": 2, "generation": 2,
            "spec": {"zone": "a", "local": ["a", "n1"], "addresses": ["10.0.1.10"], "cluster": 1,
                "external_cluster_ip": true, "node_ports": [30000, 31000], "zone_aware": false}
        }),
        json!({
            "kind": "Source", "name": "k8s", "source": "k8s", "revision": 3, "generation": 3,
            "spec": {"lease_s": 30, "revision": "4711"}
        }),
        json!({
            "kind": "BgpPeeringPolicy", "name": "edge", "source": "api", "revision": 4,
            "generation": 4, "spec": super::bgp::example()
        }),
        private_link(),
    ];
    assert_eq!(all.len(), Kind::ALL.len());
    for expected in all {
        let object = Object::from_json(&expected).unwrap();
        assert_eq!(serde_json::to_value(&object).unwrap(), expected);
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object);
        // The schema has every key of the example.
        let schema = schema(object.kind(), &mut Default::default());
        for at in ["", "/spec"] {
            let keys = expected.pointer(at).unwrap().as_object().unwrap().keys();
            let known =
                schema["properties"].pointer(if at.is_empty() { "" } else { "/spec/properties" });
            for key in keys {
                assert!(known.unwrap()[key].is_object(), "{key} in {schema:#}");
            }
        }
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(object.kind().plural().parse::<Kind>().unwrap(), object.kind());
    }
}

#[test]
fn errors_name_the_field() {
    let error_for = |pointer: &str, key: &str, value: serde_json::Value| {
        let mut json = service("shop/web", 80);
        json.pointer_mut(pointer).unwrap()[key] = value;
        rejection(&json)
    };
    let of = "Service shop/web of api: ";
    for (result, parts) in [
        (error_for("", "color", json!("red")), ["color", "unknown field `color`; allowed: "]),
        (error_for("/spec", "color", json!(1)), ["spec.color", "`affinity_s`"]),
        (error_for("/spec", "mss", json!(9461)), ["spec.mss: 9461 is out of range", "0 to 9460"]),
        (
            error_for("/spec", "health", json!({"kind": "http", "expect": "ok"})),
            ["spec.health.expect", "write statuses"],
        ),
        (error_for("/spec", "affinity_s", json!(1 << 24)), ["spec.affinity_s", "0 to 16777215"]),
        (error_for("/spec", "table_size", json!(250)), ["spec.table_size", "allowed: 0, 251"]),
        (
            error_for("/spec/frontends/0", "port", json!(70000)),
            ["spec.frontends[0].port", "0 to 65535"],
        ),
        (
            error_for("/spec/frontends/0", "protocol", json!("icmp")),
            ["spec.frontends[0]", "no ports"],
        ),
        (error_for("/spec/frontends/0", "protocol", json!("tpc")), ["`tpc`", "allowed: \"tcp\""]),
        (
            error_for("/spec/frontends/0", "address", json!("1.2.3.4/8")),
            ["1.0.0.0/8", "frontends[0]"],
        ),
        (
            error_for("/spec", "source_policy", json!("deny")),
            ["spec.source_policy: no source_ranges to deny", "write source_ranges"],
        ),
    ] {
        assert!(result.starts_with(of), "{result}");
        for part in parts {
            assert!(result.contains(part), "no {part:?} in: {result}");
        }
    }
    assert!(rejection(&json!({"kind": "Sevice", "name": "a", "spec": {}})).contains("kind: "));
    assert!(rejection(&json!(7)).contains("invalid type"));
    let twice = json!({"address": "10.0.0.1", "port": 1, "protocol": "tcp"});
    let twice = json!({"service": "a", "endpoints": [twice.clone(), twice]});
    let result = rejection(&json!({"kind": "Backends", "name": "a", "spec": twice}));
    assert!(result.contains("spec.endpoints[1]: 10.0.0.1:1/TCP is listed twice"), "{result}");
}

#[test]
fn events_between_snapshots_are_computed_without_history() {
    let mut objects = Objects::default();
    for name in ["a", "b", "c"] {
        objects.apply(&Change::put(object(name, 80)), now()).unwrap();
    }
    let before = objects.clone();
    objects.apply(&Change::delete(object("a", 80).key()), now()).unwrap();
    objects.apply(&Change::put(object("b", 81)), now()).unwrap();
    objects.apply(&Change::put(object("d", 80)), now()).unwrap();
    let result = |event: Event| {
        let revision = |object: &Option<Arc<Object>>| object.as_ref().map(|object| object.revision);
        (event.object().unwrap().name.to_string(), revision(&event.before), revision(&event.after))
    };
    let result: Vec<_> = objects.events_since(&before).into_iter().map(result).collect();
    let expected = [("a", Some(1), None), ("b", Some(2), Some(5)), ("d", None, Some(6))];
    assert_eq!(result, expected.map(|(name, before, after)| (name.to_owned(), before, after)));
    assert_eq!(objects.events_since(&objects), vec![]);
}

#[test]
fn changes_are_idempotent_and_check_the_expected_revision() {
    let mut objects = Objects::default();
    let event = objects.apply(&Change::put(object("a", 80)), now()).unwrap().unwrap();
    assert_eq!((event.revision, event.before.is_none(), objects.revision()), (1, true, 1));
    assert_eq!(objects.apply(&Change::put(object("a", 80)), now()), Ok(None));
    let event = objects.apply(&Change::put(object("a", 81)), now()).unwrap().unwrap();
    assert_eq!(event.before.unwrap().generation, 1);
    let key = object("a", 0).key();
    let put =
        |expected| Change::Put { object: Box::new(object("a", 82)), expected: Some(expected) };
    for (expected, result) in [(0, "exists already, at revision 2"), (1, "revision 1 was expected")]
    {
        let error = objects.apply(&put(expected), now()).unwrap_err().to_string();
        assert!(error.contains(result), "{error}");
    }
    objects.apply(&put(2), now()).unwrap();
    let before = objects.clone();
    objects.apply(&Change::delete(key.clone()), now()).unwrap();
    assert!(objects.get(&key).is_none() && before.get(&key).is_some());
    let result = objects.apply(&Change::delete(key), now()).unwrap_err().to_string();
    assert!(result.contains("there is no such object"), "{result}");
    let result = objects.apply(&put(3), now()).unwrap_err().to_string();
    assert!(result.contains("no longer exists"), "{result}");
}

#[test]
fn deletion_waits_for_finalizers() {
    let (mut objects, key) = (Objects::default(), object("a", 0).key());
    let finalizer =
        |present| Change::Finalizer { key: object("a", 0).key(), name: "x".into(), present };
    let mut apply = |change: &Change| objects.apply(change, now());
    apply(&Change::put(object("a", 80))).unwrap();
    apply(&finalizer(true)).unwrap();
    let waiting = apply(&Change::delete(key.clone())).unwrap().unwrap().after.unwrap();
    assert_eq!((waiting.lifecycle().deletion, waiting.generation), (Some(now()), 1));
    assert_eq!(apply(&Change::delete(key)), Ok(None));
    let result = apply(&Change::put(object("a", 81))).unwrap_err().to_string();
    assert!(result.contains("being deleted") && result.contains("x must clean up"), "{result}");
    let other = Change::Finalizer { key: object("a", 0).key(), name: "y".into(), present: true };
    assert!(apply(&other).is_err());
    assert_eq!(apply(&finalizer(false)).unwrap().unwrap().after, None);
    assert!(apply(&Change::put(object("a", 81))).is_ok());
}

#[test]
fn condition_keeps_since_while_status_is_unchanged() {
    let (mut objects, key) = (Objects::default(), object("a", 0).key());
    objects.apply(&Change::put(object("a", 80)), now()).unwrap();
    let result = |status, reason: &str, after| Change::Status {
        key: key.clone(),
        observed: 1,
        conditions: vec![Condition {
            aspect: "Accepted".into(),
            status,
            reason: reason.into(),
            message: "".into(),
            since: now() + Duration::from_secs(after),
        }],
    };
    let mut since = |change| {
        let event = objects.apply(&change, now()).unwrap()?;
        let condition =
            event.after.unwrap().lifecycle().status.clone().unwrap().conditions[0].clone();
        Some((condition.since.duration_since(now()).unwrap().as_secs(), condition.reason))
    };
    assert_eq!(since(result(ConditionStatus::True, "A", 0)), Some((0, "A".into())));
    assert_eq!(since(result(ConditionStatus::True, "A", 1)), None);
    assert_eq!(since(result(ConditionStatus::True, "B", 2)), Some((0, "B".into())));
    assert_eq!(since(result(ConditionStatus::False, "B", 3)), Some((3, "B".into())));
    let object = objects.get(&key).unwrap();
    assert_eq!((object.revision, object.generation), (4, 1));
}

#[test]
fn list_replaces_only_objects_of_its_source() {
    let mut objects = Objects::default();
    let of = |source: &str, name: &str, port| Object {
        source: Source::new(source),
        ..object(name, port)
    };
    for object in [of("file", "a", 1), of("file", "b", 2), of("api", "b", 3)] {
        objects.apply(&Change::put(object), now()).unwrap();
    }
    let desired = vec![of("file", "b", 2), of("file", "c", 4)];
    let changes = objects.changes_to(&Source::new("file"), desired.clone());
    assert_eq!(
        changes,
        vec![Change::delete(of("file", "a", 0).key()), Change::put(of("file", "c", 4))]
    );
    for change in &changes {
        objects.apply(change, now()).unwrap();
    }
    assert_eq!(objects.changes_to(&Source::new("file"), desired), vec![]);
    let name = Name::new("b").unwrap();
    let sources: Vec<&str> =
        objects.named(Kind::Service, &name).map(|o| o.source.as_str()).collect();
    assert_eq!(sources, ["api", "file"]);
    assert_eq!(objects.of_kind(Kind::Service).count(), 3);
    assert_eq!(objects.of_kind(Kind::Backends).count(), 0);
}

#[test]
fn history_is_bounded_and_reports_dropped_revisions() {
    let (mut objects, mut history) = (Objects::default(), History::new(0, 3));
    for port in 1..=5 {
        history.append(objects.apply(&Change::put(object("a", port)), now()).unwrap());
    }
    let since = |revision| {
        let events = history.since(revision)?;
        Ok(events.map(|event| event.revision).collect::<Vec<u64>>())
    };
    assert_eq!(since(1), Err(TooOld { dropped: 2 }));
    assert_eq!(since(2), Ok(vec![3, 4, 5]));
    assert_eq!(since(4), Ok(vec![5]));
    assert_eq!(since(9), Ok(vec![]));
}

#[test]
fn private_link_keeps_its_progress_until_finalized() {
    let mut objects = Objects::default();
    let link = Object::from_json(&private_link()).unwrap();
    let key = link.key();
    let mut apply = |change: Change| {
        let event = objects.apply(&change, now()).unwrap();
        event.map(|event| event.after)
    };
    let put = apply(Change::put(link.clone())).unwrap().unwrap();
    assert_eq!(put.lifecycle(), &Lifecycle::default(), "lifecycle data in the request is ignored");
    let condition = |aspect: &str| Condition {
        aspect: aspect.into(),
        status: ConditionStatus::False,
        reason: "InProgress".into(),
        message: "it is being created".into(),
        since: now(),
    };
    let progress = |aspect: &str, step: u8| Change::Progress {
        key: key.clone(),
        status: Status { observed: 1, conditions: vec![condition(aspect)] },
        progress: Arc::new(json!({ "step": step })),
    };
    let first = apply(progress("One", 1)).unwrap().unwrap();
    assert_eq!(first.generation, put.generation, "the desired state is unchanged");
    assert_eq!(apply(progress("One", 1)), None, "no change");
    let second = apply(progress("Two", 2)).unwrap().unwrap();
    let result: Vec<&str> =
        second.lifecycle().status.iter().flat_map(|s| &s.conditions).map(|c| &*c.aspect).collect();
    assert_eq!(result, ["Two"], "conditions that are no longer reported are removed");
    let name = "weir.dev/private-link-cleanup";
    let finalizer = |present| Change::Finalizer { key: key.clone(), name: name.into(), present };
    apply(finalizer(true));
    let leaving = apply(Change::delete(key.clone())).unwrap().unwrap();
    assert_eq!(leaving.lifecycle().deletion, Some(now()));
    let text = serde_json::to_string(&leaving).unwrap();
    assert_eq!(
        serde_json::from_str::<Object>(&text).unwrap(),
        *leaving,
        "reads back as after a restart"
    );
    assert!(apply(progress("Two", 3)).is_some(), "progress continues during deletion");
    assert_eq!(apply(finalizer(false)), Some(None), "the object is removed");
}

#[test]
fn private_link_error_names_the_field() {
    let result = |pointer: &str, key: &str, value: serde_json::Value| {
        let mut json = private_link();
        json.pointer_mut(pointer).unwrap()[key] = value;
        rejection(&json)
    };
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/b";
    for (result, field) in [
        (result("/spec", "subscription", json!("mine")), "spec.subscription: `mine`"),
        (result("/spec", "location", json!("West Europe")), "spec.location: "),
        (result("/spec/endpoint", "subnet", json!("x")), "spec.endpoint.subnet: "),
        (result("/spec/endpoint", "subnet", json!(id)), "spec.endpoint.subnet: "),
        (result("/spec", "color", json!(1)), "spec.color: unknown field `color`; allowed: "),
    ] {
        assert!(result.starts_with("PrivateLinkService shop/web of api: "), "{result}");
        assert!(result.contains(field), "{field}: {result}");
    }
}

#[test]
fn service_with_delegate_if_local_is_rejected() {
    let of = |delegate: bool| {
        let spec = json!({"frontends": [], "delegate_if_local": delegate});
        json!({"kind": "Service", "name": "web", "spec": spec})
    };
    let result = rejection(&of(true));
    for part in ["Service web", "spec.delegate_if_local: true", "allowed: false", "proxy_redirect"]
    {
        assert!(result.contains(part), "{result}");
    }
    assert!(Object::from_json(&of(false)).is_ok());
}
