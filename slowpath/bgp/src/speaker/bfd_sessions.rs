//! BFD for BGP peers: one driver runs the sessions of all monitored paths. It is started with the
//! first path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bfd::machine::{Change, Reason};
use bfd::{Bfd, Driver, DriverParams, Key};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::config::PeerConfig;
use super::context::SpeakerContext;
use super::peer_task::PeerTask;
use super::status::BfdStatus;
use crate::peer::Event;

/// Interval between attempts to open BFD's ports.
const RETRY: Duration = Duration::from_secs(1);

/// BFD sessions of all peers.
#[derive(Default)]
pub(super) struct BfdSessions {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    paths: BTreeMap<Key, MonitoredPath>,
    /// `None` until BFD's ports are open.
    bfd: Option<Bfd>,
    /// The task that runs the driver was started.
    started: bool,
    /// [`BfdSessions::stop`] was called.
    stopped: bool,
    last_error: Option<String>,
}

/// A monitored path and the peers at its far end.
struct MonitoredPath {
    settings: bfd::Settings,
    peers: Vec<Arc<PeerTask>>,
}

/// Returns the key and settings of the BFD session for a peer; `None` without BFD.
fn key(peer_task: &PeerTask) -> Option<(Key, bfd::Settings)> {
    let config = peer_task.config();
    let PeerConfig { settings, interface, bfd, .. } = &*config;
    let bfd = (*bfd)?;
    let key = Key {
        peer: settings.peer.ip(),
        local: settings.transport.local,
        interface: interface.clone(),
        multihop: bfd.multihop,
    };
    Some((key, bfd.settings))
}

impl BfdSessions {
    /// Starts monitoring the path to a peer that is configured with BFD. If several peers share one
    /// path, the settings of the last one apply.
    pub(super) fn add(self: &Arc<Self>, peer_task: &Arc<PeerTask>, context: &SpeakerContext) {
        let Some((key, settings)) = key(peer_task) else { return };
        let mut inner = self.inner.lock();
        let peers = Vec::new();
        let path = inner.paths.entry(key.clone()).or_insert(MonitoredPath { settings, peers });
        path.settings = settings;
        path.peers.push(Arc::clone(peer_task));
        inner.set(&key, settings);
        if !std::mem::replace(&mut inner.started, true) {
            context.spawn(Arc::clone(self).run());
        }
    }

    /// Detaches a peer. Its path stays monitored until [`BfdSessions::prune`], because the peer may
    /// be added again at once.
    pub(super) fn remove(&self, peer_task: &Arc<PeerTask>) {
        let mut inner = self.inner.lock();
        inner
            .paths
            .values_mut()
            .for_each(|path| path.peers.retain(|peer| !Arc::ptr_eq(peer, peer_task)));
    }

    /// Ends the sessions of paths without peers. Neighbors are sent AdminDown.
    pub(super) fn prune(&self) {
        let mut inner = self.inner.lock();
        let Inner { paths, bfd, .. } = &mut *inner;
        paths.retain(|key, path| {
            let stays = !path.peers.is_empty();
            if let (false, Some(bfd)) = (stays, bfd.as_ref()) {
                bfd.remove(key.clone());
            }
            stays
        });
    }

    /// Ends all sessions. Neighbors are sent AdminDown.
    pub(super) fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = true;
        if let Some(bfd) = &inner.bfd {
            bfd.stop();
        }
    }

    /// Returns why BFD does not run, or which session has invalid settings.
    pub(super) fn last_error(&self) -> Option<String> {
        self.inner.lock().last_error.clone()
    }

    /// Returns the driver's handle once the driver runs.
    pub(super) fn bfd(&self) -> Option<Bfd> {
        self.inner.lock().bfd.clone()
    }

    /// Opens BFD's ports, which is retried until it succeeds, and runs the driver until its end.
    async fn run(self: Arc<Self>) {
        while !self.inner.lock().stopped {
            let (events, mut received) = mpsc::unbounded_channel();
            match bfd::open(DriverParams { seed: seed(), events }) {
                Ok((bfd, driver)) => {
                    self.start_sessions(bfd);
                    let receive = async {
                        while let Some(event) = received.recv().await {
                            self.handle_event(&event);
                        }
                    };
                    // The driver returns once it is stopped, which also closes the event channel.
                    tokio::join!(Driver::run(driver), receive);
                    return;
                }
                Err(error) => self.record_error(error.to_string()),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn start_sessions(&self, bfd: Bfd) {
        let mut inner = self.inner.lock();
        (inner.bfd, inner.last_error) = (Some(bfd), None);
        let paths: Vec<_> =
            inner.paths.iter().map(|(key, path)| (key.clone(), path.settings)).collect();
        paths.iter().for_each(|(key, settings)| inner.set(key, *settings));
    }

    fn record_error(&self, last_error: String) {
        let mut inner = self.inner.lock();
        if inner.last_error.as_ref() != Some(&last_error) {
            tracing::warn!(event = "bfd_not_running", error = %last_error, "BFD is not running");
            inner.last_error = Some(last_error);
        }
    }

    fn handle_event(&self, event: &bfd::Event) {
        let peers: Vec<Arc<PeerTask>> = {
            let inner = self.inner.lock();
            inner.paths.get(&event.key).into_iter().flat_map(|path| path.peers.clone()).collect()
        };
        for peer_task in peers {
            match event.change {
                Change::Up => {
                    peer_task.handle_bfd(BfdStatus { up: true, why: None }, Some(Event::BfdUp))
                }
                Change::NeighborAdminDown => {
                    let why = Some(Reason::NeighborAdminDown.to_string());
                    peer_task.handle_bfd(BfdStatus { up: false, why }, Some(Event::BfdAdminDown));
                }
                Change::Down(reason) => {
                    let status = BfdStatus { up: false, why: Some(reason.to_string()) };
                    // AdminDown at the neighbor does not mean that the path fails (RFC 5882 section
                    // 3.2).
                    peer_task.handle_bfd(status, reason.is_failure().then_some(Event::BfdDown));
                }
            }
        }
    }
}

impl Inner {
    /// Passes the settings of a path to the driver, if it runs.
    fn set(&mut self, key: &Key, settings: bfd::Settings) {
        if let Some(Err(error)) = self.bfd.as_ref().map(|bfd| bfd.set(key.clone(), settings)) {
            tracing::warn!(
                event = "bfd_session_invalid",
                session = %key,
                %error,
                "BFD session has invalid settings"
            );
            self.last_error = Some(format!("{key}: {error}"));
        }
    }
}

/// Returns a seed for BFD's random numbers, which differs at each start.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)
}
