//! Random changes, each decoded from one number, so that a sequence of them can be shrunk and
//! replayed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::checked::Prefix;
use config::services::{Algorithm, RangesPolicy, TrafficPolicy};
use fastrand::Rng;
use state::address::{Address, Endpoint};
use state::backend::{Instance, Place, State};
use state::frontend::Kind;
use state::name::{Name, Source};
use state::object::{Checked, FrontendSpec, ServiceSpec, SourceRanges};
use state::service::Service;
use state::writer::Transaction;

use super::model::Model;
use super::{World, at, ip};

pub const SERVICES: u8 = 4;

/// Possible addresses of the appliance.
pub const OWN: [&str; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::a"];

pub fn service_name(number: u8) -> Name {
    Name::new(&format!("shop/web-{number}")).unwrap()
}

pub fn source_of(number: u8) -> Source {
    Source::new(if number == 0 { "first" } else { "second" })
}

/// Returns the frontends of services; some are used by two services, and two are at addresses that
/// a node port is copied to.
pub fn frontends() -> Vec<FrontendSpec> {
    let udp = Address { protocol: 17, ..at("203.0.113.2", 53) };
    vec![
        FrontendSpec::new(at("203.0.113.1", 80), Kind::LoadBalancer),
        FrontendSpec::new(at("203.0.113.1", 80).internal(), Kind::LoadBalancer),
        FrontendSpec::new(at("2001:db8::1", 80), Kind::LoadBalancer),
        FrontendSpec::new(udp, Kind::ExternalIps),
        FrontendSpec::new(at("10.96.0.1", 80), Kind::ClusterIp),
        FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort),
        FrontendSpec::new(at("::", 30_080), Kind::NodePort),
        FrontendSpec::new(at("192.0.2.1", 30_080), Kind::LoadBalancer),
        FrontendSpec::new(at("0.0.0.0", 9090), Kind::HostPort),
        FrontendSpec::new(at("192.0.2.2", 9090), Kind::ExternalIps),
    ]
}

pub fn endpoints() -> Vec<Endpoint> {
    let tcp = |text: &str| super::endpoint(text);
    let mut all: Vec<Endpoint> = (1..=6).map(|n| tcp(&format!("10.1.0.{n}"))).collect();
    all.extend((1..=3).map(|n| tcp(&format!("fd00::{n}"))));
    all.extend((1..=2).map(|n| Endpoint { protocol: 17, ..tcp(&format!("10.1.0.{n}")) }));
    all
}

/// Applies the change encoded by a number, to the world and to the model.
pub fn change(world: &mut World, model: &mut Model, number: u64) {
    let mut rng = Rng::with_seed(number);
    match rng.usize(..20) {
        0..=5 => put(world, model, &mut rng),
        6 => delete(world, model, &mut rng),
        7..=11 => set_backends(world, model, &mut rng),
        12..=13 => health(world, model, &mut rng),
        14 => {
            let here: Vec<&str> = OWN.into_iter().filter(|_| rng.u32(..2) == 0).collect();
            model.addresses = here.iter().map(|text| ip(text)).collect();
            world.set_addresses(&here);
        }
        15 => world.reconciler.say_again(),
        16 => world.reconciler.prune_now(world.now),
        _ => world.pass(Duration::from_millis(1 << rng.usize(..17))),
    }
}

fn put(world: &World, model: &mut Model, rng: &mut Rng) {
    let number = rng.usize(..usize::from(SERVICES)) as u8;
    let mut spec = ServiceSpec::default();
    if rng.u32(..3) == 0 {
        spec.algorithm = Algorithm::Random;
    }
    if rng.u32(..3) == 0 {
        spec.affinity_s = 1 + rng.u32(..3);
    }
    let policy = |local| if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
    spec.external_policy = policy(rng.u32(..4) == 0);
    spec.internal_policy = policy(rng.u32(..4) == 0);
    if rng.u32(..3) == 0 {
        let prefix = |n: usize| Prefix { addr: ip(&format!("198.51.{n}.0")), len: 24 };
        let some: BTreeSet<usize> = (0..=rng.usize(..3)).map(|_| rng.usize(..4)).collect();
        let prefixes = some.into_iter().map(prefix).collect();
        let policy = if rng.u32(..2) == 0 { RangesPolicy::Deny } else { RangesPolicy::Allow };
        spec.source_ranges = Some(Arc::new(SourceRanges { policy, prefixes }));
    }
    let spec = Checked::new(Arc::new(spec)).expect("a spec that can be");
    let service = Service { spec, ..Service::new(service_name(number), source_of(0)) };
    let saids: Vec<FrontendSpec> = frontends().into_iter().filter(|_| rng.u32(..3) == 0).collect();
    let taken =
        |said: &FrontendSpec| model.owner(&said.address).is_some_and(|owner| owner != number);
    let refused = saids.iter().any(taken);
    let result = world.write(|to| to.upsert_service_and_frontends(service.clone(), saids.clone()));
    assert_eq!(result.is_err(), refused, "{result:?}");
    if !refused {
        model.services.insert(number, (service, saids));
    }
}

