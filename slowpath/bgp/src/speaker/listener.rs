//! Listeners for peers' connections: one per address, interface and port. The kernel delivers a
//! connection to the most specific of them, whichever peer it is meant for; therefore each listener
//! has all peers of its port and family. Connections of other addresses are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::authentication::{self, Installed};
use super::ground::Ground;
use super::slot::{Slot, serve};
use super::socket;
use super::told::ListenerTold;
use super::wanted::Wanted;

/// Interval between attempts to open the socket, and pause after a failed accept.
const RETRY: Duration = Duration::from_millis(500);

/// Address and interface of a listener.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) at: SocketAddr,
    pub(super) interface: Option<String>,
}

impl Place {
    /// Returns where a peer connects to; `None` if it must not connect.
    pub(super) fn of(wanted: &Wanted) -> Option<Place> {
        let at = socket::place(&wanted.settings, wanted.listen_port?);
        Some(Place { at, interface: wanted.interface.clone() })
    }

    /// Returns whether the kernel may deliver a connection meant for one to the other.
    pub(super) fn meets(&self, other: &Place) -> bool {
        self.at.port() == other.at.port() && self.at.is_ipv4() == other.at.is_ipv4()
    }
}

/// A listening socket with its peers and their keys.
pub(super) struct Listener {
    place: Place,
    inner: Mutex<Inner>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Inner {
    peers: BTreeMap<IpAddr, Vec<Arc<Slot>>>,
    /// `None` until the socket is open.
    socket: Option<Arc<TcpListener>>,
    /// Keys installed in the kernel, by peer.
    keys: BTreeMap<IpAddr, Installed>,
    /// Peers whose keys could not be installed: their connections are refused rather than accepted
    /// without authentication.
    keyless: BTreeSet<IpAddr>,
    accepted: u64,
    refused: u64,
    trouble: Option<String>,
}

impl Listener {
    /// Creates a listener, which retries until its socket is open.
    pub(super) fn start(place: Place, ground: &Arc<Ground>) -> Arc<Listener> {
        let listener = Arc::new(Listener { place, inner: Mutex::default(), task: OnceLock::new() });
        let task = ground.spawn(Arc::clone(&listener).run(Arc::clone(ground)));
        // Cannot fail: the listener is new, so the cell is empty.
        let _ = listener.task.set(task);
        listener
    }

    /// Accepts connections of a peer, authenticated if a key is configured.
    pub(super) fn add(&self, slot: &Arc<Slot>) {
        let mut inner = self.inner.lock();
        let address = slot.key.peer.ip();
        inner.peers.entry(address).or_default().push(Arc::clone(slot));
        inner.sign(self.place.at.ip(), address);
        inner.guard(self.place.at);
    }

    /// Stops accepting connections of a peer; established ones stay.
    pub(super) fn remove(&self, slot: &Arc<Slot>) {
        let mut inner = self.inner.lock();
        let address = slot.key.peer.ip();
        let Some(peers) = inner.peers.get_mut(&address) else { return };
        peers.retain(|peer| !Arc::ptr_eq(peer, slot));
        if peers.is_empty() {
            inner.peers.remove(&address);
        }
        inner.sign(self.place.at.ip(), address);
        inner.guard(self.place.at);
    }

