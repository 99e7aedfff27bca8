//! The I/O half of the BGP speaker: connects the peers' state machines to TCP connections,
//! listeners, timers and BFD.
//!
//! ```text
//!   Speaker -- inputs --> slot (state machine, octets of its connections, its timer)
//!                           ^ |
//!          listener --------' '--> connection: one task per socket, connecting included
//!          watch: BFD driver, session up and down
//! ```
//!
//! No method waits for a peer. Dropping a `Speaker` sends nothing, like a killed process: with
//! graceful restart, peers keep the routes. For a final shutdown, remove the peers with a reason
//! and await [`Speaker::end`].
//!
//! Memory is bounded: for a peer that reads slowly, at most [`crate::advertise::BURST`] messages
//! and a few keepalives are queued.

mod authentication;
mod ground;
mod listener;
mod slot;
mod socket;
pub mod told;
mod wanted;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch as life;

use crate::advertise::Table;
use crate::peer::{Input, Stop};
use crate::told::{PeerTold, RouteTold};
use crate::wire::Family;
use ground::Ground;
use listener::{Listener, Place};
use slot::Slot;
use told::{Report, Told};
use watch::Watch;

pub use wanted::{PeerKey, Wanted, Watched};

/// Maximum duration of [`Speaker::end`]: final notifications, then BFD's AdminDown packets, which
/// are repeated for a while.
const END: Duration = Duration::from_secs(5);

/// The BGP speaker: a set of peers with their listeners and BFD sessions.
pub struct Speaker {
    ground: Arc<Ground>,
    /// Dropping it ends all tasks of the speaker.
    life: life::Sender<()>,
    peers: BTreeMap<PeerKey, Arc<Slot>>,
    listeners: BTreeMap<Place, Arc<Listener>>,
    watch: Arc<Watch>,
    /// Graceful shutdown is on: routes carry the GRACEFUL_SHUTDOWN community (RFC 8326).
    shutting: bool,
    /// A peer was removed with [`Stop::Restart`].
    restarting: bool,
}

impl Speaker {
    /// Creates a speaker without peers. Must be called within a tokio runtime, whose threads open
    /// the sockets.
    pub fn new() -> Speaker {
        let (life, alive) = life::channel(());
        Speaker {
            ground: Arc::new(Ground::new(alive)),
            life,
            peers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            watch: Arc::default(),
            shutting: false,
            restarting: false,
        }
    }

    /// Adds a peer and starts its session. An existing peer with this key is removed first, with
    /// [`Stop::Changed`].
    pub fn add(&mut self, key: PeerKey, wanted: Wanted) {
        self.take(key, Stop::Changed);
        let slot = Slot::start(key, wanted, &self.ground);
        slot.tell(Input::GracefulShutdown(self.shutting));
        self.listen(&slot);
        self.watch.add(&slot, &self.ground);
        self.peers.insert(key, slot);
        self.prune();
    }

    /// Registers a peer with every listener that can receive its connections, and starts one if
    /// needed.
    fn listen(&mut self, slot: &Arc<Slot>) {
        let Some(place) = Place::of(&slot.wanted) else { return };
        if !self.listeners.contains_key(&place) {
            let fresh = Listener::start(place.clone(), &self.ground);
            let others = self
                .peers
                .values()
                .filter(|peer| Place::of(&peer.wanted).is_some_and(|other| other.meets(&place)));
            others.for_each(|peer| fresh.add(peer));
            self.listeners.insert(place.clone(), fresh);
        }
        let meeting = self.listeners.iter().filter(|(other, _)| other.meets(&place));
        meeting.for_each(|(_, listener)| listener.add(slot));
    }

    /// Removes a peer. With [`Stop::Changed`] or [`Stop::Restart`] its listener and BFD session
    /// stay, because the peer is expected to be added again.
    pub fn remove(&mut self, key: PeerKey, why: Stop) {
        // Some neighbors treat BFD's AdminDown as a failure, so it is sent only if the peer does
        // not come back.
        let stays = matches!(why, Stop::Changed | Stop::Restart);
        self.restarting |= why == Stop::Restart;
        self.take(key, why);
        if !stays {
            self.prune();
        }
    }

