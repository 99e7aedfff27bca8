//! Listeners for peers' connections: one per address, interface and port. The kernel delivers a
//! connection to the most specific listener, which may be another than the one opened for the peer.
//! Therefore each listener has all peers of its port and address family. Connections that match
//! none of them are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::authentication::{self, InstalledKeys};
use super::config::PeerConfig;
use super::context::SpeakerContext;
use super::peer_task::{PeerTask, serve};
use super::socket;
use super::status::ListenerStatus;

/// Interval between attempts to open the socket, and pause after a failed accept.
const RETRY: Duration = Duration::from_millis(500);

/// Address and interface of a listener.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ListenAddress {
    pub(super) at: SocketAddr,
    pub(super) interface: Option<String>,
}

impl ListenAddress {
    /// Returns the address and interface at which a peer may connect; `None` if its connections are
    /// not accepted.
    pub(super) fn of(config: &PeerConfig) -> Option<ListenAddress> {
        let at = socket::listen_address(&config.settings, config.listen_port?);
        Some(ListenAddress { at, interface: config.interface.clone() })
    }

    /// Returns whether the kernel may deliver a connection meant for one to the other.
    pub(super) fn overlaps(&self, other: &ListenAddress) -> bool {
        self.at.port() == other.at.port() && self.at.is_ipv4() == other.at.is_ipv4()
    }
}

/// A listening socket with its peers and their keys.
pub(super) struct Listener {
    listen_address: ListenAddress,
    inner: Mutex<Inner>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Inner {
    peers: BTreeMap<IpAddr, Vec<Arc<PeerTask>>>,
    /// `None` until the socket is open.
    socket: Option<Arc<TcpListener>>,
    /// Keys installed in the kernel, by peer.
    keys: BTreeMap<IpAddr, InstalledKeys>,
    /// Peers whose keys could not be installed: their connections are refused rather than accepted
    /// without authentication.
    keyless: BTreeSet<IpAddr>,
    accepted: u64,
    refused: u64,
    last_error: Option<String>,
}

impl Listener {
    /// Creates a listener, which retries until its socket is open.
    pub(super) fn start(
        listen_address: ListenAddress,
        context: &Arc<SpeakerContext>,
    ) -> Arc<Listener> {
        let listener =
            Arc::new(Listener { listen_address, inner: Mutex::default(), task: OnceLock::new() });
        let task = context.spawn(Arc::clone(&listener).run(Arc::clone(context)));
        // Cannot fail: the listener is new, so the cell is empty.
        let _ = listener.task.set(task);
        listener
    }

    /// Accepts connections of a peer from now on; if it has keys, only authenticated ones.
    pub(super) fn add(&self, peer_task: &Arc<PeerTask>) {
        let mut inner = self.inner.lock();
        let address = peer_task.key.peer.ip();
        inner.peers.entry(address).or_default().push(Arc::clone(peer_task));
        inner.update_socket(self.listen_address.at, address);
    }

    /// Stops accepting connections of a peer; established ones stay.
    pub(super) fn remove(&self, peer_task: &Arc<PeerTask>) {
        let mut inner = self.inner.lock();
        let address = peer_task.key.peer.ip();
        let Some(peers) = inner.peers.get_mut(&address) else { return };
        peers.retain(|peer| !Arc::ptr_eq(peer, peer_task));
        if peers.is_empty() {
            inner.peers.remove(&address);
        }
        inner.update_socket(self.listen_address.at, address);
    }

    /// Applies the changed keys of a peer, for connections that are opened from now on.
    pub(super) fn set_keys(&self, peer_task: &Arc<PeerTask>) {
        let mut inner = self.inner.lock();
        let address = peer_task.key.peer.ip();
        if inner.peers.contains_key(&address) {
            inner.update_socket(self.listen_address.at, address);
        }
    }

