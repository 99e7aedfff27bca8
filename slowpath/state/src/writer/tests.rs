//! Tests of the writer: each operation, defects known from other implementations of such tables,
//! and random histories compared with a simple model.

use std::time::{Duration, SystemTime};

use super::*;
use crate::address::{Address, Endpoint};
use crate::appliance::Appliance;
use crate::backend::{Instance, Placement, State as BackendState};
use crate::frontend::{Kind, Progress};
use crate::name::Source;
use crate::object::FrontendSpec;
use crate::plane::DesiredFrontend;
use crate::select::select_backends;

mod backends;
mod defects;
mod frontends;
mod model;
mod services;
mod transactions;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn source(text: &str) -> Source {
    Source::new(text)
}

fn now(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns `192.0.2.host`, port 80, TCP.
fn address(host: u8) -> Address {
    Address::new([192, 0, 2, host].into(), 80, 6)
}

fn frontend_spec(host: u8) -> FrontendSpec {
    FrontendSpec::new(address(host), Kind::LoadBalancer)
}

fn service(text: &str) -> Service {
    service_of(text, "file")
}

fn service_of(text: &str, from: &str) -> Service {
    Service::new(name(text), source(from))
}

/// Returns `10.0.0.host`, port 8080, TCP.
fn endpoint(host: u8) -> Endpoint {
    Endpoint { addr: [10, 0, 0, host].into(), port: 8080, protocol: 6 }
}

/// Returns an instance with a dummy service and source, which the writer replaces.
fn instance(host: u8) -> Instance {
    Instance::new(endpoint(host), name("dummy"), source("dummy"))
}

/// Returns an instance with a dummy service and source, in a cluster of this number.
fn of_cluster(host: u8, cluster: u32) -> Instance {
    let placement = Placement { cluster, ..Placement::default() };
    Instance { placement: Some(Arc::new(placement)), ..instance(host) }
}

/// Writes in one transaction; returns the result of the writes, and that of the commit.
fn write<R>(writer: &Writer, at: u64, writes: impl FnOnce(&mut Transaction<'_>) -> R) -> (R, u64) {
    let mut transaction = writer.begin(now(at));
    let result = writes(&mut transaction);
    (result, transaction.commit())
}

/// Returns a writer with service `web` of source `file` at 192.0.2.1, and backends 10.0.0.1 and
/// 10.0.0.2.
fn web() -> Writer {
    let writer = Writer::new();
    write(&writer, 1, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(1)]).unwrap();
        t.set_backends(&name("web"), &source("file"), vec![instance(1), instance(2)]);
    });
    writer
}

fn row(writer: &Writer, host: u8) -> Arc<Frontend> {
    writer.tables().frontend(&address(host)).unwrap().clone()
}

/// Returns the hosts of a service's instances with their sources, in order.
fn hosts(writer: &Writer, service: &str) -> Vec<(u8, String)> {
    let tables = writer.tables();
    let list = tables.entry(&name(service)).into_iter().flat_map(|entry| &entry.instances);
    list.map(|instance| {
        let std::net::IpAddr::V4(v4) = instance.endpoint.addr else { panic!("{instance:?}") };
        (v4.octets()[3], instance.source.to_string())
    })
    .collect()
}

/// Returns the hosts, each with the source `file`, to compare with [`hosts`].
fn of_file(hosts: &[u8]) -> Vec<(u8, String)> {
    hosts.iter().map(|host| (*host, "file".to_owned())).collect()
}

/// Returns the desired state of 192.0.2.host for a plane.
fn desired(writer: &Writer, host: u8) -> DesiredFrontend {
    select_backends(&writer.tables(), &row(writer, host), &Appliance::default())
}
