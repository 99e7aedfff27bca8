//! What is asked of whom: from the rows of a service to the targets of its probes.

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

use crate::machine::Wanted;

/// TCP's protocol number.
const TCP: u8 = 6;

/// What the appliance has to do with it.
#[derive(Clone, Debug)]
pub struct Place {
    /// `[health]`, as far as it is about backends.
    pub probing: Probing,
    /// Of each arm, how probes enter tunnels.
    pub entrances: Vec<Entrance>,
}

/// How the kernel's packets get to where tunnels are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entrance {
    /// By this interface of the kernel's, which gets the answers as well.
    Interface(Arc<str>),
    /// By a route for packets with this mark. Answers come in by any interface.
    Mark(u32),
}

impl fmt::Display for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entrance::Interface(name) => f.write_str(name),
            Entrance::Mark(mark) => write!(f, "mark {mark}"),
        }
    }
}

/// A probe's way and question.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Where it connects to.
    pub to: SocketAddr,
    /// Whence, if not the kernel decides.
    pub from: Option<IpAddr>,
    /// Through its service's tunnel: by this way, and not by the kernel's own.
    pub entrance: Option<Entrance>,
    /// What it asks.
    pub ask: Arc<Ask>,
}

/// What a service's probes ask.
#[derive(PartialEq, Eq, Debug)]
pub enum Ask {
    /// A TCP connection is enough.
    Connection,
    /// An HTTP request, and its status.
    Http(Http),
    /// The same in TLS.
    Https(Http, Tls),
}

/// A request and what is expected.
#[derive(PartialEq, Eq, Debug)]
pub struct Http {
    /// What is asked for.
    pub path: String,
    /// The `Host` header; empty for where the probe connects to.
    pub host: String,
    /// Statuses that are good.
    pub expect: Vec<RangeInclusive<u16>>,
}

/// A PEM file of authorities.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Authorities {
    /// The file.
    pub file: PathBuf,
    /// The folder that it has to be in; none where the configuration names the file.
    pub folder: Option<PathBuf>,
}

/// How the other end is believed.
#[derive(PartialEq, Eq, Debug)]
pub struct Tls {
    /// The authorities; none takes any certificate.
    pub authorities: Option<Authorities>,
    /// The name asked for and required; empty for where the probe connects to.
    pub name: String,
}

/// What is wanted for a service.
#[derive(Debug, Default)]
pub struct Plan {
    /// Whom to probe, with the verdict that the tables hold.
    pub wanted: Vec<(Wanted<Target>, Option<bool>)>,
    /// Whom not, and why, although it is asked for.
    pub unprobed: Vec<(Endpoint, String)>,
}

/// The plan for all that is known under a service's name; empty where no probes are asked for.
pub fn plan(entry: &Entry, place: &Place) -> Plan {
    let mut plan = Plan::default();
    let Some(check) = entry.service.as_ref().and_then(|service| service.spec.health.as_ref())
    else {
        return plan;
    };
    let ask = Arc::new(Ask::of(check, &place.probing));
    let timing = check.timing(&place.probing);
    for instance in entry.used() {
        let endpoint = instance.endpoint;
        match target(entry, check, instance, place, &ask) {
            Ok(target) => {
                let health = instance.health;
                let held = health.since.is_some().then_some(!health.unhealthy);
                plan.wanted.push((Wanted { endpoint, timing, target }, held));
            }
            Err(why) => plan.unprobed.push((endpoint, why)),
        }
    }
    plan
}

impl Ask {
    fn of(check: &HealthCheck, appliance: &Probing) -> Ask {
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
            ProbeKind::Tcp => Ask::Connection,
            ProbeKind::Http => Ask::Http(http),
            ProbeKind::Https => Ask::Https(http, tls),
        }
    }

    /// The TLS settings of probes that speak TLS.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Ask::Connection | Ask::Http(_) => None,
            Ask::Https(_, tls) => Some(tls),
        }
    }
}

/// A `Host` without its port.
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

/// The source from which a backend is probed through its service's tunnel, if it is.
pub fn tunnel_source(entry: &Entry, instance: &Instance) -> Option<IpAddr> {
    let service = entry.service.as_ref().filter(|service| service.spec.health.is_some())?;
    instance.probe.filter(|_| matches!(service.spec.mode, Mode::Tunnel(_) | Mode::Dsr(_)))
}

fn target(
    entry: &Entry,
    check: &HealthCheck,
    instance: &Instance,
    place: &Place,
    ask: &Arc<Ask>,
) -> Result<Target, String> {
    if let Some(from) = tunnel_source(entry, instance) {
        return by_tunnel(entry, check, instance, place, ask, from);
    }
    let port = [check.port, instance.endpoint.port, frontend_port(entry)];
    let port = port.into_iter().find(|port| *port != 0).ok_or(
        "neither the check nor the backend nor a frontend names a port; write health.port",
    )?;
    let to = instance.endpoint.addr;
    let sources = &place.probing.sources;
    Ok(Target {
        to: (to, port).into(),
        from: sources.iter().find(|source| source.is_ipv4() == to.is_ipv4()).copied(),
        entrance: None,
        ask: Arc::clone(ask),
    })
}

/// Through the service's tunnel the backend is reached under a frontend's address, as by clients;
/// from the reserved source the fastpath knows which backend is meant.
fn by_tunnel(
    entry: &Entry,
    check: &HealthCheck,
    instance: &Instance,
    place: &Place,
    ask: &Arc<Ask>,
    from: IpAddr,
) -> Result<Target, String> {
    let arm = instance.arm as usize;
    let entrance = place.entrances.get(arm).or(place.entrances.first());
    let entrance = entrance.ok_or("the appliance has no arm for it")?;
    let suits = |addr: IpAddr, port| addr.is_ipv4() == from.is_ipv4() && port != 0;
    let mut ends = entry.frontends.iter().filter_map(|row| {
        let address = row.address();
        let port = if check.port == 0 { address.port } else { check.port };
        let tcp = matches!(address.protocol, 0 | TCP) || check.port != 0;
        let end = (address.prefix.addr, port);
        (address.prefix.is_single() && tcp && suits(end.0, end.1)).then_some(end)
    });
    let to = ends.next().ok_or_else(|| {
        format!(
            "through the tunnel a probe goes to a frontend's address, and none is one address of \
             the family of its source {from} with a TCP port; write such a frontend, or health.port"
        )
    })?;
    Ok(Target {
        to: to.into(),
        from: Some(from),
        entrance: Some(entrance.clone()),
        ask: Arc::clone(ask),
    })
}

/// The port of the first frontend that has one, of TCP before others.
fn frontend_port(entry: &Entry) -> u16 {
    let ports = || entry.frontends.iter().map(|row| row.address()).filter(|at| at.port != 0);
    let first = ports().find(|at| at.protocol == TCP).or_else(|| ports().next());
    first.map_or(0, |at| at.port)
}

#[cfg(test)]
mod tests;