fn delete(world: &World, model: &mut Model, rng: &mut Rng) {
    let number = rng.usize(..usize::from(SERVICES)) as u8;
    let there = model.services.remove(&number).is_some();
    let name = service_name(number);
    let result = world.write(|to| to.delete_service_and_frontends(&name, &source_of(0)));
    assert_eq!(result.is_ok(), there);
}

fn set_backends(world: &World, model: &mut Model, rng: &mut Rng) {
    let number = rng.usize(..usize::from(SERVICES)) as u8;
    let from = rng.u8(..2);
    let (name, source) = (service_name(number), source_of(from));
    let mut said = Vec::new();
    for endpoint in endpoints() {
        if rng.u32(..3) != 0 {
            continue;
        }
        let mut instance = Instance::new(endpoint, name.clone(), source.clone());
        instance.state = match rng.usize(..10) {
            0 | 1 => State::Terminating,
            2 => State::TerminatingNotServing,
            3 => State::Maintenance,
            _ => State::Active,
        };
        instance.weight = [100, 100, 100, 50, 1, 0][rng.usize(..6)];
        if rng.u32(..3) == 0 {
            let place = Place { node: "elsewhere".into(), ..Place::default() };
            instance.place = Some(Arc::new(place));
        }
        said.push(instance);
    }
    model.instances.retain(|(of, _, by), _| (*of, *by) != (number, from));
    for instance in &said {
        model.instances.insert((number, instance.endpoint, from), instance.clone());
    }
    // A verdict is kept while any source has the backend.
    let instances = &model.instances;
    model
        .healthy
        .retain(|(of, endpoint), _| (0..2).any(|by| instances.contains_key(&(*of, *endpoint, by))));
    world.write(|to| to.set_backends(&name, &source, said));
}

fn health(world: &World, model: &mut Model, rng: &mut Rng) {
    let number = rng.usize(..usize::from(SERVICES)) as u8;
    let all = endpoints();
    let endpoint = all[rng.usize(..all.len())];
    let healthy = rng.u32(..2) == 0;
    let there = (0..2).any(|by| model.instances.contains_key(&(number, endpoint, by)));
    let name = service_name(number);
    let result = world.write(|to| to.update_backend_health(&name, &endpoint, healthy));
    assert_eq!(result.is_ok(), there);
    if there {
        model.healthy.insert((number, endpoint), healthy);
    }
}

/// Writes a service completely, as its source does after a restart.
pub fn say_service(model: &Model, number: u8, to: &mut Transaction<'_>) {
    if let Some((service, saids)) = model.services.get(&number) {
        to.upsert_service_and_frontends(service.clone(), saids.clone()).unwrap();
    }
}

/// Writes all of a source's backends of a service.
pub fn say_backends(model: &Model, number: u8, from: u8, to: &mut Transaction<'_>) {
    let of = |key: &(u8, Endpoint, u8)| (key.0, key.2) == (number, from);
    let said = model.instances.iter().filter(|(key, _)| of(key)).map(|(_, i)| i.clone());
    to.set_backends(&service_name(number), &source_of(from), said.collect());
}

/// Writes a verdict on every backend: the model's, or healthy.
pub fn say_health(model: &Model, to: &mut Transaction<'_>) {
    for (number, endpoint, _) in model.instances.keys() {
        let healthy = model.healthy.get(&(*number, *endpoint)).unwrap_or(&true);
        to.update_backend_health(&service_name(*number), endpoint, *healthy).unwrap();
    }
}
