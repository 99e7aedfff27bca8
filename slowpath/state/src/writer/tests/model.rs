//! Random histories of writes, compared with a simple model without sharing, snapshots and indexes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::backend::Health;

/// One write. Its numbers select few services, sources, addresses and endpoints, so that writes
/// collide.
#[derive(Clone, Debug)]
enum Op {
    /// Service, source, affinity, and frontends: host and service port.
    Upsert(u8, u8, u32, Vec<(u8, u16)>),
    /// Service and source.
    DeleteService(u8, u8),
    /// Host of the frontend.
    DeleteFrontend(u8),
    /// Host of the frontend, and the service whose backends it uses; `None` ends the redirection.
    Redirect(u8, Option<u8>),
    /// Service, source, and backends: host, weight and cluster.
    SetBackends(u8, u8, Vec<(u8, u16, u32)>),
    /// Service, host of the backend, and whether it is healthy.
    Health(u8, u8, bool),
    /// Sources in order of preference.
    Precedence(Vec<u8>),
}

fn ops() -> impl Strategy<Value = Op> {
    let (service, from, at) = (|| 0..4u8, || 0..3u8, || 0..5u8);
    let instances = move || proptest::collection::vec((at(), 1..3u16, 0..2u32), 0..4);
    let front = move || proptest::collection::vec((at(), 0..2u16), 0..4);
    prop_oneof![
        6 => (service(), 0..2u8, 0..3u32, front()).prop_map(|(s, f, n, l)| Op::Upsert(s, f, n, l)),
        1 => (service(), from()).prop_map(|(s, f)| Op::DeleteService(s, f)),
        1 => at().prop_map(Op::DeleteFrontend),
        2 => (at(), proptest::option::of(service())).prop_map(|(a, s)| Op::Redirect(a, s)),
        4 => (service(), from(), instances()).prop_map(|(s, f, l)| Op::SetBackends(s, f, l)),
        3 => (service(), at(), any::<bool>()).prop_map(|(s, a, h)| Op::Health(s, a, h)),
        1 => proptest::collection::vec(from(), 0..3).prop_map(Op::Precedence),
    ]
}

fn service_name(n: u8) -> Name {
    name(["web", "shop", "a/mail", "b/c/dns"][usize::from(n)])
}

fn source_name(n: u8) -> Source {
    source(["file", "api", "kubernetes"][usize::from(n)])
}

fn service_row(n: u8, from: u8, affinity_s: u32) -> Service {
    Service::new(service_name(n), source_name(from))
        .with(|spec| spec.affinity_s = affinity_s)
        .unwrap()
}

fn frontend_at((host, service_port): (u8, u16)) -> FrontendSpec {
    FrontendSpec { service_port, ..frontend_spec(host) }
}

