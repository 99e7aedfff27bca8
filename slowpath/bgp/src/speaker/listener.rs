//! Where peers connect to us: one listener an address, interface and port. The kernel brings a
//! connection to the narrowest of them, whichever its peer asked for; so each knows all peers of
//! its port. Nobody else is let in.

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

/// From one attempt to listen to the next, and to accept where the kernel had no room.
const RETRY: Duration = Duration::from_millis(500);

/// Where a listener is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) at: SocketAddr,
    pub(super) interface: Option<String>,
}

impl Place {
    /// Where a peer wants to be connected to; none where it may not.
    pub(super) fn of(wanted: &Wanted) -> Option<Place> {
        let at = socket::place(&wanted.settings, wanted.listen_port?);
        Some(Place { at, interface: wanted.interface.clone() })
    }

    /// Whether a connection that is meant for one may come to the other.
    pub(super) fn meets(&self, other: &Place) -> bool {
        self.at.port() == other.at.port() && self.at.is_ipv4() == other.at.is_ipv4()
    }
}

/// A listener.
pub(super) struct Listener {
    place: Place,
    inner: Mutex<Inner>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Inner {
    peers: BTreeMap<IpAddr, Vec<Arc<Slot>>>,
    /// None until the kernel lets us.
    socket: Option<Arc<TcpListener>>,
    /// The keys that the kernel has of each peer.
    keys: BTreeMap<IpAddr, Installed>,
    /// Peers whose keys could not be set: their connections are refused, not taken without a key.
    keyless: BTreeSet<IpAddr>,
    accepted: u64,
    refused: u64,
    trouble: Option<String>,
}

impl Listener {
    /// Listens as soon as it can.
    pub(super) fn start(place: Place, ground: &Arc<Ground>) -> Arc<Listener> {
        let listener = Arc::new(Listener { place, inner: Mutex::default(), task: OnceLock::new() });
        let task = ground.spawn(Arc::clone(&listener).run(Arc::clone(ground)));
        // It is new: nobody else has set it.
        let _ = listener.task.set(task);
        listener
    }

    /// From now on a peer may connect, if what it sends is signed with its key.
    pub(super) fn add(&self, slot: &Arc<Slot>) {
        let mut inner = self.inner.lock();
        let address = slot.key.peer.ip();
        inner.peers.entry(address).or_default().push(Arc::clone(slot));
        inner.sign(self.place.at.ip(), address);
        inner.guard(self.place.at);
    }

    /// A peer's connections are not taken any more; those that are stay.
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

    /// Listens no more.
    pub(super) fn end(&self) {
        self.inner.lock().socket = None;
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// What is known of it.
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
                // Of a connection that has gone meanwhile, or the kernel has no room.
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
            // One that has gone meanwhile has no address, and is nobody's.
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
            // A reset: the stranger's kernel has nothing to wait for. It goes with the socket.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        };
        match slot.accepted(&stream) {
            Ok(id) => drop(ground.spawn(serve(slot, id, stream))),
            // It was gone before we could look at it.
            Err(error) => tracing::debug!("a connection of {from} came to nothing: {error}"),
        }
    }
}

impl Inner {
    /// Has the kernel drop what no peer of this listener may send: from farther away than any of
    /// them. A connection inherits this limit, and has its own peer's once it is accepted; without
    /// it, what arrives between its handshake and then would not be looked at.
    fn guard(&mut self, at: SocketAddr) {
        let Some(socket) = &self.socket else { return };
        let peers = self.peers.values().flatten();
        let least = peers.map(|slot| socket::least_hops(&slot.wanted.settings)).min();
        if let Err(error) = socket::set_least_hops(socket, at.is_ipv4(), least.unwrap_or(0)) {
            tracing::warn!("BGP can't limit the hops to {at} to {least:?}: {error}");
        }
    }

    /// Gives the kernel of a listener `at` an address the key of who is at another, or takes it
    /// away. Two routers may have one neighbor, each from its own local address: the key is of the
    /// one whose address this is.
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
