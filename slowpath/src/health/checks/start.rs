//! Starts the health checker on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use config::checked::{Config, Plane, ROUTE_TABLES};
use health::checker::{HealthEvent, Inputs, run};
use health::plan::{ProbeSettings, TunnelEntry};
use state::writer::Writer;
use tokio::sync::{mpsc, oneshot};

use crate::live::Live;
use crate::sources::desired::appliance;

/// Maximum number of status requests queued for the checker; further senders wait.
const REQUEST_QUEUE: usize = 16;

/// Starts the checker. The returned receiver completes with an error when the checker's thread ends
/// for any reason.
pub fn start(
    config: &Config,
    live: &Arc<Live>,
    (writer, events): (Arc<Writer>, Sender<HealthEvent>),
) -> io::Result<oneshot::Receiver<()>> {
    let checks = live.checks();
    let (requests, requested) = mpsc::channel(REQUEST_QUEUE);
    // Called once per process.
    let _ = checks.requests.set(requests);
    let of_health_ports = Arc::clone(live);
    let inputs = Inputs {
        writer,
        settings: probe_settings(config),
        appliance: Arc::new(appliance(config)),
        is_able: Arc::new(move || of_health_ports.able().able),
        seed: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        ports: live.listening().node_ports(),
        events,
        counters: Arc::clone(&checks.counters),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (alive, ended) = oneshot::channel::<()>();
    std::thread::Builder::new().name("slowpath-health".into()).spawn(move || {
        let _alive = alive;
        runtime.block_on(run(inputs, requested));
    })?;
    Ok(ended)
}

/// Returns the settings of probes, with how those through tunnels reach the data plane of each arm.
/// With XDP, responses arrive at the NIC, so a probe's socket must not be bound to the interface
/// that leads into the programs: a firewall mark selects the route through that interface.
fn probe_settings(config: &Config) -> ProbeSettings {
    let probe_path = |((_, arm), route)| match config.plane {
        Plane::Dpdk => TunnelEntry::Interface(config.kernel_interface(arm).into()),
        Plane::Xdp => TunnelEntry::Mark(route),
    };
    let tunnel_entries = config.arms().zip(ROUTE_TABLES).map(probe_path).collect();
    ProbeSettings { probing: config.health.probing.clone(), tunnel_entries }
}
