//! BGP: the crate `announce` decides what is advertised, and `bgp` runs the sessions. This module
//! supplies their inputs, starts them and ends them.
//!
//! ```text
//!   live: tables, able, drain --> inputs.rs --> announce::controller --> announcer --> sockets
//!   store <-- conditions.rs <-------'                                       |
//!                                     `weir bgp`, API, metrics <-- BgpState '
//! ```
//! BGP has a thread and a runtime of its own, so that other work delays neither keepalives nor BFD.

pub(crate) mod bgp_state;
mod conditions;
mod inputs;
mod routes;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use announce::announcer::{Announcer, DrainStart, Settings, keys};
use announce::apply::ShutdownMode;
use announce::controller::{ConflictPolicy, Controller, Signal};
use announce::routes::NoBackends;
use announce::secrets::Files;
use announce::sockets::SharedSpeaker;
use config::checked::{Bgp, BgpNoBackends, BgpOnConflict};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::live::Live;
use crate::sources::desired::Store;
pub use bgp_state::BgpState;
use inputs::Inputs;
pub use routes::documents;

/// Handle to request BGP's shutdown and to wait for its end.
pub struct BgpHandle {
    requests: mpsc::Sender<()>,
    stopped: oneshot::Receiver<()>,
    /// Number of calls of [`BgpHandle::request_shutdown`].
    requests_sent: u32,
}

impl BgpHandle {
    /// Requests shutdown: all routes are withdrawn, then the sessions end. A second request ends
    /// BGP immediately. If the handle is dropped without a request, because this process is to be
    /// restarted, the sessions end without a withdrawal.
    pub fn request_shutdown(&mut self) {
        self.requests_sent += 1;
        // If the channel is full, a request is already queued.
        let _ = self.requests.try_send(());
    }

    /// Returns whether shutdown was requested.
    pub fn is_requested(&self) -> bool {
        self.requests_sent > 0
    }

    /// Waits until BGP has ended; returns immediately after a second request. Cancel safe: the
    /// future may be dropped and the method called again.
    ///
    /// # Errors
    /// Fails if BGP's thread ended by an internal error. The log has the cause.
    pub async fn stopped(&mut self) -> Result<(), BgpLoopFailed> {
        if self.requests_sent < 2 {
            let ended = (&mut self.stopped).await;
            ended.map_err(|_| BgpLoopFailed)?;
        }
        Ok(())
    }
}

/// BGP's thread ended by an internal error.
#[derive(Debug, thiserror::Error)]
#[error("BGP failed (see the log); BGP sessions end, the data plane keeps the current tables")]
pub struct BgpLoopFailed;

/// Starts BGP. `restarted` is whether the region had tables when this process started.
///
/// # Errors
/// Fails if the runtime or its thread can't be created.
pub fn start(live: &Arc<Live>, store: &Arc<Store>, restarted: bool) -> io::Result<BgpHandle> {
    let settings = live.config.bgp.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("slowpath-bgp")
        .enable_all()
        .build()?;
    let sockets = {
        let _inside = runtime.enter();
        SharedSpeaker::new()
    };
    let signal = live.shared().changes().clone();
    let leaving = Arc::new(AtomicBool::new(false));
    let inputs = Inputs::new(Arc::clone(live), Arc::clone(store), Arc::clone(&leaving));
    let secrets = Arc::new(Files { secrets: settings.secrets.clone() });
    let announcer =
        Announcer::new(sockets.clone(), secrets, announcer_settings(&settings, restarted));
    let announcer = Arc::new(Mutex::new(announcer));
    let on_conflict = match settings.on_conflict {
        BgpOnConflict::Withdraw => ConflictPolicy::Withdraw,
        BgpOnConflict::Keep => ConflictPolicy::Keep,
    };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let controller = Controller::new(inputs, Arc::clone(&announcer), on_conflict, seed);
    let counts = controller.counts();
    runtime.spawn(keys::watch(Arc::clone(&announcer), signal.clone()));
    let key_counts = announcer.lock().key_counts();
    live.set_bgp(BgpState { announcer, counts, key_counts, sockets: sockets.clone() });
    let (requests, requested) = mpsc::channel(1);
    let (end, stopped) = oneshot::channel();
    std::thread::Builder::new().name("slowpath-bgp".into()).spawn(move || {
        runtime.block_on(async move {
            let leave = leave(requested, settings, leaving, signal.clone());
            controller.run(signal, leave).await;
            sockets.end().await;
        });
        // The receiver is gone if the process ends immediately.
        let _ = end.send(());
    })?;
    Ok(BgpHandle { requests, stopped, requests_sent: 0 })
}

fn announcer_settings(settings: &Bgp, restarted: bool) -> Settings {
    Settings {
        no_backends: match settings.no_backends {
            BgpNoBackends::Announce => NoBackends::Announce,
            BgpNoBackends::Withdraw => NoBackends::Withdraw,
        },
        drain: match settings.graceful_shutdown {
            Duration::ZERO => DrainStart::Withdraw,
            wait => DrainStart::GracefulShutdown(wait),
        },
        restarted,
    }
}

/// Waits for a request of shutdown, and then for the time for which routes carry the community
/// GRACEFUL_SHUTDOWN. Returns how to end the sessions after that: as for a restart if the handle
/// was dropped without a request.
async fn leave(
    mut requested: mpsc::Receiver<()>,
    settings: Bgp,
    leaving: Arc<AtomicBool>,
    signal: Signal,
) -> ShutdownMode {
    if requested.recv().await.is_none() {
        return ShutdownMode::Restart;
    }
    if !settings.graceful_shutdown.is_zero() {
        leaving.store(true, Ordering::Relaxed);
        signal.event();
        tokio::time::sleep(settings.graceful_shutdown).await;
    }
    ShutdownMode::Stop { timeout: settings.stop, settle: settings.settle }
}