    /// Closes the socket.
    pub(super) fn end(&self) {
        self.inner.lock().socket = None;
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Returns the status of the listener.
    pub(super) fn status(&self) -> ListenerStatus {
        let inner = self.inner.lock();
        ListenerStatus {
            address: self.listen_address.at,
            interface: self.listen_address.interface.clone(),
            listens: inner.socket.is_some(),
            accepted: inner.accepted,
            refused: inner.refused,
            last_error: inner.last_error.clone(),
        }
    }

    async fn run(self: Arc<Self>, context: Arc<SpeakerContext>) {
        let socket = loop {
            match self.open() {
                Ok(socket) => break socket,
                Err(error) => self.record_error(&error),
            }
            tokio::time::sleep(RETRY).await;
        };
        loop {
            match socket.accept().await {
                Ok((stream, from)) => self.accept(stream, from, &context),
                // The connection was closed meanwhile, or the kernel is out of resources.
                Err(error) => {
                    let address = self.listen_address.at;
                    tracing::warn!(
                        event = "bgp_accept_failed",
                        %address,
                        %error,
                        "BGP listener cannot accept a connection"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn open(&self) -> io::Result<Arc<TcpListener>> {
        let mut inner = self.inner.lock();
        let ListenAddress { at, interface } = &self.listen_address;
        let bound = socket::bind(*at, interface.as_deref())?;
        inner.keys.clear();
        inner.last_error = None;
        // Before the socket listens: a handshake that completes without a key would be accepted.
        let addresses: Vec<IpAddr> = inner.peers.keys().copied().collect();
        addresses.into_iter().for_each(|address| inner.install_key(&bound, at.ip(), address));
        inner.limit_ttl(&bound, *at);
        let socket = Arc::new(socket::listen(bound)?);
        inner.socket = Some(Arc::clone(&socket));
        Ok(socket)
    }

    fn record_error(&self, error: &io::Error) {
        let at = self.listen_address.at;
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; another program uses it: find it by ss -ltnp sport = :{}", at.port())
            }
            io::ErrorKind::AddrNotAvailable => "; no interface has that address yet".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()
            }
            _ => String::new(),
        };
        let last_error = format!("cannot listen on {at}: {error}{hint}");
        let mut inner = self.inner.lock();
        if inner.last_error.as_ref() != Some(&last_error) {
            tracing::warn!(
                event = "bgp_listener_closed",
                error = %last_error,
                "BGP listener is not open"
            );
            inner.last_error = Some(last_error);
        }
    }

    fn accept(&self, stream: TcpStream, from: SocketAddr, context: &Arc<SpeakerContext>) {
        let peer_task = {
            let mut inner = self.inner.lock();
            let mut peer_tasks = inner.peers.get(&from.ip()).into_iter().flatten();
            // A connection that was closed meanwhile has no local address and matches no peer.
            let local = stream.local_addr().map(|local| local.ip()).ok();
            let applies = |peer_task: &&Arc<PeerTask>| {
                local.is_some_and(|local| socket::allows(&peer_task.config(), from, local))
            };
            let peer_task = peer_tasks.find(applies).cloned();
            let authenticated = |peer_task: &Arc<PeerTask>| {
                !inner.keyless.contains(&from.ip())
                    && authentication::after_accept(&stream, &peer_task.config().settings.transport)
                        .is_ok()
            };
            let peer_task = peer_task.filter(authenticated);
            match peer_task {
                Some(_) => inner.accepted += 1,
                None => inner.refused += 1,
            }
            peer_task
        };
        let Some(peer_task) = peer_task else {
            // Refuses with a reset, which is sent when the socket is dropped: no TIME_WAIT or
            // FIN_WAIT state remains.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        };
        match peer_task.accepted(&stream) {
            Ok(id) => drop(context.spawn(serve(peer_task, id, stream))),
            // The connection was closed meanwhile.
            Err(error) => {
                tracing::debug!(
                    event = "bgp_connection_refused",
                    %from,
                    %error,
                    "accepted BGP connection was closed"
                )
            }
        }
    }
}

impl Inner {
    /// Applies a changed set of peers of an address to the socket, if it is open.
    fn update_socket(&mut self, at: SocketAddr, address: IpAddr) {
        if let Some(socket) = self.socket.clone() {
            self.install_key(&socket, at.ip(), address);
            self.limit_ttl(&socket, at);
        }
    }

    /// Makes the kernel drop packets whose TTL is below the minimum of every peer of this listener
    /// (GTSM). A connection inherits this limit and gets the limit of its own peer once it is
    /// accepted. Without the listener's limit, earlier packets would not be checked.
    fn limit_ttl(&self, socket: &impl AsFd, at: SocketAddr) {
        let peers = self.peers.values().flatten();
        let minimum =
            peers.map(|peer_task| socket::minimum_ttl(&peer_task.config().settings)).min();
        // 0: no limit.
        let minimum = minimum.unwrap_or(0);
        if let Err(error) = socket::set_minimum_ttl(socket, at.is_ipv4(), minimum) {
            tracing::warn!(
                event = "bgp_ttl_unset",
                address = %at,
                minimum,
                %error,
                "minimum TTL of a BGP listener was not set"
            );
        }
    }

    /// Installs the keys of the peer at `address` on a listener at `at`, or removes the installed
    /// ones if none are configured. Two virtual routers may have the same neighbor, each with its
    /// own local address; the keys are then those of the virtual router with the listener's
    /// address.
    fn install_key(&mut self, socket: &impl AsFd, at: IpAddr, address: IpAddr) {
        let peers = self.peers.get(&address).into_iter().flatten();
        let mut transports = peers.map(|peer_task| peer_task.config().settings.transport.clone());
        let transport = transports.find(|transport| {
            let applies = at.is_unspecified() || transport.local.is_none_or(|local| local == at);
            applies && (transport.md5.is_some() || !transport.tcp_ao.is_empty())
        });
        let installed = self.keys.entry(address).or_default();
        match installed.replace(socket, address, transport.as_ref()) {
            Ok(()) => drop(self.keyless.remove(&address)),
            Err(error) => {
                tracing::warn!(
                    event = "bgp_key_install_failed",
                    peer = %address,
                    %error,
                    "BGP key not installed, peer is refused"
                );
                let last_error = format!(
                    "cannot install the key of {address}: {error}; its connections are refused"
                );
                self.keyless.insert(address);
                self.last_error = Some(last_error);
            }
        }
        if transport.is_none() {
            self.keys.remove(&address);
        }
    }
}