    /// Closes the socket.
    pub(super) fn end(&self) {
        self.inner.lock().socket = None;
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Returns the status of the listener.
    pub(super) fn told(&self) -> ListenerTold {
        let inner = self.inner.lock();
        ListenerTold {
            address: self.place.at,
            interface: self.place.interface.clone(),
            listens: inner.socket.is_some(),
            accepted: inner.accepted,
            refused: inner.refused,
            trouble: inner.trouble.clone(),
        }
    }

    async fn run(self: Arc<Self>, ground: Arc<Ground>) {
        let socket = loop {
            match self.open() {
                Ok(socket) => break socket,
                Err(error) => self.complain(&error),
            }
            tokio::time::sleep(RETRY).await;
        };
        loop {
            match socket.accept().await {
                Ok((stream, from)) => self.let_in(stream, from, &ground),
                // The connection was closed meanwhile, or the kernel is out of resources.
                Err(error) => {
                    tracing::warn!("can't accept a connection on {}: {error}", self.place.at);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn open(&self) -> io::Result<Arc<TcpListener>> {
        let mut inner = self.inner.lock();
        let Place { at, interface } = &self.place;
        let socket = Arc::new(socket::listen(*at, interface.as_deref())?);
        inner.socket = Some(Arc::clone(&socket));
        inner.keys.clear();
        inner.trouble = None;
        let addresses: Vec<IpAddr> = inner.peers.keys().copied().collect();
        addresses.into_iter().for_each(|address| inner.sign(at.ip(), address));
        inner.guard(*at);
        Ok(socket)
    }

    fn complain(&self, error: &io::Error) {
        let at = self.place.at;
        let then = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; another program has it: ss -ltnp sport = :{} tells which", at.port())
            }
            io::ErrorKind::AddrNotAvailable => "; no interface has that address yet".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()
            }
            _ => String::new(),
        };
        let trouble = format!("can't listen on {at}: {error}{then}");
        let mut inner = self.inner.lock();
        if inner.trouble.as_ref() != Some(&trouble) {
            tracing::warn!("BGP {trouble}");
            inner.trouble = Some(trouble);
        }
    }

    fn let_in(&self, stream: TcpStream, from: SocketAddr, ground: &Arc<Ground>) {
        let slot = {
            let mut inner = self.inner.lock();
            let mut slots = inner.peers.get(&from.ip()).into_iter().flatten();
            // A connection that was closed meanwhile has no local address and matches no peer.
            let local = stream.local_addr().map(|local| local.ip()).ok();
            let is_of = |slot: &&Arc<Slot>| {
                local.is_some_and(|local| socket::is_of(&slot.wanted, from, local))
            };
            let slot = slots.find(is_of).cloned();
            let authenticated = |slot: &Arc<Slot>| {
                !inner.keyless.contains(&from.ip())
                    && authentication::after_accept(&stream, &slot.wanted.settings.transport)
                        .is_ok()
            };
            let slot = slot.filter(authenticated);
            match slot {
                Some(_) => inner.accepted += 1,
                None => inner.refused += 1,
            }
            slot
        };
        let Some(slot) = slot else {
            // Refuses with a reset, which is sent when the socket is dropped: no TIME_WAIT or
            // FIN_WAIT state remains.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        };
        match slot.accepted(&stream) {
            Ok(id) => drop(ground.spawn(serve(slot, id, stream))),
            // The connection was closed meanwhile.
            Err(error) => tracing::debug!("a connection of {from} came to nothing: {error}"),
        }
    }
}

impl Inner {
    /// Makes the kernel drop packets that came over more hops than any peer of this listener
    /// allows. A connection inherits this limit and gets that of its own peer once it is accepted;
    /// without it, packets between handshake and accept would not be checked.
    fn guard(&mut self, at: SocketAddr) {
        let Some(socket) = &self.socket else { return };
        let peers = self.peers.values().flatten();
        let least = peers.map(|slot| socket::least_hops(&slot.wanted.settings)).min();
        if let Err(error) = socket::set_least_hops(socket, at.is_ipv4(), least.unwrap_or(0)) {
            tracing::warn!("BGP can't limit the hops to {at} to {least:?}: {error}");
        }
    }

    /// Installs in the kernel the key for a peer address on a listener at address `at`, or removes
    /// it. Two router instances may have the same neighbor, each with its own local address: the
    /// key is that of the instance with the listener's address.
    fn sign(&mut self, at: IpAddr, address: IpAddr) {
        let Some(socket) = &self.socket else { return };
        let local = |slot: &&Arc<Slot>| slot.wanted.settings.transport.local;
        let is_of =
            |slot: &&Arc<Slot>| at.is_unspecified() || local(slot).is_none_or(|local| local == at);
        let mut peers = self.peers.get(&address).into_iter().flatten().filter(is_of);
        let has_key = |slot: &&Arc<Slot>| {
            let transport = &slot.wanted.settings.transport;
            transport.md5.is_some() || !transport.tcp_ao.is_empty()
        };
        let transport = peers.find(has_key).map(|slot| &slot.wanted.settings.transport);
        let installed = self.keys.entry(address).or_default();
        match installed.replace(socket, address, transport) {
            Ok(()) => drop(self.keyless.remove(&address)),
            Err(error) => {
                let trouble = format!(
                    "can't set the key of {address}, so its connections are refused: {error}"
                );
                tracing::warn!("BGP {trouble}");
                self.keyless.insert(address);
                self.trouble = Some(trouble);
            }
        }
        if transport.is_none() {
            self.keys.remove(&address);
        }
    }
}
