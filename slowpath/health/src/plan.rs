//! Computes the health checks of a service from its table rows.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use config::checked::Probing;
use config::services::{HealthCheck, Mode, ProbeKind, statuses};
use state::address::Endpoint;
use state::backend::Instance;
use state::tables::Entry;

use crate::scheduler::DesiredCheck;

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Settings of the appliance that health checks need.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// Health check settings of `[health]`.
    pub probing: Probing,
    /// How probes enter tunnels: one entry for each arm, `ingress` first.
    pub tunnel_entries: Vec<TunnelEntry>,
}

/// How a probe, which the kernel sends, enters a tunnel of the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TunnelEntry {
    /// Through this kernel interface, which also receives the replies.
    Interface(Arc<str>),
    /// Through a route for packets with this mark. Replies may arrive on any interface.
    Mark(u32),
}

impl fmt::Display for TunnelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunnelEntry::Interface(name) => f.write_str(name),
            TunnelEntry::Mark(mark) => write!(f, "mark {mark}"),
        }
    }
}

/// Target of a probe: addresses, path and type.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Address and port to connect to.
    pub to: SocketAddr,
    /// Source address; `None` to let the kernel select it.
    pub from: Option<IpAddr>,
    /// Entry into the service's tunnel; `None` to use the kernel's routes.
    pub tunnel_entry: Option<TunnelEntry>,
    /// Type of the probe.
    pub probe_type: Arc<ProbeType>,
}

/// Type of a service's probes, and the success criteria.
#[derive(PartialEq, Eq, Debug)]
pub enum ProbeType {
    /// A TCP connection.
    Connection,
    /// An HTTP request and its expected status.
    Http(Http),
    /// An HTTP request over TLS and its expected status.
    Https(Http, Tls),
}

/// An HTTP request and its expected response.
#[derive(PartialEq, Eq, Debug)]
pub struct Http {
    /// Path of the request.
    pub path: String,
    /// `Host` header; empty for the address and port of the target.
    pub host: String,
    /// Expected statuses.
    pub expect: Vec<RangeInclusive<u16>>,
}

/// A PEM file of trusted certificate authorities.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Authorities {
    /// Path of the file.
    pub file: PathBuf,
    /// Directory that must contain the file, if a service names the file; `None` if the appliance's
    /// configuration names it.
    pub folder: Option<PathBuf>,
}

/// Verification of the server.
#[derive(PartialEq, Eq, Debug)]
pub struct Tls {
    /// Trusted authorities; `None` accepts any certificate.
    pub authorities: Option<Authorities>,
    /// Server name for SNI and verification; empty for the address of the target.
    pub name: String,
}

/// Health checks of a service.
#[derive(Debug, Default)]
pub struct Plan {
    /// Backends to probe, each with its verdict in the tables: whether it is healthy, or `None`.
    pub desired: Vec<(DesiredCheck<Target>, Option<bool>)>,
    /// Backends that should be probed and cannot be, with the reason.
    pub unprobed: Vec<(Endpoint, String)>,
}

/// Returns the plan for the rows under a service's name; empty if it has no health check.
pub fn plan(entry: &Entry, settings: &ProbeSettings) -> Plan {
    let mut plan = Plan::default();
    let Some(check) = entry.service.as_ref().and_then(|service| service.spec.health.as_ref())
    else {
        return plan;
    };
    let probe_type = Arc::new(ProbeType::of(check, &settings.probing));
    let timing = check.timing(&settings.probing);
    for instance in entry.used() {
        let endpoint = instance.endpoint;
        match target(entry, check, instance, settings, &probe_type) {
            Ok(target) => {
                let health = instance.health;
                let verdict = health.since.is_some().then_some(!health.unhealthy);
                plan.desired.push((DesiredCheck { endpoint, timing, target }, verdict));
            }
            Err(error) => plan.unprobed.push((endpoint, error)),
        }
    }
    plan
}

impl ProbeType {
    fn of(check: &HealthCheck, appliance: &Probing) -> ProbeType {
        let (host, path) = (check.host.clone(), check.path.as_str());
        let http = Http {
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            host,
            expect: statuses(&check.expect).unwrap_or_default(),
        };
        let named =
            if check.server_name.is_empty() { host_of(&check.host) } else { &check.server_name };
        let authorities = match check.ca_file.as_str() {
            "" => Authorities { file: appliance.ca_file.clone(), folder: None },
            file => {
                let folder = Some(appliance.ca_folder.clone());
                Authorities { file: file.into(), folder }
            }
        };
        let tls = Tls { authorities: check.verify.then_some(authorities), name: named.to_owned() };
        match check.kind {
            ProbeKind::Tcp => ProbeType::Connection,
            ProbeKind::Http => ProbeType::Http(http),
            ProbeKind::Https => ProbeType::Https(http, tls),
        }
    }

