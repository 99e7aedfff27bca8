//! BGP: the crate `announce` decides what is advertised, `bgp` runs the sessions; this module
//! supplies their inputs, and starts and ends them.
//!
//! ```text
//!   live: tables, able, drain --> around.rs --> announce::controller --> announcer --> sockets
//!   store <-- conditions.rs <-------'                                       |
//!                                     `weir bgp`, API, metrics <-- Desk ----'
//! ```
//! BGP has a thread and a runtime of its own, so that other work delays neither keepalives nor BFD.

mod around;
mod conditions;
pub(crate) mod desk;
mod routes;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use announce::announcer::{Announcer, DrainFirst, Settings, keys};
use announce::controller::{Controller, OnConflict, Signal};
use announce::routers::Leave;
use announce::routes::NoBackends;
use announce::secrets::Files;
use announce::sockets::Sockets;
use config::checked::{Bgp, BgpNoBackends, BgpOnConflict};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::live::Live;
use crate::sources::desired::Store;
use around::Around;
pub use desk::Desk;
pub use routes::documents;

/// Handle to end BGP.
pub struct Farewell {
    orders: mpsc::Sender<()>,
    gone: oneshot::Receiver<()>,
    asked: u32,
}

impl Farewell {
    /// Requests shutdown: all routes are withdrawn first. A second request ends BGP immediately. If
    /// the handle is dropped without a request, sessions end without a withdrawal, because this
    /// process is to be restarted.
    pub fn ask(&mut self) {
        self.asked += 1;
        // One order is enough.
        let _ = self.orders.try_send(());
    }

    /// Returns whether shutdown was requested.
    pub fn is_asked(&self) -> bool {
        self.asked > 0
    }

    /// Waits until the process may exit. Cancel safe: may be dropped and called again.
    ///
    /// # Errors
    /// BGP ended without a request. The log has the cause.
    pub async fn gone(&mut self) -> Result<(), Broken> {
        if self.asked < 2 {
            let ended = (&mut self.gone).await;
            ended.map_err(|_| Broken)?;
        }
        Ok(())
    }
}

/// BGP's thread ended by an internal error.
#[derive(Debug, thiserror::Error)]
#[error("BGP's control loop broke; the fastpath goes on, neighbors see our sessions end")]
pub struct Broken;

/// Starts BGP. `came_back` is whether the region had tables when this process started.
///
/// # Errors
/// The thread can't be created.
pub fn start(live: &Arc<Live>, store: &Arc<Store>, came_back: bool) -> io::Result<Farewell> {
    let settings = live.config.bgp.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("slowpath-bgp")
        .enable_all()
        .build()?;
    let sockets = {
        let _inside = runtime.enter();
        Sockets::new()
    };
    let signal = live.shared().news().clone();
    let leaving = Arc::new(AtomicBool::new(false));
    let around = Around::new(Arc::clone(live), Arc::clone(store), Arc::clone(&leaving));
    let secrets = Arc::new(Files { secrets: settings.secrets.clone() });
    let announcer = Announcer::new(sockets.clone(), secrets, carried_out(&settings, came_back));
    let announcer = Arc::new(Mutex::new(announcer));
    let on_conflict = match settings.on_conflict {
        BgpOnConflict::Withdraw => OnConflict::Withdraw,
        BgpOnConflict::Keep => OnConflict::Keep,
    };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let controller = Controller::new(around, Arc::clone(&announcer), on_conflict, seed);
    let counts = controller.counts();
    runtime.spawn(keys::watch(Arc::clone(&announcer), signal.clone()));
    live.set_routers(Desk { announcer, counts, sockets: sockets.clone() });
    let (orders, ordered) = mpsc::channel(1);
    let (end, gone) = oneshot::channel();
    std::thread::Builder::new().name("slowpath-bgp".into()).spawn(move || {
        runtime.block_on(async move {
            let leave = leave(ordered, settings, leaving, signal.clone());
            controller.run(signal, leave).await;
            sockets.end().await;
        });
        // The receiver is gone if the process ends immediately.
        let _ = end.send(());
    })?;
    Ok(Farewell { orders, gone, asked: 0 })
}

fn carried_out(settings: &Bgp, came_back: bool) -> Settings {
    Settings {
        no_backends: match settings.no_backends {
            BgpNoBackends::Announce => NoBackends::Announce,
            BgpNoBackends::Withdraw => NoBackends::Withdraw,
        },
        drain: match settings.graceful_shutdown {
            Duration::ZERO => DrainFirst::Withdraw,
            wait => DrainFirst::GracefulShutdown(wait),
        },
        came_back,
    }
}

/// Returns how to end the sessions, once that is requested.
async fn leave(
    mut ordered: mpsc::Receiver<()>,
    settings: Bgp,
    leaving: Arc<AtomicBool>,
    signal: Signal,
) -> Leave {
    if ordered.recv().await.is_none() {
        return Leave::Restart;
    }
    if !settings.graceful_shutdown.is_zero() {
        leaving.store(true, Ordering::Relaxed);
        signal.event();
        tokio::time::sleep(settings.graceful_shutdown).await;
    }
    Leave::Stop { patience: settings.stop, settle: settings.settle }
}
