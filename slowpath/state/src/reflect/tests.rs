//! Tests of the tables that the reflector derives from objects of several sources.

use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::backend::State;
use crate::object::{Change, FrontendSpec};
use crate::service::Service;
use crate::tables::Tables;
use crate::writer::Writer;

/// Objects, their reflector, and the tables that it writes.
struct Fixture {
    objects: Objects,
    reflector: Reflector,
    writer: Writer,
}

impl Fixture {
    fn new() -> Fixture {
        let order = ["api", "file", "kubernetes"].map(Source::new);
        let reflector = Reflector::new(Precedence::new(order), ArmName::Egress);
        Fixture { objects: Objects::default(), reflector, writer: Writer::new() }
    }

    /// Applies changes in one step and returns the changed verdicts as `name of source: reason`.
    fn change(&mut self, changes: &[Change]) -> Vec<String> {
        let mut events = Vec::new();
        for change in changes {
            events.extend(self.objects.apply(change, UNIX_EPOCH).unwrap());
        }
        let mut to = self.writer.begin(UNIX_EPOCH);
        let changes = self.reflector.apply(&self.objects, &events, &mut to);
        to.commit();
        let line = |change: VerdictChange| {
            let key = change.key.clone();
            match change.into_change(UNIX_EPOCH) {
                Change::Status { conditions, .. } => {
                    format!("{} of {}: {}", key.name, key.source, conditions[0].reason)
                }
                change => panic!("{change:?}"),
            }
        };
        changes.into_iter().map(line).collect()
    }

    fn put(&mut self, object: Object) -> Vec<String> {
        self.change(&[Change::put(object)])
    }

    fn dump(&self) -> Vec<String> {
        dump(&self.writer.tables())
    }
}

fn dump(tables: &Tables) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, entry) in tables.entries() {
        let source = entry.service.as_ref().map_or("-", |service| service.source.as_str());
        let frontends: Vec<String> =
            entry.frontends.iter().map(|row| row.address().to_string()).collect();
        let instances = entry.instances.iter().map(|i| {
            format!("{}={}/{}/{}", i.endpoint, i.state.as_str(), i.port_names.join("+"), i.source)
        });
        let instances: Vec<String> = instances.collect();
        lines.push(format!("{name} {source} [{}] [{}]", frontends.join(" "), instances.join(" ")));
    }
    lines
}

fn service(source: &str, name: &str, hosts: &[u8]) -> Object {
    let frontends: Vec<_> = hosts
        .iter()
        .map(|host| json!({"address": format!("203.0.113.{host}"), "port": 80, "protocol": "tcp"}))
        .collect();
    let spec = json!({"frontends": frontends});
    let json = json!({"kind": "Service", "name": name, "source": source, "spec": spec});
    Object::from_json(&json).unwrap()
}

fn backends(source: &str, name: &str, service: &str, members: &[(u8, &str, State)]) -> Object {
    let endpoints: Vec<_> = members
        .iter()
        .map(|(host, port, state)| {
            json!({"address": format!("10.0.0.{host}"), "port": 80, "protocol": "tcp",
                "port_names": [port], "state": state.as_str()})
        })
        .collect();
    let spec = json!({"service": service, "endpoints": endpoints});
    let json = json!({"kind": "Backends", "name": name, "source": source, "spec": spec});
    Object::from_json(&json).unwrap()
}

fn deletion(object: &Object) -> Change {
    Change::delete(object.key())
}

