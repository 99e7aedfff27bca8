//! The I/O half of the BGP speaker: connects the peers' state machines to TCP connections,
//! listeners, timers and BFD.
//!
//! ```text
//!   Speaker ------- events ----------------> peer_task: state machine, output queues, timer task
//!   listener ------ accepted connections -->   |
//!   bfd_sessions -- up, down --------------->  |
//!                                              v
//!                                            one task per connection or attempt to connect
//! ```
//!
//! No method but [`Speaker::end`] waits for a peer. Dropping a `Speaker` sends nothing, like a
//! killed process: with graceful restart, peers keep the routes. For a final shutdown, remove the
//! peers with a reason and await [`Speaker::end`].
//!
//! Memory is bounded: for a peer that reads slowly, at most [`crate::advertise::BURST`] messages
//! and a few keepalives are queued.

mod authentication;
mod bfd_sessions;
mod config;
mod context;
mod listener;
mod peer_task;
mod socket;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::advertise::Table;
use crate::peer::settings::Transport;
use crate::peer::{Event, Stop};
use crate::status::{AdvertisedRoute, PeerStatus};
use crate::wire::Family;
use bfd_sessions::BfdSessions;
use context::SpeakerContext;
use listener::{ListenAddress, Listener};
use peer_task::PeerTask;
use status::{PeerSocketStatus, SpeakerStatus};

pub use config::{PeerBfd, PeerConfig, PeerKey};

/// Maximum duration of [`Speaker::end`]. Closing a connection takes up to 3 s
/// ([`peer_task::CLOSE_TIMEOUT`]); AdminDown is sent to BFD neighbors for their detection time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The BGP speaker: a set of peers with their listeners and BFD sessions.
pub struct Speaker {
    context: Arc<SpeakerContext>,
    /// All tasks of the speaker end when this is dropped.
    shutdown: watch::Sender<()>,
    peers: BTreeMap<PeerKey, Arc<PeerTask>>,
    listeners: BTreeMap<ListenAddress, Arc<Listener>>,
    bfd_sessions: Arc<BfdSessions>,
    /// Graceful shutdown is on: routes carry the GRACEFUL_SHUTDOWN community (RFC 8326).
    shutting_down: bool,
    /// A peer was removed with [`Stop::Restart`].
    restarting: bool,
}

impl Speaker {
    /// Creates a speaker without peers. Must be called within a tokio runtime. The runtime's
    /// threads open the sockets, in their network namespace.
    pub fn new() -> Speaker {
        let (shutdown, receiver) = watch::channel(());
        Speaker {
            context: Arc::new(SpeakerContext::new(receiver)),
            shutdown,
            peers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            bfd_sessions: Arc::default(),
            shutting_down: false,
            restarting: false,
        }
    }

    /// Adds a peer and starts its session. An existing peer with this key is removed first, with
    /// [`Stop::Changed`].
    pub fn add(&mut self, key: PeerKey, config: PeerConfig) {
        self.remove_peer(key, Stop::Changed);
        let peer_task = PeerTask::start(key, config, &self.context);
        peer_task.handle(Event::GracefulShutdown(self.shutting_down));
        self.listen(&peer_task);
        self.bfd_sessions.add(&peer_task, &self.context);
        self.peers.insert(key, peer_task);
        self.prune();
    }

    /// Registers a peer with every listener that can receive its connections, and starts one if
    /// needed.
    fn listen(&mut self, peer_task: &Arc<PeerTask>) {
        let Some(listen_address) = ListenAddress::of(&peer_task.config()) else { return };
        if !self.listeners.contains_key(&listen_address) {
            let fresh = Listener::start(listen_address.clone(), &self.context);
            let others = self.peers.values().filter(|peer| {
                ListenAddress::of(&peer.config())
                    .is_some_and(|other| other.overlaps(&listen_address))
            });
            others.for_each(|peer| fresh.add(peer));
            self.listeners.insert(listen_address.clone(), fresh);
        }
        let overlapping =
            self.listeners.iter().filter(|(other, _)| other.overlaps(&listen_address));
        overlapping.for_each(|(_, listener)| listener.add(peer_task));
    }

    /// Removes a peer. With [`Stop::Changed`] or [`Stop::Restart`] its listener and BFD session
    /// stay, because the peer is expected to be added again.
    pub fn remove(&mut self, key: PeerKey, why: Stop) {
        // Some neighbors treat BFD's AdminDown as a failure, so AdminDown is sent only if the peer
        // is not added again.
        let stays = matches!(why, Stop::Changed | Stop::Restart);
        self.restarting |= why == Stop::Restart;
        self.remove_peer(key, why);
        if !stays {
            self.prune();
        }
    }

    fn remove_peer(&mut self, key: PeerKey, why: Stop) {
        let Some(peer_task) = self.peers.remove(&key) else { return };
        self.listeners.values().for_each(|listener| listener.remove(&peer_task));
        self.bfd_sessions.remove(&peer_task);
        peer_task.remove(why);
        self.context.notify_changed();
    }

