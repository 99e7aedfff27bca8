//! Limits of slowpath's listeners on connections and descriptors, and whether each listens.
//!
//! A slot is the permission to hold one connection; [`Slots`] has those of one listener.

mod start;

pub use start::start;

use std::net::SocketAddr;
use std::sync::Arc;

use api::auth_failures::AuthFailures;
use api::credentials::{Credentials, Settings};
use config::checked::Config;
use listeners::{Conditions, Counts, Limits, ListenerStatus, ReservedNetworks, Slots};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for everything but listeners and probes: files, the region, BGP, cloud
/// APIs, the log.
const OTHER_DESCRIPTORS: usize = 512;
/// Limits of each address that answers HTTP probes.
pub const HEALTH: Limits = Limits { connections: 512, per_source: 32, reserved: 256 };
/// Limits of each address that answers TCP probes. Each connection is closed as soon as it is
/// accepted.
const HEALTH_TCP: Limits = Limits { connections: 16, per_source: 16, reserved: 16 };
/// Limits of all health check ports (`health_check_port` of services) together.
const NODE_PORTS: Limits = Limits { connections: 512, per_source: 32, reserved: 256 };
/// Limits of all addresses of `metrics.listen` together. Each client that does not read its
/// response holds the text of a scrape, which has some megabytes.
const METRICS: Limits = Limits { connections: 8, per_source: 4, reserved: 0 };
/// Limits of all API addresses together.
const API: Limits = Limits { connections: 256, per_source: 64, reserved: 0 };
/// Limits of the control socket. All connections of one user count as one source, so one source may
/// have most of the connections.
const CONTROL: Limits = Limits { connections: 128, per_source: 96, reserved: 0 };

/// Limits and conditions of all listeners.
pub struct Listening {
    /// By address of `health.listen`.
    health: Vec<(SocketAddr, Arc<Slots>)>,
    /// By address of `health.tcp`.
    health_tcp: Vec<(SocketAddr, Arc<Slots>)>,
    node_ports: Arc<Slots>,
    metrics: Arc<Slots>,
    api: Arc<Slots>,
    control: Arc<Slots>,
    conditions: Arc<Conditions>,
    auth_failures: Arc<AuthFailures>,
    /// `None` if no listener needs credentials.
    credentials: Option<Arc<Credentials>>,
}

impl Listening {
    /// Creates the limits for the listeners of `config`, and raises the process's soft limit of
    /// descriptors to what they need.
    pub fn new(config: &Config, reserved: ReservedNetworks) -> Listening {
        reserved.set(config.probe_networks());
        let percent = raise_descriptors(config);
        let slots = |limits: Limits| Slots::new(limits.scaled(percent), reserved.clone());
        let each = |addresses: &[SocketAddr], limits| {
            addresses.iter().map(|addr| (*addr, slots(limits))).collect()
        };
        Listening {
            health: each(&config.health.listen, HEALTH),
            health_tcp: each(&config.health.tcp, HEALTH_TCP),
            node_ports: slots(NODE_PORTS),
            metrics: slots(METRICS),
            api: slots(API),
            control: slots(CONTROL),
            conditions: Arc::default(),
            auth_failures: Arc::default(),
            credentials: Settings::of(config).map(|all| Arc::new(Credentials::new(all))),
        }
    }

    /// Returns the shared slots and conditions for listening on health check ports.
    pub fn node_ports(&self) -> ::health::node_port::ListenerSettings {
        let (slots, conditions) = (Arc::clone(&self.node_ports), Arc::clone(&self.conditions));
        ::health::node_port::ListenerSettings { slots, conditions }
    }

    /// Returns the counters of failed authentications to the API.
    pub fn auth_failures(&self) -> &AuthFailures {
        &self.auth_failures
    }

    /// Returns the credentials of listeners over TCP; `None` if none needs any.
    pub fn credentials(&self) -> Option<&Arc<Credentials>> {
        self.credentials.as_ref()
    }

    /// Returns every listener that has been tried, with the result of the last attempt to listen.
    pub fn conditions(&self) -> Vec<ListenerStatus> {
        self.conditions.all()
    }

    /// Returns the connection counters by configuration key.
    pub fn counts(&self) -> Vec<(&'static str, Counts)> {
        let sum = |all: &[(SocketAddr, Arc<Slots>)]| {
            all.iter().map(|(_, slots)| slots.counts()).fold(Counts::default(), Counts::plus)
        };
        vec![
            ("health.listen", sum(&self.health)),
            ("health.tcp", sum(&self.health_tcp)),
            ("health_check_port", self.node_ports.counts()),
            ("metrics.listen", self.metrics.counts()),
            ("api.listen", self.api.counts()),
            ("control.socket", self.control.counts()),
        ]
    }
}

/// Raises the process's soft limit of descriptors to what probes, listeners and
/// [`OTHER_DESCRIPTORS`] need. Returns the percentage of their connections that listeners can have:
/// less than 100 if the hard limit is too low.
fn raise_descriptors(config: &Config) -> usize {
    let others = config.health.probing.at_once as usize + OTHER_DESCRIPTORS;
    let listeners = HEALTH.descriptors() * config.health.listen.len()
        + HEALTH_TCP.descriptors() * config.health.tcp.len()
        + [NODE_PORTS, METRICS, API, CONTROL].iter().map(Limits::descriptors).sum::<usize>();
    let (limit, needed) = (getrlimit(Resource::Nofile), others + listeners);
    if limit.current.is_none_or(|now| now >= needed as u64) {
        return 100;
    }
    let target = limit.maximum.map_or(needed as u64, |maximum| maximum.min(needed as u64));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), ..limit });
    let limit = if raised.is_ok() { Some(target) } else { limit.current };
    let percent = listener_percent(limit.unwrap_or(target) as usize, others, listeners);
    if percent < 100 {
        tracing::warn!(
            event = "open_files_limited",
            limit = limit.unwrap_or(target),
            needed,
            percent,
            "limit of open files too low, listeners accept fewer connections"
        );
    }
    percent
}

/// Returns the percentage of the descriptors of `listeners` that `limit` leaves after `others`, 100
/// at most.
fn listener_percent(limit: usize, others: usize, listeners: usize) -> usize {
    (limit.saturating_sub(others) * 100 / listeners.max(1)).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_limits_scale_to_available_descriptors() {
        assert_eq!(listener_percent(4096, 1024, 2048), 100);
        assert_eq!(listener_percent(2048, 1024, 2048), 50);
        assert_eq!(listener_percent(512, 1024, 2048), 0);
        let minimal = HEALTH.scaled(0);
        assert_eq!((minimal.connections, minimal.per_source, minimal.reserved), (8, 8, 8));
        assert_eq!(METRICS.scaled(0).reserved, 0, "an unused reserve stays 0");
    }
}