#[test]
fn tables_follow_object_changes() {
    let mut fixture = Fixture::new();
    let slice = |hosts: &[(u8, &str, State)]| backends("file", "w-1", "w", hosts);
    // Backends may exist before their service.
    fixture.put(slice(&[(1, "http", State::Active)]));
    assert_eq!(fixture.dump(), ["w - [] [10.0.0.1:80/TCP=active/http/file]"]);
    fixture.put(service("file", "w", &[1, 2]));
    let both = "w file [203.0.113.1:80/TCP 203.0.113.2:80/TCP]";
    assert_eq!(fixture.dump(), [format!("{both} [10.0.0.1:80/TCP=active/http/file]")]);
    fixture.put(slice(&[(2, "http", State::Terminating)]));
    assert_eq!(fixture.dump(), [format!("{both} [10.0.0.2:80/TCP=terminating/http/file]")]);
    let revision = fixture.writer.tables().revision();
    let again = fixture.objects.as_events();
    let mut to = fixture.writer.begin(UNIX_EPOCH);
    assert_eq!(fixture.reflector.apply(&fixture.objects, &again, &mut to), vec![]);
    assert_eq!(to.commit(), revision, "unchanged rows were written");
    fixture.put(service("file", "w", &[2]));
    fixture.change(&[deletion(&slice(&[]))]);
    assert_eq!(fixture.dump(), ["w file [203.0.113.2:80/TCP] []"]);
    fixture.change(&[deletion(&service("file", "w", &[]))]);
    assert_eq!(fixture.dump(), [""; 0]);
    assert_eq!(fixture.reflector.lists.iter().count(), 0);
}

#[test]
fn node_port_out_of_range_is_rejected() {
    let mut fixture = Fixture::new();
    fixture.reflector = fixture.reflector.with_node_ports(30_000..=30_010);
    let service = |port: u16| {
        let frontend =
            json!({"address": "0.0.0.0", "port": port, "protocol": "tcp", "type": "NodePort"});
        let json = json!({"kind": "Service", "name": "w", "spec": {"frontends": [frontend]}});
        Object::from_json(&json).unwrap()
    };
    assert_eq!(fixture.put(service(30_011)), ["w of api: Rejected"]);
    assert_eq!(fixture.dump(), [""; 0]);
    let Some(Verdict::Rejected(error)) = fixture.reflector.verdicts.values().next() else {
        panic!()
    };
    let text = error.to_string();
    assert!(text.contains("30011") && text.contains("30000 to 30010 (`node_ports`"), "{text}");
    assert_eq!(fixture.put(service(30_010)), ["w of api: Accepted"]);
    assert_eq!(fixture.dump(), ["w api [0.0.0.0:30010/TCP] []"]);
}

/// Returns the ports that an appliance with this configuration uses itself.
fn reserved(punt: &str) -> Reserved {
    let text =
        format!("[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[punt]\n{punt}\n");
    Reserved::of(&config::from_toml(&text).unwrap())
}

#[test]
fn reserved_port_is_rejected_for_every_source() {
    let mut fixture = Fixture::new();
    fixture.reflector = fixture.reflector.with_reserved(reserved(""));
    let service = |source: &str, frontend: serde_json::Value| {
        let spec = json!({"frontends": [frontend]});
        let json = json!({"kind": "Service", "name": source, "source": source, "spec": spec});
        Object::from_json(&json).unwrap()
    };
    let probed = json!({"address": "10.0.1.10", "port": 8080, "protocol": "tcp"});
    for source in ["api", "file", "kubernetes", "session-1"] {
        let verdicts = fixture.put(service(source, probed.clone()));
        assert_eq!(verdicts, [format!("{source} of {source}: Rejected")]);
    }
    assert_eq!(fixture.dump(), [""; 0]);
    let Some(Verdict::Rejected(error)) = fixture.reflector.verdicts.values().next() else {
        panic!()
    };
    let text = error.to_string();
    assert!(text.contains("service `api`") && text.contains("`health.listen`"), "{text}");
    // Packets of one gateway endpoint, and from within the cluster, are not health probes.
    let mut scoped = probed.clone();
    scoped["scope"] = json!("0x1f");
    assert_eq!(fixture.put(service("api", scoped)), ["api of api: Accepted"]);
    let mut internal = probed;
    internal["traffic_scope"] = json!("internal");
    assert_eq!(fixture.put(service("file", internal)), ["file of file: Accepted"]);
}

