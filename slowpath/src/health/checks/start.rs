//! Starts the health checker on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use config::checked::{Config, Plane, ROUTES};
use health::checker::{Given, Told, run};
use health::plan::{Entrance, Place};
use state::writer::Writer;
use tokio::sync::{mpsc, oneshot};

use crate::live::Live;
use crate::sources::desired::appliance;

/// Maximum number of requests queued for the checker; further senders wait.
const QUESTIONS: usize = 16;

/// Starts the checker. The returned receiver completes when the checker ends for any reason.
pub fn start(
    config: &Config,
    live: &Arc<Live>,
    (writer, told): (Arc<Writer>, Sender<Told>),
) -> io::Result<oneshot::Receiver<()>> {
    let checks = live.checks();
    let (questions, asked) = mpsc::channel(QUESTIONS);
    // Called once per process.
    let _ = checks.questions.set(questions);
    let able = Arc::clone(live);
    let given = Given {
        writer,
        place: place(config),
        appliance: Arc::new(appliance(config)),
        able: Arc::new(move || able.able().able),
        seed: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        ports: live.listening().node_ports(),
        told,
        counters: Arc::clone(&checks.counters),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (alive, ended) = oneshot::channel::<()>();
    std::thread::Builder::new().name("slowpath-health".into()).spawn(move || {
        let _alive = alive;
        runtime.block_on(run(given, asked));
    })?;
    Ok(ended)
}

/// Returns how probes enter tunnels. With XDP, responses arrive at the NIC, so a probe must not be
/// bound to the interface that leads into the programs.
fn place(config: &Config) -> Place {
    let entrance = |((_, arm), route)| match config.plane {
        Plane::Dpdk => Entrance::Interface(config.kernel_interface(arm).into()),
        Plane::Xdp => Entrance::Mark(route),
    };
    let entrances = config.arms().zip(ROUTES).map(entrance).collect();
    Place { probing: config.health.probing.clone(), entrances }
}
