//! Starts the health checker on a thread of its own, between the control loop and those who ask.

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

/// Questions that wait for the checker before further ones wait to be asked.
const QUESTIONS: usize = 16;

/// Starts it. The receiver ends with the checker, however that happens.
pub fn start(
    config: &Config,
    live: &Arc<Live>,
    (writer, told): (Arc<Writer>, Sender<Told>),
) -> io::Result<oneshot::Receiver<()>> {
    let checks = live.checks();
    let (questions, asked) = mpsc::channel(QUESTIONS);
    // Started once in a process.
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

/// How probes enter tunnels. With XDP the answers come in by the NIC, so that no probe may keep to
/// the interface which leads into the programs.
fn place(config: &Config) -> Place {
    let entrance = |((_, arm), route)| match config.plane {
        Plane::Dpdk => Entrance::Interface(config.kernel_interface(arm).into()),
        Plane::Xdp => Entrance::Mark(route),
    };
    let entrances = config.arms().zip(ROUTES).map(entrance).collect();
    Place { probing: config.health.probing.clone(), entrances }
}
