//! The input of the control plane: services with their frontends and backends, as objects.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use config::services::{BackendTunnel, Mode, TunnelKind};
use state::address::Address;
use state::backend::State;
use state::frontend::Kind;
use state::name::{Name, Source};
use state::object::{
    API, BackendSpec, BackendsSpec, Change, FrontendSpec, Key, Object, ServiceSpec, Spec,
};

/// Endpoints in one object, as in a Kubernetes EndpointSlice.
const SLICE: u32 = 100;
/// First frontend address: 100.64.0.0.
const FRONTS: u32 = 0x6440_0000;
/// First backend address: 10.0.0.0.
const BACKS: u32 = 0x0a00_0000;

/// The size of a load.
#[derive(Clone, Copy)]
pub struct Load {
    /// Services, each with one frontend.
    pub services: u32,
    /// Backends of each service; no two services share one.
    pub backends: u32,
    /// Maglev table slots of a service with several backends.
    pub table: u32,
    /// Whether backends are reached through tunnels. In a region, each backend of a NAT service
    /// needs a port map of 8 kB.
    pub tunnel: bool,
}

impl Load {
    /// Returns the number of backends of all services.
    pub fn all_backends(&self) -> u32 {
        self.services * self.backends
    }

    /// Builds the objects: the writes that create all of them, and the deletes that remove them.
    pub fn changes(&self) -> Result<(Vec<Change>, Vec<Change>), String> {
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        let mut add = |object: Object| {
            let Key { kind, name, source } = object.key();
            deletes.push(Change::delete(Key { kind, name, source }));
            puts.push(Change::put(object));
        };
        for n in 0..self.services {
            add(self.service(n)?);
            for slice in 0..self.backends.div_ceil(SLICE) {
                add(self.slice(n, slice, None)?);
            }
        }
        Ok((puts, deletes))
    }

    fn service(&self, n: u32) -> Result<Object, String> {
        let front = Address::new(IpAddr::V4(Ipv4Addr::from(FRONTS + n)), 80, 6);
        let tunnel = BackendTunnel {
            kind: TunnelKind::Geneve,
            port: 6081,
            vni: 0,
            outer_checksum: false,
            dont_fragment: true,
        };
        let spec = ServiceSpec {
            frontends: vec![FrontendSpec::new(front, Kind::LoadBalancer)],
            table_size: self.table,
            mode: if self.tunnel { Mode::Tunnel(tunnel) } else { Mode::Nat },
            ..ServiceSpec::default()
        };
        Ok(Object::new(name(n, "")?, Source::new(API), Spec::Service(Arc::new(spec))))
    }

    /// Builds one slice of a service's backends, one of them optionally in maintenance.
    fn slice(&self, n: u32, slice: u32, in_maintenance: Option<u32>) -> Result<Object, String> {
        let member = |b: u32| {
            let at = Ipv4Addr::from(BACKS + n * self.backends + b);
            let member = BackendSpec::new(IpAddr::V4(at), 8080, 6);
            let state = if in_maintenance == Some(b) { State::Maintenance } else { State::Active };
            BackendSpec { state, ..member }
        };
        let last = self.backends.min((slice + 1) * SLICE);
        let endpoints = (slice * SLICE..last).map(member).collect();
        let spec = BackendsSpec { service: name(n, "")?, endpoints };
        let name = name(n, &format!("-{slice}"))?;
        Ok(Object::new(name, Source::new(API), Spec::Backends(Arc::new(spec))))
    }

    /// Builds the change by which one backend of service `n` enters or leaves maintenance.
    pub fn one_backend(&self, n: u32, backend: u32, enters: bool) -> Result<Change, String> {
        Ok(Change::put(self.slice(n, backend / SLICE, enters.then_some(backend))?))
    }
}

fn name(n: u32, end: &str) -> Result<Name, String> {
    Name::new(&format!("bench/service-{n}{end}")).map_err(|e| e.to_string())
}