#[test]
fn port_is_rejected_while_reserved() {
    let mut fixture = Fixture::new();
    fixture.reflector = fixture.reflector.with_reserved(reserved("local_ports = [22, 2222]"));
    let ssh = json!({"address": "10.0.1.10", "port": 2222, "protocol": "tcp"});
    let json = json!({"kind": "Service", "name": "w", "spec": {"frontends": [ssh]}});
    assert_eq!(fixture.put(Object::from_json(&json).unwrap()), ["w of api: Rejected"]);
    fixture.put(service("file", "other", &[1]));
    let mut reserve = |punt: &str| {
        let mut to = fixture.writer.begin(UNIX_EPOCH);
        let verdict_changes =
            fixture.reflector.set_reserved(reserved(punt), &fixture.objects, &mut to);
        to.commit();
        let verdicts = verdict_changes.into_iter().map(|change| match change.verdict {
            Verdict::Rejected(error) => error.to_string(),
            verdict => format!("{verdict:?}"),
        });
        verdicts.collect::<Vec<_>>()
    };
    assert_eq!(reserve("local_ports = [22]"), ["Accepted"]);
    assert_eq!(reserve("local_ports = [22]"), [""; 0]);
    let verdicts = reserve("local_ports = [22, 2222]");
    assert!(verdicts[0].contains("`punt.local_ports`") && verdicts.len() == 1, "{verdicts:?}");
}

#[test]
fn lists_of_one_source_merge_and_sources_shadow_each_other() {
    let mut fixture = Fixture::new();
    fixture.put(backends(
        "kubernetes",
        "w-1",
        "w",
        &[(1, "a", State::Terminating), (2, "a", State::Active)],
    ));
    fixture.put(backends("kubernetes", "w-2", "w", &[(1, "b", State::Active)]));
    fixture.put(backends("file", "w", "w", &[(2, "c", State::Active)]));
    assert_eq!(
        fixture.dump(),
        ["w - [] [10.0.0.1:80/TCP=active/b+a/kubernetes 10.0.0.2:80/TCP=active/c/file \
          10.0.0.2:80/TCP=active/a/kubernetes]"]
    );
    // A list that names another service is removed from the first one.
    fixture.put(backends("kubernetes", "w-2", "v", &[(1, "b", State::Active)]));
    fixture.change(&[deletion(&backends("file", "w", "w", &[]))]);
    assert_eq!(
        fixture.dump(),
        [
            "v - [] [10.0.0.1:80/TCP=active/b/kubernetes]",
            "w - [] [10.0.0.1:80/TCP=terminating/a/kubernetes 10.0.0.2:80/TCP=active/a/kubernetes]"
        ]
    );
}

#[test]
fn addresses_move_and_swap_between_services_in_one_step() {
    let mut fixture = Fixture::new();
    fixture.put(service("file", "a", &[1]));
    fixture.put(service("file", "b", &[2]));
    let verdicts = fixture.change(&[
        Change::put(service("file", "a", &[2])),
        Change::put(service("file", "b", &[1])),
    ]);
    assert_eq!(verdicts, [""; 0]);
    assert_eq!(
        fixture.dump(),
        ["a file [203.0.113.2:80/TCP] []", "b file [203.0.113.1:80/TCP] []"]
    );
    let verdicts = fixture.change(&[
        Change::put(service("file", "a", &[1, 2])),
        deletion(&service("file", "b", &[])),
    ]);
    assert_eq!(verdicts, [""; 0]);
    assert_eq!(fixture.dump(), ["a file [203.0.113.1:80/TCP 203.0.113.2:80/TCP] []"]);
}