    /// Ends listeners and BFD sessions that no peer uses.
    fn prune(&mut self) {
        self.bfd_sessions.prune();
        let in_use: BTreeSet<ListenAddress> = self
            .peers
            .values()
            .filter_map(|peer_task| ListenAddress::of(&peer_task.config()))
            .collect();
        self.listeners.retain(|listen_address, listener| {
            let stays = in_use.contains(listen_address);
            if !stays {
                listener.end();
            }
            stays
        });
    }

    /// Replaces the keys of a peer by those of `transport` without ending the session; the caller
    /// has checked [`Transport::can_rekey_to`]. Until the peer has a common key with this side
    /// again, each side drops what the other sends; the session stays if that takes less than the
    /// hold time.
    pub fn set_keys(&mut self, key: PeerKey, transport: &Transport) {
        let Some(peer_task) = self.peers.get(&key) else { return };
        peer_task.set_keys(transport);
        self.listeners.values().for_each(|listener| listener.set_keys(peer_task));
    }

    /// Replaces the set of routes to advertise to a peer.
    pub fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>) {
        if let Some(peer_task) = self.peers.get(&key) {
            peer_task.handle(Event::Desired(Arc::clone(table)));
        }
    }

    /// Declares the current tables of all current peers complete, which allows End-of-RIB to be
    /// sent.
    pub fn complete(&mut self) {
        self.peers.values().for_each(|peer_task| peer_task.handle(Event::Complete));
    }

    /// Turns graceful shutdown (RFC 8326) on or off, for current peers and for those added later.
    pub fn graceful_shutdown(&mut self, on: bool) {
        self.shutting_down = on;
        self.peers.values().for_each(|peer_task| peer_task.handle(Event::GracefulShutdown(on)));
    }

    /// Sends all routes to a peer again.
    pub fn refresh(&self, key: PeerKey) {
        if let Some(peer_task) = self.peers.get(&key) {
            peer_task.handle(Event::Refresh);
        }
    }

    /// Returns whether every peer has been sent all of its desired routes
    /// ([`crate::peer::Peer::all_sent`]).
    pub fn all_sent(&self) -> bool {
        self.peers.values().all(|peer_task| peer_task.all_sent())
    }

    /// Returns the status of all peers.
    pub fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerStatus)> {
        let status =
            |peer_task: &Arc<PeerTask>| peer_task.with_machine(|machine| machine.status(now));
        self.peers.iter().map(|(key, peer_task)| (*key, status(peer_task))).collect()
    }

    /// Returns the status of a peer, including its sockets.
    pub fn peer_status(&self, key: PeerKey, now: Instant) -> Option<PeerSocketStatus> {
        self.peers.get(&key).map(|peer_task| peer_task.status(now))
    }

    /// Returns the routes advertised to a peer for one family; empty while the session is not
    /// established.
    pub fn advertised(&self, key: PeerKey, family: Family) -> Vec<AdvertisedRoute> {
        let peer_task = self.peers.get(&key);
        peer_task
            .map(|peer_task| peer_task.with_machine(|machine| machine.advertised(family)))
            .unwrap_or_default()
    }

    /// Returns the status of all peers, listeners and BFD.
    pub fn status(&self, now: Instant) -> SpeakerStatus {
        SpeakerStatus {
            peers: self.peers.values().map(|peer_task| peer_task.status(now)).collect(),
            listeners: self.listeners.values().map(|listener| listener.status()).collect(),
            bfd_error: self.bfd_sessions.last_error(),
        }
    }

    /// Returns the handle of the BFD driver; `None` until a path is monitored and BFD's ports are
    /// open.
    pub fn bfd(&self) -> Option<bfd::Bfd> {
        self.bfd_sessions.bfd()
    }

    /// Subscribes to a counter that increases with each change of a peer's state, of its
    /// established session and of whether it has all routes, and with each removal of a peer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.context.changes()
    }

    /// Waits, for 5 s at most, until the connections of removed peers are closed after their
    /// NOTIFICATIONs and BFD neighbors were sent AdminDown. If a peer was removed with
    /// [`Stop::Restart`] or has not been removed, the function returns at once and sends nothing.
    pub async fn end(mut self) {
        let left: Vec<PeerKey> = self.peers.keys().copied().collect();
        left.into_iter().for_each(|key| self.remove(key, Stop::Restart));
        self.listeners.values().for_each(|listener| listener.end());
        if self.restarting {
            return;
        }
        self.bfd_sessions.stop();
        let Speaker { context, shutdown, peers, listeners, bfd_sessions, .. } = self;
        drop((context, peers, listeners, bfd_sessions));
        // Past the timeout, unsent NOTIFICATIONs are discarded.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, shutdown.closed()).await;
    }
}

impl Default for Speaker {
    fn default() -> Speaker {
        Speaker::new()
    }
}
