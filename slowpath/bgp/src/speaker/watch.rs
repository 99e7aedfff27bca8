//! BFD for BGP peers: one driver for all monitored paths, started with the first of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bfd::machine::{Change, Reason};
use bfd::{Bfd, Driver, Event, Given, Key};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::ground::Ground;
use super::slot::Slot;
use super::told::BfdTold;
use super::wanted::Wanted;
use crate::peer::Input;

/// Interval between attempts to open BFD's ports.
const RETRY: Duration = Duration::from_secs(1);

/// BFD sessions of all peers.
#[derive(Default)]
pub(super) struct Watch {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    ways: BTreeMap<Key, Way>,
    /// `None` until BFD's ports are open.
    bfd: Option<Bfd>,
    begun: bool,
    stopped: bool,
    trouble: Option<String>,
}

/// A monitored path and the peers at its far end.
struct Way {
    settings: bfd::Settings,
    peers: Vec<Arc<Slot>>,
}

/// Returns the key and settings of the BFD session for a peer; `None` without BFD.
fn key(slot: &Slot) -> Option<(Key, bfd::Settings)> {
    let Wanted { settings, interface, bfd, .. } = &slot.wanted;
    let watched = (*bfd)?;
    let key = Key {
        peer: settings.peer.ip(),
        local: settings.transport.local,
        interface: interface.clone(),
        multihop: watched.multihop,
    };
    Some((key, watched.settings))
}

impl Watch {
    /// Starts monitoring the path to a peer if it is configured. If several peers share one path,
    /// the settings of the last one apply.
    pub(super) fn add(self: &Arc<Self>, slot: &Arc<Slot>, ground: &Ground) {
        let Some((key, settings)) = key(slot) else { return };
        let mut inner = self.inner.lock();
        let peers = Vec::new();
        let way = inner.ways.entry(key.clone()).or_insert(Way { settings, peers });
        way.settings = settings;
        way.peers.push(Arc::clone(slot));
        inner.set(&key, settings);
        if !std::mem::replace(&mut inner.begun, true) {
            ground.spawn(Arc::clone(self).run());
        }
    }

    /// Detaches a peer. Its path stays monitored until [`Watch::prune`], because the peer may be
    /// added again at once.
    pub(super) fn remove(&self, slot: &Arc<Slot>) {
        let mut inner = self.inner.lock();
        inner.ways.values_mut().for_each(|way| way.peers.retain(|peer| !Arc::ptr_eq(peer, slot)));
    }

    /// Ends the sessions of paths without peers. Neighbors are sent AdminDown.
    pub(super) fn prune(&self) {
        let mut inner = self.inner.lock();
        let Inner { ways, bfd, .. } = &mut *inner;
        ways.retain(|key, way| {
            let stays = !way.peers.is_empty();
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

    /// Returns why BFD does not run.
    pub(super) fn trouble(&self) -> Option<String> {
        self.inner.lock().trouble.clone()
    }

    /// Returns the driver's handle once the driver runs.
    pub(super) fn bfd(&self) -> Option<Bfd> {
        self.inner.lock().bfd.clone()
    }

    async fn run(self: Arc<Self>) {
        while !self.inner.lock().stopped {
            let (events, mut heard) = mpsc::unbounded_channel();
            match bfd::open(Given { seed: seed(), events }) {
                Ok((bfd, driver)) => {
                    self.begin(bfd);
                    let hears = async {
                        while let Some(event) = heard.recv().await {
                            self.hear(&event);
                        }
                    };
                    // The driver returns once it is stopped, which also closes the event channel.
                    tokio::join!(Driver::run(driver), hears);
                    return;
                }
                Err(error) => self.complain(error.to_string()),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn begin(&self, bfd: Bfd) {
        let mut inner = self.inner.lock();
        (inner.bfd, inner.trouble) = (Some(bfd), None);
        let ways: Vec<_> =
            inner.ways.iter().map(|(key, way)| (key.clone(), way.settings)).collect();
        ways.iter().for_each(|(key, settings)| inner.set(key, *settings));
    }

    fn complain(&self, trouble: String) {
        let mut inner = self.inner.lock();
        if inner.trouble.as_ref() != Some(&trouble) {
            tracing::warn!("no BFD: {trouble}");
            inner.trouble = Some(trouble);
        }
    }

    fn hear(&self, event: &Event) {
        let peers: Vec<Arc<Slot>> = {
            let inner = self.inner.lock();
            inner.ways.get(&event.key).into_iter().flat_map(|way| way.peers.clone()).collect()
        };
        for slot in peers {
            match event.change {
                Change::Up => slot.hear_bfd(BfdTold { up: true, why: None }, Some(Input::BfdUp)),
                Change::Held => {
                    let why = Some(format!("{:?}", Reason::NeighbourAdminDown));
                    slot.hear_bfd(BfdTold { up: false, why }, Some(Input::BfdHeld));
                }
                Change::Down(reason) => {
                    let told = BfdTold { up: false, why: Some(format!("{reason:?}")) };
                    // AdminDown at the neighbor does not mean that the path fails (RFC 5882 section
                    // 3.2).
                    slot.hear_bfd(told, reason.is_failure().then_some(Input::BfdDown));
                }
            }
        }
    }
}

impl Inner {
    fn set(&mut self, key: &Key, settings: bfd::Settings) {
        if let Some(Err(error)) = self.bfd.as_ref().map(|bfd| bfd.set(key.clone(), settings)) {
            tracing::warn!("no BFD with {key}: {error}");
            self.trouble = Some(format!("{key}: {error}"));
        }
    }
}

/// Returns a seed that differs at each start.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)
}