    fn take(&mut self, key: PeerKey, why: Stop) {
        let Some(slot) = self.peers.remove(&key) else { return };
        self.listeners.values().for_each(|listener| listener.remove(&slot));
        self.watch.remove(&slot);
        slot.remove(why);
        self.ground.changed();
    }

    /// Ends listeners and BFD sessions that no peer uses.
    fn prune(&mut self) {
        self.watch.prune();
        let wanted: BTreeSet<Place> =
            self.peers.values().filter_map(|slot| Place::of(&slot.wanted)).collect();
        self.listeners.retain(|place, listener| {
            let stays = wanted.contains(place);
            if !stays {
                listener.end();
            }
            stays
        });
    }

    /// Replaces the set of routes to advertise to a peer.
    pub fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>) {
        if let Some(slot) = self.peers.get(&key) {
            slot.tell(Input::Desired(Arc::clone(table)));
        }
    }

    /// Declares the current tables of all current peers complete, which allows End-of-RIB to be
    /// sent.
    pub fn complete(&mut self) {
        self.peers.values().for_each(|slot| slot.tell(Input::Complete));
    }

    /// Turns graceful shutdown (RFC 8326) on or off, for current peers and for those added later.
    pub fn graceful_shutdown(&mut self, on: bool) {
        self.shutting = on;
        self.peers.values().for_each(|slot| slot.tell(Input::GracefulShutdown(on)));
    }

    /// Sends all routes to a peer again.
    pub fn refresh(&self, key: PeerKey) {
        if let Some(slot) = self.peers.get(&key) {
            slot.tell(Input::Refresh);
        }
    }

    /// Returns whether every peer has been sent all of its desired routes
    /// ([`crate::peer::Peer::is_told`]).
    pub fn is_told(&self) -> bool {
        self.peers.values().all(|slot| slot.is_told())
    }

    /// Returns the status of all peers.
    pub fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerTold)> {
        let told = |slot: &Arc<Slot>| slot.look(|machine| machine.told(now));
        self.peers.iter().map(|(key, slot)| (*key, told(slot))).collect()
    }

    /// Returns the status of a peer, including its sockets.
    pub fn told(&self, key: PeerKey, now: Instant) -> Option<Told> {
        self.peers.get(&key).map(|slot| slot.told(now))
    }

    /// Returns the routes advertised to a peer for one family; empty while the session is not
    /// established.
    pub fn advertised(&self, key: PeerKey, family: Family) -> Vec<RouteTold> {
        let slot = self.peers.get(&key);
        slot.map(|slot| slot.look(|machine| machine.advertised(family))).unwrap_or_default()
    }

    /// Returns the status of all peers, listeners and BFD.
    pub fn report(&self, now: Instant) -> Report {
        Report {
            peers: self.peers.values().map(|slot| slot.told(now)).collect(),
            listeners: self.listeners.values().map(|listener| listener.told()).collect(),
            bfd_trouble: self.watch.trouble(),
        }
    }

    /// Returns the handle of the BFD driver; `None` until a path is monitored and BFD's ports are
    /// open.
    pub fn bfd(&self) -> Option<bfd::Bfd> {
        self.watch.bfd()
    }

    /// Subscribes to a counter that increases with each change of a peer's status or progress.
    pub fn changes(&self) -> life::Receiver<u64> {
        self.ground.changes()
    }

    /// Waits, for a few seconds at most, until notifications to removed peers are in the kernel's
    /// send buffers and BFD neighbors were sent AdminDown. If a peer was removed with
    /// [`Stop::Restart`] or has not been removed, the function returns at once and sends nothing.
    pub async fn end(mut self) {
        let left: Vec<PeerKey> = self.peers.keys().copied().collect();
        left.into_iter().for_each(|key| self.remove(key, Stop::Restart));
        self.listeners.values().for_each(|listener| listener.end());
        if self.restarting {
            return;
        }
        self.watch.stop();
        let Speaker { ground, life, peers, listeners, watch, .. } = self;
        drop((ground, peers, listeners, watch));
        // Past the timeout the remaining notifications are given up.
        let _ = tokio::time::timeout(END, life.closed()).await;
    }
}

impl Default for Speaker {
    fn default() -> Speaker {
        Speaker::new()
    }
}