#[test]
fn address_conflict_is_reported_and_retried() {
    let mut fixture = Fixture::new();
    fixture.put(service("file", "z", &[1]));
    assert_eq!(fixture.put(service("api", "a", &[1, 2])), ["a of api: Rejected"]);
    // A verdict is returned once, and publishing it on the object changes no row.
    let change = VerdictChange {
        key: service("api", "a", &[]).key(),
        generation: 2,
        verdict: Verdict::Accepted,
    };
    assert_eq!(fixture.change(&[change.into_change(UNIX_EPOCH)]), [""; 0]);
    assert_eq!(fixture.dump(), ["z file [203.0.113.1:80/TCP] []"]);
    assert_eq!(fixture.put(service("file", "z", &[3])), ["a of api: Accepted"]);
    assert_eq!(fixture.put(service("file", "b", &[3])), ["b of file: Rejected"]);
    assert_eq!(fixture.change(&[deletion(&service("file", "z", &[]))]), ["b of file: Accepted"]);
    assert!(fixture.reflector.verdicts.is_empty() && fixture.reflector.waiting.is_empty());
}

#[test]
fn preferred_source_wins_regardless_of_order() {
    let mut fixture = Fixture::new();
    fixture.put(service("kubernetes", "w", &[1]));
    assert_eq!(fixture.put(service("file", "w", &[2])), ["w of kubernetes: Shadowed"]);
    assert_eq!(fixture.dump(), ["w file [203.0.113.2:80/TCP] []"]);
    assert_eq!(fixture.put(service("kubernetes", "w", &[3])), [""; 0]);
    assert_eq!(
        fixture.change(&[deletion(&service("file", "w", &[]))]),
        ["w of kubernetes: Accepted"]
    );
    assert_eq!(fixture.dump(), ["w kubernetes [203.0.113.3:80/TCP] []"]);
    // An object in deletion is not used, even while a finalizer delays its removal.
    let key = service("kubernetes", "w", &[]).key();
    let finalizer = Change::Finalizer { key: key.clone(), name: "x".into(), present: true };
    fixture.change(&[finalizer, Change::delete(key)]);
    assert_eq!(fixture.dump(), [""; 0]);
}

#[test]
fn services_of_other_writers_are_not_deleted() {
    let mut fixture = Fixture::new();
    let name = Name::new("w").unwrap();
    let mut to = fixture.writer.begin(UNIX_EPOCH);
    to.upsert_service_and_frontends(
        Service::new(name.clone(), Source::new("redirect")),
        Vec::new(),
    )
    .unwrap();
    to.commit();
    assert_eq!(fixture.put(service("file", "w", &[1])), ["w of file: Rejected"]);
    assert_eq!(fixture.dump(), ["w redirect [] []"]);
    let mut to = fixture.writer.begin(UNIX_EPOCH);
    to.delete_service_and_frontends(&name, &Source::new("redirect")).unwrap();
    to.commit();
    assert_eq!(fixture.change(&[]), ["w of file: Accepted"]);
}

#[test]
fn differing_policies_add_internal_frontends() {
    let mut json = serde_json::to_value(service("file", "w", &[1])).unwrap();
    json["spec"]["external_policy"] = json!("Local");
    let cluster =
        json!({"address": "10.96.0.1", "port": 80, "protocol": "tcp", "type": "ClusterIP"});
    json["spec"]["frontends"].as_array_mut().unwrap().push(cluster);
    let mut fixture = Fixture::new();
    fixture.put(Object::from_json(&json).unwrap());
    let all = "w file [10.96.0.1:80/TCP 203.0.113.1:80/TCP 203.0.113.1:80/TCP/i] []";
    assert_eq!(fixture.dump(), [all]);
    json["spec"]["internal_policy"] = json!("Local");
    fixture.put(Object::from_json(&json).unwrap());
    assert_eq!(fixture.dump(), ["w file [10.96.0.1:80/TCP 203.0.113.1:80/TCP] []"]);
}