fn instance_at((host, weight, cluster): (u8, u16, u32)) -> Instance {
    Instance { weight, ..of_cluster(host, cluster) }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Model {
    services: BTreeMap<Name, Service>,
    /// Owner, frontend as written, and redirection, by address.
    frontends: BTreeMap<Address, (Name, FrontendSpec, Option<Name>)>,
    /// Instances without priority and health.
    instances: BTreeMap<(Name, Endpoint, Source), Instance>,
    health: BTreeMap<(Name, Endpoint), Health>,
    precedence: Precedence,
}

impl Model {
    fn apply(&mut self, op: &Op, at: u64) -> Result<bool, Error> {
        match op {
            Op::Upsert(s, f, n, list) => {
                let frontends = list.iter().copied().map(frontend_at).collect();
                self.upsert(service_row(*s, *f, *n), frontends)?;
            }
            Op::DeleteService(s, f) => self.delete(&service_name(*s), &source_name(*f))?,
            Op::DeleteFrontend(a) => {
                let gone = self.frontends.remove(&address(*a));
                gone.ok_or(Error::FrontendNotFound(address(*a)))?;
            }
            Op::Redirect(a, to) => {
                let row = self.frontends.get_mut(&address(*a));
                row.ok_or(Error::FrontendNotFound(address(*a)))?.2 = to.map(service_name);
            }
            Op::Health(s, a, healthy) => {
                return self.set_health(service_name(*s), *a, *healthy, at);
            }
            Op::Precedence(order) => {
                self.precedence = Precedence::new(order.iter().map(|n| source_name(*n)));
            }
            Op::SetBackends(s, f, list) => self.set_backends(*s, *f, list),
        }
        Ok(false)
    }

    fn upsert(&mut self, row: Service, mut list: Vec<FrontendSpec>) -> Result<(), Error> {
        if let Some(existing) = self.services.get(&row.name)
            && existing.source != row.source
        {
            let (owner, claimant) = (existing.source.clone(), row.source);
            return Err(Error::ServiceConflict { name: row.name, owner, claimant });
        }
        let name = row.name.clone();
        list.sort_by_key(|spec| spec.address);
        for spec in &list {
            self.check_owner(spec, &name)?;
        }
        let named: BTreeSet<Address> = list.iter().map(|spec| spec.address).collect();
        self.frontends.retain(|at, (owner, ..)| *owner != name || named.contains(at));
        for spec in list {
            self.put(&name, spec);
        }
        self.services.insert(name, row);
        Ok(())
    }

    fn check_owner(&self, spec: &FrontendSpec, claimant: &Name) -> Result<(), Error> {
        match self.frontends.get(&spec.address) {
            Some((owner, ..)) if owner != claimant => Err(Error::FrontendConflict {
                address: spec.address,
                owner: owner.clone(),
                claimant: claimant.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn put(&mut self, name: &Name, spec: FrontendSpec) {
        let to = self.frontends.get(&spec.address).and_then(|row| row.2.clone());
        self.frontends.insert(spec.address, (name.clone(), spec, to));
    }

    fn delete(&mut self, name: &Name, from: &Source) -> Result<(), Error> {
        let row = self.services.get(name).ok_or_else(|| Error::ServiceNotFound(name.clone()))?;
        if row.source != *from {
            let (owner, claimant) = (row.source.clone(), from.clone());
            return Err(Error::ServiceConflict { name: name.clone(), owner, claimant });
        }
        self.services.remove(name);
        self.frontends.retain(|_, (owner, ..)| owner != name);
        Ok(())
    }

    fn set_health(&mut self, s: Name, host: u8, healthy: bool, at: u64) -> Result<bool, Error> {
        let key = (s, endpoint(host));
        if !self.instances.keys().any(|(s, at, _)| (s, at) == (&key.0, &key.1)) {
            let (service, endpoint) = key;
            return Err(Error::BackendNotFound { service, endpoint });
        }
        let is_current = self.health.get(&key).is_some_and(|health| health.unhealthy != healthy);
        if !is_current {
            self.health.insert(key, Health { unhealthy: !healthy, since: Some(now(at)) });
        }
        Ok(!is_current)
    }

    fn set_backends(&mut self, s: u8, f: u8, list: &[(u8, u16, u32)]) {
        let (service, from) = (service_name(s), source_name(f));
        let listed: BTreeSet<_> = list.iter().map(|(at, ..)| endpoint(*at)).collect();
        let health = self.health.clone();
        self.remove_instances(|i| {
            let of = i.service == service && i.source == from;
            of && !listed.contains(&i.endpoint)
        });
        for instance in list.iter().copied().map(instance_at) {
            let (service, source) = (service.clone(), from.clone());
            let key = (service.clone(), instance.endpoint, source.clone());
            self.instances.insert(key, Instance { service, source, ..instance });
        }
        self.health = health;
        self.drop_stale_health();
    }

    fn remove_instances(&mut self, selects: impl Fn(&Instance) -> bool) {
        self.instances.retain(|_, instance| !selects(instance));
        self.drop_stale_health();
    }

    /// Removes the verdicts on endpoints without an instance.
    fn drop_stale_health(&mut self) {
        let existing: BTreeSet<_> =
            self.instances.keys().map(|(s, at, _)| (s.clone(), *at)).collect();
        self.health.retain(|key, _| existing.contains(key));
    }

    /// Returns the instances of a service in the order of the tables.
    fn list(&self, service: &Name) -> Vec<Instance> {
        let all = self.instances.values().filter(|i| i.service == *service);
        let mut list: Vec<Instance> = all
            .map(|i| {
                let health = self.health.get(&(i.service.clone(), i.endpoint)).copied();
                let priority = self.precedence.rank(&i.source);
                Instance { priority, health: health.unwrap_or_default(), ..i.clone() }
            })
            .collect();
        list.sort_by_key(|i| (i.endpoint, i.priority, i.source.clone()));
        list
    }

    fn names(&self) -> BTreeSet<Name> {
        let of_instances = self.instances.keys().map(|(service, ..)| service);
        self.services.keys().chain(of_instances).cloned().collect()
    }

    fn frontends_of(&self, service: &Name) -> Vec<(FrontendSpec, Option<Name>)> {
        let rows = self.frontends.values().filter(|(owner, ..)| owner == service);
        rows.map(|(_, spec, to)| (spec.clone(), to.clone())).collect()
    }
}

fn write_op(t: &mut Transaction<'_>, op: &Op) -> Result<bool, Error> {
    let all = |list: &[(u8, u16, u32)]| list.iter().copied().map(instance_at).collect::<Vec<_>>();
    let (s, f) = (service_name, source_name);
    match op {
        Op::Upsert(n, from, row, list) => {
            let frontends = list.iter().copied().map(frontend_at).collect();
            t.upsert_service_and_frontends(service_row(*n, *from, *row), frontends)?;
        }
        Op::DeleteService(n, from) => drop(t.delete_service_and_frontends(&s(*n), &f(*from))?),
        Op::DeleteFrontend(at) => t.delete_frontend(&address(*at))?,
        Op::Redirect(at, to) => t.set_redirect_to(&address(*at), to.map(s))?,
        Op::SetBackends(n, from, list) => t.set_backends(&s(*n), &f(*from), all(list)),
        Op::Health(n, at, healthy) => {
            return t.update_backend_health(&s(*n), &endpoint(*at), *healthy);
        }
        Op::Precedence(order) => {
            t.set_precedence(Precedence::new(order.iter().map(|n| f(*n))));
        }
    }
    Ok(false)
}

/// Keys that the writes of one transaction change, according to the model before and after each
/// write.
#[derive(Default)]
struct Expected {
    services: BTreeSet<Name>,
    frontends: BTreeSet<Address>,
    endpoints: BTreeSet<Endpoint>,
    /// Whether priorities changed without changing the order of a service's instances, which
    /// creates a revision but touches no key.
    only_priorities: bool,
}

impl Expected {
    fn add(&mut self, before: &Model, after: &Model) {
        for name in before.names().union(&after.names()) {
            let (one, other) = (before.list(name), after.list(name));
            let ranked = before.precedence != after.precedence;
            let without_priorities = |list: &[Instance]| -> Vec<Instance> {
                list.iter().map(|i| Instance { priority: 0, ..i.clone() }).collect()
            };
            if ranked && without_priorities(&one) == without_priorities(&other) {
                self.only_priorities |= one != other;
                continue;
            }
            let same = before.services.get(name) == after.services.get(name)
                && before.frontends_of(name) == after.frontends_of(name)
                && one == other;
            if !same {
                self.services.insert(name.clone());
            }
            let differing = one.iter().filter(|i| !other.contains(i));
            let differing = differing.chain(other.iter().filter(|i| !one.contains(i)));
            self.endpoints.extend(differing.map(|instance| instance.endpoint));
        }
        let owner = |model: &Model, at| model.frontends.get(at).map(|row| row.0.clone());
        let lost = before.frontends.keys().filter(|at| owner(before, at) != owner(after, at));
        self.frontends.extend(lost);
    }

    fn touched(mut self, end: &Model, revision: u64) -> TouchedKeys {
        for (at, (owner, _, to)) in &end.frontends {
            let written = |name: &Name| self.services.contains(name);
            if written(owner) || to.as_ref().is_some_and(written) {
                self.frontends.insert(*at);
            }
        }
        TouchedKeys {
            revision,
            services: self.services.into_iter().collect(),
            frontends: self.frontends.into_iter().collect(),
            endpoints: self.endpoints.into_iter().collect(),
        }
    }
}

/// Checks that the tables contain what the model expects.
fn assert_same(tables: &Tables, model: &Model) {
    let names: Vec<Name> = tables.entries().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, model.names().into_iter().collect::<Vec<_>>());
    assert!(tables.services().map(|row| (**row).clone()).eq(model.services.values().cloned()));
    for (name, entry) in tables.entries() {
        let list: Vec<Instance> = entry.instances.iter().map(|i| (**i).clone()).collect();
        assert_eq!(list, model.list(name));
        let used: Vec<Endpoint> = entry.used().map(|i| i.endpoint).collect();
        let endpoints: BTreeSet<Endpoint> = list.iter().map(|i| i.endpoint).collect();
        assert_eq!(used, endpoints.into_iter().collect::<Vec<_>>());
        let rows = entry.frontends.iter().map(|row| (row.spec.clone(), row.redirect_to.clone()));
        assert_eq!(rows.collect::<Vec<_>>(), model.frontends_of(name));
        let links =
            |row: &Arc<Frontend>| Arc::ptr_eq(&row.service, entry.service.as_ref().unwrap());
        assert!(entry.frontends.iter().all(links));
    }
    let rows: Vec<(Address, Name)> =
        tables.frontends().map(|row| (*row.address(), row.service.name.clone())).collect();
    let owners = model.frontends.iter().map(|(at, (owner, ..))| (*at, owner.clone()));
    assert_eq!(rows, owners.collect::<Vec<_>>());
    let endpoints: Vec<(Endpoint, Name)> =
        tables.endpoints().map(|(at, name)| (*at, name.clone())).collect();
    let of_model: BTreeSet<(Endpoint, Name)> =
        model.instances.keys().map(|(name, at, _)| (*at, name.clone())).collect();
    assert_eq!(endpoints, of_model.into_iter().collect::<Vec<_>>());
    for name in (0..4).map(service_name) {
        let redirected: Vec<Address> = tables.redirected_to(&name).copied().collect();
        let rows = model.frontends.iter().filter(|(_, row)| row.2.as_ref() == Some(&name));
        assert_eq!(redirected, rows.map(|(at, _)| *at).collect::<Vec<_>>());
    }
}

/// Checks that the rows of touched frontends are new and pending, and that all others are the same.
fn check_rows(before: &Tables, after: &Tables, touched: &TouchedKeys, at: u64) {
    for row in after.frontends() {
        if touched.frontends.contains(row.address()) {
            let status = row.status();
            assert_eq!(
                (row.revision, status.progress, status.since),
                (after.revision(), Progress::Pending, now(at))
            );
        } else {
            assert!(Arc::ptr_eq(row, before.frontend(row.address()).unwrap()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_writes_match_the_model(
        history in proptest::collection::vec(
            (proptest::collection::vec(ops(), 1..5), proptest::bool::weighted(0.85)),
            1..25,
        ),
    ) {
        let writer = Writer::new();
        let mut model = Model::default();
        let mut snapshots = Vec::new();
        for (at, (ops, commits)) in (1u64..).zip(&history) {
            let before = writer.tables();
            let mut next = model.clone();
            let mut expected = Expected::default();
            let mut transaction = writer.begin(now(at));
            for op in ops {
                let model_before = next.clone();
                let result = next.apply(op, at);
                prop_assert_eq!(write_op(&mut transaction, op), result.clone(), "{:?}", op);
                if result.is_err() {
                    next = model_before.clone();
                }
                expected.add(&model_before, &next);
            }
            if !commits {
                drop(transaction);
                prop_assert_eq!(writer.tables().revision(), before.revision());
                continue;
            }
            let revision = transaction.commit();
            let after = writer.tables();
            let only_priorities = expected.only_priorities;
            let touched = expected.touched(&next, before.revision() + 1);
            let changes = writer.changes_since(before.revision()).touched.unwrap();
            if touched.services.is_empty() && !only_priorities {
                prop_assert_eq!((revision, changes), (before.revision(), vec![]));
            } else {
                prop_assert_eq!(revision, before.revision() + 1);
                prop_assert_eq!(&*changes[0], &touched);
            }
            check_rows(&before, &after, &touched, at);
            assert_same(&after, &next);
            assert_same(&before, &model);
            snapshots.push((before, model));
            model = next;
        }
        for (tables, model) in &snapshots {
            assert_same(tables, model);
        }
    }
}
