//! Tests random sequences of changes against a model of plain maps.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Service(u8),
    RemoveService(u8),
    Frontend { key: u8, service: u8 },
    RemoveFrontend(u8),
    Backend { host: u8, state: u8 },
    RemoveBackend(u8),
    Slots { service: u8, first: u8, count: u8, weight: u8 },
    Commit,
    Reclaim,
    Restart,
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0u8..12;
    prop_oneof![
        n.clone().prop_map(Step::Service),
        n.clone().prop_map(Step::RemoveService),
        (0u8..40, n.clone()).prop_map(|(key, service)| Step::Frontend { key, service }),
        (0u8..40).prop_map(Step::RemoveFrontend),
        (n.clone(), 0u8..4).prop_map(|(host, state)| Step::Backend { host, state }),
        n.clone().prop_map(Step::RemoveBackend),
        (n.clone(), 0u8..12, 0u8..5, 1u8..4).prop_map(|(service, first, count, weight)| {
            Step::Slots { service, first, count, weight }
        }),
        Just(Step::Commit),
        Just(Step::Commit),
        Just(Step::Reclaim),
        Just(Step::Restart),
        Just(Step::Abort),
    ]
}

/// Expected contents of the tables.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    services: BTreeMap<String, BTreeSet<u8>>,
    frontends: BTreeMap<u8, String>,
    backends: BTreeMap<u8, u8>,
}

fn key_of(n: u8) -> FrontendKey {
    let scope_key = u64::from(n.is_multiple_of(3)) * 5;
    match n % 4 {
        0 => FrontendKey { scope_key, ..network("10.1.0.0", 112, u16::from(n), 6) },
        1 => FrontendKey { scope_key, ..key("10.1.2.3", u16::from(n), 17) },
        _ => FrontendKey { scope_key, ..key("2001:db8::7", u16::from(n), 0) },
    }
}

fn name_of(n: u8) -> String {
    format!("tenant/service-{n}")
}

/// Actual contents of the tables.
fn read(set: &TableSet<'_>) -> Model {
    let name = |id| set.service_name(id).unwrap();
    let host = |id: u32| set.backend(id).map_or(255, |b| b.addr.octets()[15]);
    let mut model = Model::default();
    for (id, service) in set.services() {
        let mut slots: BTreeSet<u8> = set.slots(&service.slots).map(host).collect();
        if service.single != NONE {
            slots.insert(host(service.single));
        }
        model.services.insert(name(id), slots);
    }
    for n in 0..40 {
        let key = key_of(n);
        let target = set.views.frontends.target(&key, set.generation());
        let listed = set.frontends().find(|(k, _)| **k == key).map(|(_, id)| id);
        assert_eq!(target, listed);
        if let Some(id) = target {
            model.frontends.insert(n, name(id));
        }
    }
    assert_eq!(set.frontends().count(), model.frontends.len());
    for (_, backend) in set.backends() {
        model.backends.insert(backend.addr.octets()[15], backend.state);
    }
    model
}

fn apply(writer: &mut Writer<'_>, model: &mut Model, step: &Step) {
    match step {
        Step::Service(n) => {
            if writer.put_service(&name_of(*n), &policy()).is_ok() {
                model.services.entry(name_of(*n)).or_default();
            }
        }
        Step::RemoveService(n) => {
            let Some(id) = writer.service_id(&name_of(*n)) else { return };
            let used = model.frontends.values().any(|name| *name == name_of(*n));
            assert_eq!(writer.remove_service(id).is_ok(), !used);
            if !used {
                model.services.remove(&name_of(*n));
            }
        }
        Step::Frontend { key, service } => {
            let Some(id) = writer.service_id(&name_of(*service)) else { return };
            writer.put_frontend(&key_of(*key), id).unwrap();
            model.frontends.insert(*key, name_of(*service));
        }
        Step::RemoveFrontend(n) => {
            writer.remove_frontend(&key_of(*n)).unwrap();
            model.frontends.remove(n);
        }
        Step::Backend { host, state } => {
            let requested = Backend { state: *state, ..backend(*host) };
            if writer.put_backend(&requested).is_ok() {
                model.backends.insert(*host, *state);
            }
        }
        Step::RemoveBackend(n) => {
            // The writer does not prevent the removal of a backend to which slots refer; slowpath
            // removes the backend from the slots first.
            if model.services.values().any(|slots| slots.contains(n)) {
                return;
            }
            if model.backends.remove(n).is_some() {
                let id = writer.backend_id(&backend(*n).addr, 80).unwrap();
                writer.remove_backend(id).unwrap();
            }
        }
        Step::Slots { service, first, count, weight } => {
            let Some(id) = writer.service_id(&name_of(*service)) else { return };
            let hosts: BTreeSet<u8> = (0..*count)
                .map(|i| (first + i) % 12)
                .filter(|host| model.backends.contains_key(host))
                .collect();
            let ids: Vec<(u32, u32)> = hosts
                .iter()
                .map(|p| (writer.backend_id(&backend(*p).addr, 80).unwrap(), u32::from(*weight)))
                .collect();
            writer.set_slots(id, &ids, 251, "TCP").unwrap();
            model.services.insert(name_of(*service), hosts);
        }
        Step::Commit | Step::Reclaim | Step::Restart | Step::Abort => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tables_match_a_model(steps in proptest::collection::vec(step(), 1..120)) {
        let region = region();
        let mut writer = Writer::attach(&region).unwrap();
        let (mut committed, mut model) = (Model::default(), Model::default());
        for step in &steps {
            apply(&mut writer, &mut model, step);
            match step {
                Step::Commit => {
                    writer.commit().unwrap();
                    committed = model.clone();
                }
                Step::Reclaim => { writer.reclaim(|_| false); }
                Step::Restart => {
                    drop(writer);
                    writer = Writer::attach(&region).unwrap();
                    model = committed.clone();
                }
                Step::Abort => {
                    writer.abort().unwrap();
                    model = committed.clone();
                }
                _ => {}
            }
            prop_assert_eq!(&read(&writer.prepared()), &model);
            prop_assert_eq!(&read(&region.tables(region.generation())), &committed);
        }
    }
}