proptest! {
    /// In every state, an accepted service is as its preferred source wrote it, and a rejected
    /// service needs an address that another service has.
    #[test]
    fn every_service_without_a_conflict_is_in_the_tables(steps in prop::collection::vec(
        prop::collection::vec((0..3_usize, 0..4_usize, prop::collection::vec(0..5_u8, 0..3)), 1..4),
        1..30,
    )) {
        let mut fixture = Fixture::new();
        for step in steps {
            let mut changes = Vec::new();
            for (source, name, mut hosts) in step {
                hosts.sort_unstable();
                hosts.dedup();
                let source = ["api", "file", "kubernetes"][source];
                let object = service(source, ["a", "b", "c", "d"][name], &hosts);
                let exists = fixture.objects.get(&object.key()).is_some();
                let twice = changes.contains(&deletion(&object));
                match hosts.is_empty() {
                    false => changes.push(Change::put(object)),
                    true if exists && !twice => changes.push(deletion(&object)),
                    true => {}
                }
            }
            fixture.change(&changes);
            let tables = fixture.writer.tables();
            for name in ["a", "b", "c", "d"].map(|name| Name::new(name).unwrap()) {
                let Some(object) = fixture.reflector.preferred(&fixture.objects, &name) else {
                    prop_assert!(tables.service(&name).is_none());
                    continue;
                };
                let Spec::Service(spec) = &object.spec else { unreachable!() };
                let owned = |frontend: &FrontendSpec| {
                    tables.frontend(&frontend.address).map(|row| row.service.name.clone())
                };
                match fixture.reflector.verdicts.get(&object.key()) {
                    None => {
                        let row = tables.service(&name).unwrap();
                        prop_assert_eq!(&row.source, &object.source);
                        let entry = tables.entry(&name).unwrap();
                        prop_assert_eq!(entry.frontends.len(), spec.frontends.len());
                        let is_its =
                            |frontend: &FrontendSpec| owned(frontend).as_ref() == Some(&name);
                        prop_assert!(spec.frontends.iter().all(is_its));
                    }
                    Some(_) => prop_assert!(
                        spec.frontends.iter().any(|s| owned(s).is_some_and(|o| o != name)),
                        "{} is rejected without a conflict: {:?}", name, fixture.dump()
                    ),
                }
            }
        }
    }

    /// Overlapping lists of backends lead to the same tables whether they are written change by
    /// change or all at once.
    #[test]
    fn backends_are_independent_of_change_history(steps in prop::collection::vec(
        prop::collection::vec(
            (0..2_usize, 0..3_usize, 0..2_usize,
             prop::collection::vec((0..6_u8, 0..3_usize, 0..2_usize), 0..5)),
            1..4,
        ),
        1..20,
    )) {
        let mut fixture = Fixture::new();
        for step in steps {
            let mut changes = Vec::new();
            for (source, list, of, members) in step {
                let states = [State::Active, State::Terminating, State::Maintenance];
                let mut members: Vec<_> = members
                    .into_iter()
                    .map(|(host, state, port)| (host, ["http", "https"][port], states[state]))
                    .collect();
                members.sort_by_key(|(host, ..)| *host);
                members.dedup_by_key(|(host, ..)| *host);
                let source = ["file", "kubernetes"][source];
                let object = backends(source, ["x", "y", "z"][list], ["a", "b"][of], &members);
                let exists = fixture.objects.get(&object.key()).is_some();
                let twice = changes.iter().any(|change| *change == deletion(&object));
                match members.is_empty() {
                    false => changes.push(Change::put(object)),
                    true if exists && !twice => changes.push(deletion(&object)),
                    true => {}
                }
            }
            fixture.change(&changes);
            let mut fresh = Fixture::new();
            let mut to = fresh.writer.begin(UNIX_EPOCH);
            fresh.reflector.apply(&fixture.objects, &fixture.objects.as_events(), &mut to);
            to.commit();
            prop_assert_eq!(instances(&fixture), instances(&fresh));
        }
    }
}

/// Returns every instance with its port names sorted, because merged lists have them in any order.
fn instances(fixture: &Fixture) -> Vec<String> {
    let tables = fixture.writer.tables();
    let all = tables.entries().flat_map(|(name, entry)| {
        entry.instances.iter().map(move |instance| {
            let mut names: Vec<&str> = instance.port_names.iter().map(|name| &**name).collect();
            names.sort_unstable();
            let (at, state) = (instance.endpoint, instance.state.as_str());
            format!("{name} {at} {state} {} {}", names.join("+"), instance.source)
        })
    });
    all.collect()
}