    /// Returns the TLS settings of https probes.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            ProbeType::Connection | ProbeType::Http(_) => None,
            ProbeType::Https(_, tls) => Some(tls),
        }
    }
}

/// Returns the host of a `Host` header, without its port and the brackets of an IPv6 address.
fn host_of(host: &str) -> &str {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.contains(':') => {
            name
        }
        Some((name, _)) if name.ends_with(']') => name,
        _ => host,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns the source address for probes through the service's tunnel, or `None` if the backend is
/// not probed that way.
pub fn tunnel_source(entry: &Entry, instance: &Instance) -> Option<IpAddr> {
    let service = entry.service.as_ref().filter(|service| service.spec.health.is_some())?;
    instance.probe.filter(|_| matches!(service.spec.mode, Mode::Tunnel(_) | Mode::Dsr(_)))
}

/// Returns the target for a backend, or why it cannot be probed. Without a tunnel, the port is that
/// of the check, else that of the backend, else that of a frontend.
fn target(
    entry: &Entry,
    check: &HealthCheck,
    instance: &Instance,
    settings: &ProbeSettings,
    probe_type: &Arc<ProbeType>,
) -> Result<Target, String> {
    if let Some(from) = tunnel_source(entry, instance) {
        return tunnel_target(entry, check, instance, settings, probe_type, from);
    }
    let port = [check.port, instance.endpoint.port, frontend_port(entry)];
    let port = port
        .into_iter()
        .find(|port| *port != 0)
        .ok_or("neither the check nor the backend nor a frontend has a port; write health.port")?;
    let to = instance.endpoint.addr;
    let sources = &settings.probing.sources;
    Ok(Target {
        to: (to, port).into(),
        from: sources.iter().find(|source| source.is_ipv4() == to.is_ipv4()).copied(),
        tunnel_entry: None,
        probe_type: Arc::clone(probe_type),
    })
}

/// Returns the target for a probe through the service's tunnel. Like a client, the probe connects
/// to a frontend's address; the source address `from`, reserved for probes, selects the backend.
fn tunnel_target(
    entry: &Entry,
    check: &HealthCheck,
    instance: &Instance,
    settings: &ProbeSettings,
    probe_type: &Arc<ProbeType>,
    from: IpAddr,
) -> Result<Target, String> {
    let arm = instance.arm as usize;
    let tunnel_entry = settings.tunnel_entries.get(arm).or(settings.tunnel_entries.first());
    let tunnel_entry = tunnel_entry.ok_or("the appliance has no arm for the tunnel")?;
    let is_suitable = |addr: IpAddr, port| addr.is_ipv4() == from.is_ipv4() && port != 0;
    let mut candidates = entry.frontends.iter().filter_map(|row| {
        let address = row.address();
        let port = if check.port == 0 { address.port } else { check.port };
        let is_tcp = matches!(address.protocol, 0 | TCP) || check.port != 0;
        let candidate = (address.prefix.addr, port);
        (address.prefix.is_single() && is_tcp && is_suitable(candidate.0, candidate.1))
            .then_some(candidate)
    });
    let to = candidates.next().ok_or_else(|| {
        format!(
            "a probe through the tunnel goes to a frontend's address, and no frontend is a single \
             address of the family of the source {from} with a TCP port; write such a frontend, or \
             health.port"
        )
    })?;
    Ok(Target {
        to: to.into(),
        from: Some(from),
        tunnel_entry: Some(tunnel_entry.clone()),
        probe_type: Arc::clone(probe_type),
    })
}

/// Returns the port of the first TCP frontend that has one, else that of the first other frontend
/// that has one, else 0.
fn frontend_port(entry: &Entry) -> u16 {
    let ports = || entry.frontends.iter().map(|row| row.address()).filter(|at| at.port != 0);
    let first = ports().find(|at| at.protocol == TCP).or_else(|| ports().next());
    first.map_or(0, |at| at.port)
}

#[cfg(test)]
mod tests;
