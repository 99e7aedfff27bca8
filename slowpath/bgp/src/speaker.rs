//! Whoever has the sockets: peers' machines joined to connections, listeners, clocks and BFD.
//!
//! ```text
//!   Speaker -- orders --> slot (machine, its connections' octets, its clock)
//!                           ^ |
//!          listener --------' '--> connection: one task a socket, connecting included
//!          watch: BFD's driver, up and down
//! ```
//!
//! No order waits for a peer. A speaker that is dropped says nothing more to anybody, as a process
//! that is killed: graceful restart then keeps its routes. One that goes for good removes its peers
//! with a reason and waits for [`Speaker::end`].
//!
//! Memory is bounded: a peer that reads slowly has at most [`crate::advertise::BURST`] messages
//! waiting, and a few keepalives.

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

/// How long an end may take: last words, then BFD's, which are said for a while.
const END: Duration = Duration::from_secs(5);

/// The speaker.
pub struct Speaker {
    ground: Arc<Ground>,
    /// All tasks end with it.
    life: life::Sender<()>,
    peers: BTreeMap<PeerKey, Arc<Slot>>,
    listeners: BTreeMap<Place, Arc<Listener>>,
    watch: Arc<Watch>,
    /// All routes are about to go.
    shutting: bool,
    /// Some peer was left to come back to it.
    restarting: bool,
}

impl Speaker {
    /// Without peers, within a tokio runtime. Its sockets are opened by the runtime's threads.
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

    /// A new peer, wanted up. One that is there already goes before.
    pub fn add(&mut self, key: PeerKey, wanted: Wanted) {
        self.take(key, Stop::Changed);
        let slot = Slot::start(key, wanted, &self.ground);
        slot.tell(Input::GracefulShutdown(self.shutting));
        self.listen(&slot);
        self.watch.add(&slot, &self.ground);
        self.peers.insert(key, slot);
        self.prune();
    }

    /// Lets a peer connect to us, wherever its connections may come.
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

    /// A peer goes. With [`Stop::Changed`] it is added again at once, and its listener waits.
    pub fn remove(&mut self, key: PeerKey, why: Stop) {
        // Neighbours take a farewell of BFD's for a failure where they are not told otherwise: who
        // comes back doesn't say it.
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

    /// Ends what no peer needs.
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

    /// What a peer shall have from now on.
    pub fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>) {
        if let Some(slot) = self.peers.get(&key) {
            slot.tell(Input::Desired(Arc::clone(table)));
        }
    }

    /// What each peer of now shall have is all that there is: End-of-RIB may be said.
    pub fn complete(&mut self) {
        self.peers.values().for_each(|slot| slot.tell(Input::Complete));
    }

    /// All routes are about to go (RFC 8326), or not any more; for peers to come as well.
    pub fn graceful_shutdown(&mut self, on: bool) {
        self.shutting = on;
        self.peers.values().for_each(|slot| slot.tell(Input::GracefulShutdown(on)));
    }

    /// Says all again to a peer.
    pub fn refresh(&self, key: PeerKey) {
        if let Some(slot) = self.peers.get(&key) {
            slot.tell(Input::Refresh);
        }
    }

    /// Whether each peer was told all that it shall have ([`crate::peer::Peer::is_told`]).
    pub fn is_told(&self) -> bool {
        self.peers.values().all(|slot| slot.is_told())
    }

    /// All peers, as they are.
    pub fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerTold)> {
        let told = |slot: &Arc<Slot>| slot.look(|machine| machine.told(now));
        self.peers.iter().map(|(key, slot)| (*key, told(slot))).collect()
    }

    /// A peer with what its sockets know.
    pub fn told(&self, key: PeerKey, now: Instant) -> Option<Told> {
        self.peers.get(&key).map(|slot| slot.told(now))
    }

    /// What a peer has from us, of a family; nothing while it is not up.
    pub fn advertised(&self, key: PeerKey, family: Family) -> Vec<RouteTold> {
        let slot = self.peers.get(&key);
        slot.map(|slot| slot.look(|machine| machine.advertised(family))).unwrap_or_default()
    }

    /// All that is known.
    pub fn report(&self, now: Instant) -> Report {
        Report {
            peers: self.peers.values().map(|slot| slot.told(now)).collect(),
            listeners: self.listeners.values().map(|listener| listener.told()).collect(),
            bfd_trouble: self.watch.trouble(),
        }
    }

    /// BFD, to ask: there once a way is watched and the kernel gave us its ports.
    pub fn bfd(&self) -> Option<bfd::Bfd> {
        self.watch.bfd()
    }

    /// Counts whatever is worth a look: states, and peers that were told all.
    pub fn changes(&self) -> life::Receiver<u64> {
        self.ground.changes()
    }

    /// Waits until what was said to peers that were removed is with the kernel, and neighbours were
    /// told of BFD's end; a few seconds at most. With a peer that was removed for a restart, or is
    /// still there, nobody is told anything and nothing is waited for.
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
        // Whoever has not heard us by then won't.
        let _ = tokio::time::timeout(END, life.closed()).await;
    }
}

impl Default for Speaker {
    fn default() -> Speaker {
        Speaker::new()
    }
}
