//! Tests of the tables that objects of several sources lead to.

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
struct House {
    objects: Objects,
    reflector: Reflector,
    writer: Writer,
}

impl House {
    fn new() -> House {
        let order = ["api", "file", "kubernetes"].map(Source::new);
        let reflector = Reflector::new(Precedence::new(order), ArmName::Egress);
        House { objects: Objects::default(), reflector, writer: Writer::new() }
    }

    /// Applies changes in one step and returns the verdicts as `name of source: reason`.
    fn change(&mut self, changes: &[Change]) -> Vec<String> {
        let mut events = Vec::new();
        for change in changes {
            events.extend(self.objects.apply(change, UNIX_EPOCH).unwrap());
        }
        let mut to = self.writer.begin(UNIX_EPOCH);
        let news = self.reflector.apply(&self.objects, &events, &mut to);
        to.commit();
        let told = |told: Told| {
            let key = told.key.clone();
            match told.into_change(UNIX_EPOCH) {
                Change::Status { conditions, .. } => {
                    format!("{} of {}: {}", key.name, key.source, conditions[0].reason)
                }
                change => panic!("{change:?}"),
            }
        };
        news.into_iter().map(told).collect()
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

fn gone(object: &Object) -> Change {
    Change::delete(object.key())
}

#[test]
fn what_is_said_is_in_the_tables_and_what_is_not_said_any_more_is_not() {
    let mut house = House::new();
    let slice = |hosts: &[(u8, &str, State)]| backends("file", "w-1", "w", hosts);
    // Backends may exist before their service.
    house.put(slice(&[(1, "http", State::Active)]));
    assert_eq!(house.dump(), ["w - [] [10.0.0.1:80/TCP=active/http/file]"]);
    house.put(service("file", "w", &[1, 2]));
    let both = "w file [203.0.113.1:80/TCP 203.0.113.2:80/TCP]";
    assert_eq!(house.dump(), [format!("{both} [10.0.0.1:80/TCP=active/http/file]")]);
    house.put(slice(&[(2, "http", State::Terminating)]));
    assert_eq!(house.dump(), [format!("{both} [10.0.0.2:80/TCP=terminating/http/file]")]);
    let revision = house.writer.tables().revision();
    let again = house.objects.as_events();
    let mut to = house.writer.begin(UNIX_EPOCH);
    assert_eq!(house.reflector.apply(&house.objects, &again, &mut to), vec![]);
    assert_eq!(to.commit(), revision, "what is so already was written");
    house.put(service("file", "w", &[2]));
    house.change(&[gone(&slice(&[]))]);
    assert_eq!(house.dump(), ["w file [203.0.113.2:80/TCP] []"]);
    house.change(&[gone(&service("file", "w", &[]))]);
    assert_eq!(house.dump(), [""; 0]);
    assert_eq!(house.reflector.lists.iter().count(), 0);
}

#[test]
fn a_node_port_out_of_range_is_its_objects_refusal() {
    let mut house = House::new();
    house.reflector = house.reflector.with_node_ports(30_000..=30_010);
    let service = |port: u16| {
        let frontend =
            json!({"address": "0.0.0.0", "port": port, "protocol": "tcp", "type": "NodePort"});
        let json = json!({"kind": "Service", "name": "w", "spec": {"frontends": [frontend]}});
        Object::from_json(&json).unwrap()
    };
    assert_eq!(house.put(service(30_011)), ["w of api: Refused"]);
    assert_eq!(house.dump(), [""; 0]);
    let Some(Verdict::Refused(error)) = house.reflector.told.values().next() else { panic!() };
    let told = error.to_string();
    assert!(told.contains("30011") && told.contains("30000 to 30010 (`node_ports`"), "{told}");
    assert_eq!(house.put(service(30_010)), ["w of api: Accepted"]);
    assert_eq!(house.dump(), ["w api [0.0.0.0:30010/TCP] []"]);
}

/// Returns the ports that an appliance with this configuration uses itself.
fn reserved(punt: &str) -> Reserved {
    let text =
        format!("[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[punt]\n{punt}\n");
    Reserved::of(&config::from_toml(&text).unwrap())
}

#[test]
fn a_port_of_the_appliance_itself_is_refused_whichever_source_wants_it() {
    let mut house = House::new();
    house.reflector = house.reflector.with_reserved(reserved(""));
    let service = |source: &str, frontend: serde_json::Value| {
        let spec = json!({"frontends": [frontend]});
        let json = json!({"kind": "Service", "name": source, "source": source, "spec": spec});
        Object::from_json(&json).unwrap()
    };
    let probed = json!({"address": "10.0.1.10", "port": 8080, "protocol": "tcp"});
    for source in ["api", "file", "kubernetes", "session-1"] {
        let told = house.put(service(source, probed.clone()));
        assert_eq!(told, [format!("{source} of {source}: Refused")]);
    }
    assert_eq!(house.dump(), [""; 0]);
    let Some(Verdict::Refused(error)) = house.reflector.told.values().next() else { panic!() };
    let told = error.to_string();
    assert!(told.contains("service `api`") && told.contains("`health.listen`"), "{told}");
    // Packets of one gateway endpoint, and from within the cluster, are not health probes.
    let mut scoped = probed.clone();
    scoped["scope"] = json!("0x1f");
    assert_eq!(house.put(service("api", scoped)), ["api of api: Accepted"]);
    let mut inner = probed;
    inner["reach"] = json!("internal");
    assert_eq!(house.put(service("file", inner)), ["file of file: Accepted"]);
}

#[test]
fn a_port_that_becomes_the_appliances_own_is_refused_and_given_back() {
    let mut house = House::new();
    house.reflector = house.reflector.with_reserved(reserved("local_ports = [22, 2222]"));
    let ssh = json!({"address": "10.0.1.10", "port": 2222, "protocol": "tcp"});
    let json = json!({"kind": "Service", "name": "w", "spec": {"frontends": [ssh]}});
    assert_eq!(house.put(Object::from_json(&json).unwrap()), ["w of api: Refused"]);
    house.put(service("file", "other", &[1]));
    let mut turn = |punt: &str| {
        let mut to = house.writer.begin(UNIX_EPOCH);
        let told = house.reflector.set_reserved(reserved(punt), &house.objects, &mut to);
        to.commit();
        let verdicts = told.into_iter().map(|told| match told.verdict {
            Verdict::Refused(error) => error.to_string(),
            verdict => format!("{verdict:?}"),
        });
        verdicts.collect::<Vec<_>>()
    };
    assert_eq!(turn("local_ports = [22]"), ["Accepted"]);
    assert_eq!(turn("local_ports = [22]"), [""; 0]);
    let told = turn("local_ports = [22, 2222]");
    assert!(told[0].contains("`punt.local_ports`") && told.len() == 1, "{told:?}");
}

#[test]
fn lists_of_one_source_are_added_and_sources_overlie_each_other() {
    let mut house = House::new();
    house.put(backends(
        "kubernetes",
        "w-1",
        "w",
        &[(1, "a", State::Terminating), (2, "a", State::Active)],
    ));
    house.put(backends("kubernetes", "w-2", "w", &[(1, "b", State::Active)]));
    house.put(backends("file", "w", "w", &[(2, "c", State::Active)]));
    assert_eq!(
        house.dump(),
        ["w - [] [10.0.0.1:80/TCP=active/b+a/kubernetes 10.0.0.2:80/TCP=active/c/file \
          10.0.0.2:80/TCP=active/a/kubernetes]"]
    );
    // A list that is moved to another service leaves the first.
    house.put(backends("kubernetes", "w-2", "v", &[(1, "b", State::Active)]));
    house.change(&[gone(&backends("file", "w", "w", &[]))]);
    assert_eq!(
        house.dump(),
        [
            "v - [] [10.0.0.1:80/TCP=active/b/kubernetes]",
            "w - [] [10.0.0.1:80/TCP=terminating/a/kubernetes 10.0.0.2:80/TCP=active/a/kubernetes]"
        ]
    );
}

#[test]
fn an_address_moves_and_is_swapped_in_one_step() {
    let mut house = House::new();
    house.put(service("file", "a", &[1]));
    house.put(service("file", "b", &[2]));
    let told = house.change(&[
        Change::put(service("file", "a", &[2])),
        Change::put(service("file", "b", &[1])),
    ]);
    assert_eq!(told, [""; 0]);
    assert_eq!(house.dump(), ["a file [203.0.113.2:80/TCP] []", "b file [203.0.113.1:80/TCP] []"]);
    let told = house
        .change(&[Change::put(service("file", "a", &[1, 2])), gone(&service("file", "b", &[]))]);
    assert_eq!(told, [""; 0]);
    assert_eq!(house.dump(), ["a file [203.0.113.1:80/TCP 203.0.113.2:80/TCP] []"]);
}

#[test]
fn a_taken_address_is_told_and_waited_for() {
    let mut house = House::new();
    house.put(service("file", "z", &[1]));
    assert_eq!(house.put(service("api", "a", &[1, 2])), ["a of api: Refused"]);
    // A verdict is returned once, and writing it to the object is not a change.
    let told =
        Told { key: service("api", "a", &[]).key(), generation: 2, verdict: Verdict::Accepted };
    assert_eq!(house.change(&[told.into_change(UNIX_EPOCH)]), [""; 0]);
    assert_eq!(house.dump(), ["z file [203.0.113.1:80/TCP] []"]);
    assert_eq!(house.put(service("file", "z", &[3])), ["a of api: Accepted"]);
    assert_eq!(house.put(service("file", "b", &[3])), ["b of file: Refused"]);
    assert_eq!(house.change(&[gone(&service("file", "z", &[]))]), ["b of file: Accepted"]);
    assert!(house.reflector.told.is_empty() && house.reflector.waiting.is_empty());
}

#[test]
fn the_preferred_source_is_heard_whoever_came_first() {
    let mut house = House::new();
    house.put(service("kubernetes", "w", &[1]));
    assert_eq!(house.put(service("file", "w", &[2])), ["w of kubernetes: Shadowed"]);
    assert_eq!(house.dump(), ["w file [203.0.113.2:80/TCP] []"]);
    assert_eq!(house.put(service("kubernetes", "w", &[3])), [""; 0]);
    assert_eq!(house.change(&[gone(&service("file", "w", &[]))]), ["w of kubernetes: Accepted"]);
    assert_eq!(house.dump(), ["w kubernetes [203.0.113.3:80/TCP] []"]);
    // An object in deletion is not used, even while a finalizer delays its removal.
    let key = service("kubernetes", "w", &[]).key();
    let held = Change::Finalizer { key: key.clone(), name: "x".into(), held: true };
    house.change(&[held, Change::delete(key)]);
    assert_eq!(house.dump(), [""; 0]);
}

#[test]
fn what_another_wrote_under_a_name_is_not_deleted() {
    let mut house = House::new();
    let name = Name::new("w").unwrap();
    let mut to = house.writer.begin(UNIX_EPOCH);
    to.upsert_service_and_frontends(
        Service::new(name.clone(), Source::new("redirect")),
        Vec::new(),
    )
    .unwrap();
    to.commit();
    assert_eq!(house.put(service("file", "w", &[1])), ["w of file: Refused"]);
    assert_eq!(house.dump(), ["w redirect [] []"]);
    let mut to = house.writer.begin(UNIX_EPOCH);
    to.delete_service_and_frontends(&name, &Source::new("redirect")).unwrap();
    to.commit();
    assert_eq!(house.change(&[]), ["w of file: Accepted"]);
}

#[test]
fn where_policies_differ_addresses_exist_for_packets_from_within_too() {
    let mut json = serde_json::to_value(service("file", "w", &[1])).unwrap();
    json["spec"]["external_policy"] = json!("Local");
    let cluster =
        json!({"address": "10.96.0.1", "port": 80, "protocol": "tcp", "type": "ClusterIP"});
    json["spec"]["frontends"].as_array_mut().unwrap().push(cluster);
    let mut house = House::new();
    house.put(Object::from_json(&json).unwrap());
    let all = "w file [10.96.0.1:80/TCP 203.0.113.1:80/TCP 203.0.113.1:80/TCP/i] []";
    assert_eq!(house.dump(), [all]);
    json["spec"]["internal_policy"] = json!("Local");
    house.put(Object::from_json(&json).unwrap());
    assert_eq!(house.dump(), ["w file [10.96.0.1:80/TCP 203.0.113.1:80/TCP] []"]);
}

proptest! {
    /// In every state, a service that is accepted is as its preferred source wrote it, and a
    /// rejected one needs an address that another service has.
    #[test]
    fn all_that_can_be_is(steps in prop::collection::vec(
        prop::collection::vec((0..3_usize, 0..4_usize, prop::collection::vec(0..5_u8, 0..3)), 1..4),
        1..30,
    )) {
        let mut house = House::new();
        for step in steps {
            let mut changes = Vec::new();
            for (source, name, mut hosts) in step {
                hosts.sort_unstable();
                hosts.dedup();
                let source = ["api", "file", "kubernetes"][source];
                let object = service(source, ["a", "b", "c", "d"][name], &hosts);
                let is_there = house.objects.get(&object.key()).is_some();
                let twice = changes.contains(&gone(&object));
                match hosts.is_empty() {
                    false => changes.push(Change::put(object)),
                    true if is_there && !twice => changes.push(gone(&object)),
                    true => {}
                }
            }
            house.change(&changes);
            let tables = house.writer.tables();
            for name in ["a", "b", "c", "d"].map(|name| Name::new(name).unwrap()) {
                let Some(object) = house.reflector.chosen(&house.objects, &name) else {
                    prop_assert!(tables.service(&name).is_none());
                    continue;
                };
                let Spec::Service(spec) = &object.spec else { unreachable!() };
                let owned = |said: &FrontendSpec| {
                    tables.frontend(&said.address).map(|row| row.service.name.clone())
                };
                match house.reflector.told.get(&object.key()) {
                    None => {
                        let row = tables.service(&name).unwrap();
                        prop_assert_eq!(&row.source, &object.source);
                        let entry = tables.entry(&name).unwrap();
                        prop_assert_eq!(entry.frontends.len(), spec.frontends.len());
                        let is_its = |said: &FrontendSpec| owned(said).as_ref() == Some(&name);
                        prop_assert!(spec.frontends.iter().all(is_its));
                    }
                    Some(_) => prop_assert!(
                        spec.frontends.iter().any(|s| owned(s).is_some_and(|o| o != name)),
                        "{} waits for nobody: {:?}", name, house.dump()
                    ),
                }
            }
        }
    }

    /// Overlapping lists of backends that are written change by change lead to the same tables as
    /// if the objects had existed from the start.
    #[test]
    fn backends_do_not_depend_on_the_changes_that_led_to_them(steps in prop::collection::vec(
        prop::collection::vec(
            (0..2_usize, 0..3_usize, 0..2_usize,
             prop::collection::vec((0..6_u8, 0..3_usize, 0..2_usize), 0..5)),
            1..4,
        ),
        1..20,
    )) {
        let mut house = House::new();
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
                let is_there = house.objects.get(&object.key()).is_some();
                let twice = changes.iter().any(|change| *change == gone(&object));
                match members.is_empty() {
                    false => changes.push(Change::put(object)),
                    true if is_there && !twice => changes.push(gone(&object)),
                    true => {}
                }
            }
            house.change(&changes);
            let mut fresh = House::new();
            let mut to = fresh.writer.begin(UNIX_EPOCH);
            fresh.reflector.apply(&house.objects, &house.objects.as_events(), &mut to);
            to.commit();
            prop_assert_eq!(instances(&house), instances(&fresh));
        }
    }
}

/// Returns every instance with its port names sorted: merging several lists keeps no order.
fn instances(house: &House) -> Vec<String> {
    let tables = house.writer.tables();
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
