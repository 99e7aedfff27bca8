//! A peer's state machine with its connections, from connect or accept to the last NOTIFICATION,
//! and its timers. Events are handled under the peer's lock, and the resulting actions are started
//! before the lock is released, so that a later query such as [`PeerTask::all_sent`] sees the
//! effect of the event.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::authentication;
use super::config::{PeerConfig, PeerKey};
use super::context::SpeakerContext;
use super::socket;
use super::status::{BfdStatus, PeerSocketStatus};
use crate::peer::settings::Transport;
use crate::peer::{Action, ConnectionId, Event, History, Peer, State};
use crate::session::Direction;

/// Maximum time for a closing connection to deliver its last messages.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Size of the read buffer in bytes.
const READ_BUFFER: usize = 64 * 1024;

/// A peer with its state machine, connections and timer.
pub(super) struct PeerTask {
    pub(super) key: PeerKey,
    /// Only the keys ever change.
    config: RwLock<Arc<PeerConfig>>,
    context: Arc<SpeakerContext>,
    inner: Mutex<Inner>,
    /// Wakes the timer task.
    wake: Notify,
}

struct Inner {
    machine: Peer,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The attempt to connect that is in progress: its number and its task.
    attempt: Option<(u64, AbortHandle)>,
    /// Number of the last attempt to connect.
    attempts: u64,
    /// When the timer task wakes up by itself.
    due: Option<Instant>,
    /// The peer was removed: the timer task ends once the last connection is closed.
    removed: bool,
    /// The last error in connecting or in replacing keys; cleared by a new connection.
    last_error: Option<String>,
    bfd: Option<BfdStatus>,
}

/// Output queue and keys of a connection.
struct Connection {
    unwritten: VecDeque<u8>,
    /// Set once the state machine has closed the connection: the socket is closed when all is
    /// written, at this time at the latest.
    close_by: Option<Instant>,
    /// Wakes the connection's task.
    wake: Arc<Notify>,
    /// The keys in [`PeerTask::config`] may differ from those on the socket.
    keys_due: bool,
    /// Nothing was received since the keys were replaced.
    silent_since_rekey: bool,
    /// Send and receive IDs of the TCP-AO keys installed on the socket.
    ao: Vec<(u8, u8)>,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// All queued octets were written.
    All,
    /// The kernel's send buffer is full.
    Part,
}

impl PeerTask {
    /// Creates a peer and starts it.
    pub(super) fn start(
        key: PeerKey,
        config: PeerConfig,
        context: &Arc<SpeakerContext>,
    ) -> Arc<PeerTask> {
        let machine = Peer::new(config.settings.clone(), Instant::now());
        let inner = Inner {
            machine,
            connections: BTreeMap::new(),
            attempt: None,
            attempts: 0,
            due: None,
            removed: false,
            last_error: None,
            bfd: None,
        };
        let peer_task = Arc::new(PeerTask {
            key,
            config: RwLock::new(Arc::new(config)),
            context: Arc::clone(context),
            inner: Mutex::new(inner),
            wake: Notify::new(),
        });
        peer_task.handle(Event::Start);
        context.spawn(Arc::clone(&peer_task).run_timers());
        peer_task
    }

    /// Returns the configuration.
    pub(super) fn config(&self) -> Arc<PeerConfig> {
        Arc::clone(&self.config.read())
    }

    /// Replaces the keys by those of `transport`. The tasks of open connections install them. An
    /// attempt to connect starts again, because its SYNs have a previous key.
    pub(super) fn set_keys(self: &Arc<Self>, transport: &Transport) {
        let PeerKey { local_asn, peer } = self.key;
        tracing::info!(event = "bgp_keys_replaced", %peer, local_asn, "BGP keys replaced");
        let mut inner = self.inner.lock();
        {
            let mut config = self.config.write();
            let own = &mut Arc::make_mut(&mut config).settings.transport;
            own.md5.clone_from(&transport.md5);
            own.tcp_ao.clone_from(&transport.tcp_ao);
        }
        // A connection that the state machine has closed keeps its keys for its last messages.
        let open = |connection: &&mut Connection| connection.close_by.is_none();
        for connection in inner.connections.values_mut().filter(open) {
            (connection.keys_due, connection.silent_since_rekey) = (true, true);
            connection.wake.notify_one();
        }
        if inner.attempt.is_some() {
            abort_attempt(&mut inner);
            self.connect(&mut inner);
        }
    }

    /// Installs keys that were changed before the state machine closed the connection, on its
    /// socket. Returns false if a key could not be installed.
    fn install_keys(&self, id: ConnectionId, stream: &TcpStream) -> bool {
        let mut inner = self.inner.lock();
        let Some(connection) = inner.connections.get_mut(&id) else { return true };
        if !std::mem::take(&mut connection.keys_due) {
            return true;
        }
        let (config, peer) = (self.config(), self.key.peer);
        let transport = &config.settings.transport;
        let installed = authentication::rekey(stream, peer.ip(), transport, &mut connection.ao);
        if let Err(error) = &installed {
            let error = format!("cannot replace the keys of the session with {peer}: {error}");
            self.record_error(&mut inner, error);
        }
        installed.is_ok()
    }

    /// Passes an event to the state machine and performs the resulting actions.
    pub(super) fn handle(self: &Arc<Self>, event: Event<'_>) {
        self.step(&mut self.inner.lock(), event);
    }

    /// Stops the peer permanently; its connections end once their last messages are written.
    pub(super) fn remove(self: &Arc<Self>, stop: crate::peer::Stop) {
        let mut inner = self.inner.lock();
        self.step(&mut inner, Event::Stop(stop));
        inner.removed = true;
        self.wake.notify_one();
    }

    fn step(self: &Arc<Self>, inner: &mut Inner, event: Event<'_>) {
        let now = Instant::now();
        let before = inner.machine.state();
        for action in inner.machine.step(now, event) {
            match action {
                Action::Connect => self.connect(inner),
                Action::Abandon => abort_attempt(inner),
                Action::Send(id, octets) => {
                    if let Some(connection) = inner.connections.get_mut(&id) {
                        connection.unwritten.extend(octets);
                        connection.wake.notify_one();
                    }
                }
                Action::Close(id) => {
                    if let Some(connection) = inner.connections.get_mut(&id) {
                        connection.close_by = Some(now + CLOSE_TIMEOUT);
                        connection.wake.notify_one();
                    }
                }
                Action::Changed => {
                    self.log_transition(before, &inner.machine);
                    self.context.notify_changed();
                }
            }
        }
        let sooner = |next: Instant| inner.due.is_none_or(|due| next < due);
        if inner.machine.next_deadline().is_some_and(sooner) {
            self.wake.notify_one();
        }
    }

    fn log_transition(&self, before: State, machine: &Peer) {
        let (PeerKey { local_asn, peer }, after) = (self.key, machine.state());
        match (before, after) {
            (before, after) if before == after => {}
            (_, State::Established) => {
                tracing::info!(
                    event = "bgp_session_established",
                    %peer,
                    local_asn,
                    "BGP session established"
                );
            }
            (State::Established, _) => {
                let reason = last_end_reason(machine.history());
                tracing::warn!(
                    event = "bgp_session_closed",
                    %peer,
                    local_asn,
                    %reason,
                    "BGP session closed"
                );
            }
            _ => {
                tracing::debug!(
                    event = "bgp_state_changed",
                    %peer,
                    local_asn,
                    state = %after,
                    "BGP state changed"
                )
            }
        }
    }

    fn connect(self: &Arc<Self>, inner: &mut Inner) {
        if inner.attempt.is_some() {
            let config = self.config();
            let transport = &config.settings.transport;
            let hint = match (&transport.md5, &transport.tcp_ao[..]) {
                (Some(_), _) => "; check that it has the same TCP-MD5 key",
                (None, [_, ..]) => "; check that it has the same TCP-AO keys, IDs and algorithms",
                (None, []) => "",
            };
            let error = format!("cannot connect to {}: no answer{hint}", self.key.peer);
            self.record_error(inner, error);
        }
        abort_attempt(inner);
        inner.attempts += 1;
        let number = inner.attempts;
        let task = self.context.spawn(attempt(Arc::clone(self), number));
        inner.attempt = Some((number, task));
    }

    /// Handles a failed attempt to connect.
    pub(super) fn failed(self: &Arc<Self>, number: u64, error: &io::Error) {
        let mut inner = self.inner.lock();
        if inner.attempt.as_ref().is_some_and(|(current, _)| *current == number) {
            inner.attempt = None;
            self.record_error(&mut inner, format!("cannot connect to {}: {error}", self.key.peer));
            self.step(&mut inner, Event::ConnectFailed);
        }
    }

    /// Records an error, and logs it if it differs from the last one.
    fn record_error(&self, inner: &mut Inner, last_error: String) {
        if inner.last_error.as_ref() != Some(&last_error) {
            let PeerKey { local_asn, peer } = self.key;
            tracing::warn!(
                event = "bgp_connection_failed",
                %peer,
                local_asn,
                error = %last_error,
                "BGP connection failed"
            );
            inner.last_error = Some(last_error);
        }
    }

    /// Handles a successful attempt to connect and returns the ID of the connection; `None` if the
    /// attempt was abandoned meanwhile.
    pub(super) fn connected(
        self: &Arc<Self>,
        number: u64,
        stream: &TcpStream,
    ) -> io::Result<Option<ConnectionId>> {
        let mut inner = self.inner.lock();
        if inner.attempt.as_ref().is_none_or(|(current, _)| *current != number) {
            return Ok(None);
        }
        inner.attempt = None;
        self.add_connection(&mut inner, Direction::Outbound, stream).map(Some)
    }

    /// Handles a connection that the peer opened.
    pub(super) fn accepted(self: &Arc<Self>, stream: &TcpStream) -> io::Result<ConnectionId> {
        socket::prepare(stream, &self.config().settings)?;
        let mut inner = self.inner.lock();
        // Some routers end the session when their key changes. Their last segments have the
        // previous key, so this side has dropped them and still has the old connection. The new
        // connection shows that the peer has given up the old one.
        let open = |connection: &Connection| connection.close_by.is_none();
        let dead = inner.connections.iter().filter(|(_, c)| c.silent_since_rekey && open(c));
        for id in dead.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.step(&mut inner, Event::Closed(id));
        }
        self.add_connection(&mut inner, Direction::Inbound, stream)
    }

    fn add_connection(
        self: &Arc<Self>,
        inner: &mut Inner,
        direction: Direction,
        stream: &TcpStream,
    ) -> io::Result<ConnectionId> {
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        let id = self.context.next_connection_id();
        let config = self.config();
        let transport = &config.settings.transport;
        let connection = Connection {
            unwritten: VecDeque::new(),
            close_by: None,
            wake: Arc::new(Notify::new()),
            // An accepted socket has the key that its listener had at the handshake.
            keys_due: transport.md5.is_some(),
            silent_since_rekey: false,
            ao: transport.tcp_ao.iter().map(|key| (key.send_id, key.receive_id)).collect(),
        };
        inner.connections.insert(id, connection);
        inner.last_error = None;
        let event = Event::Connected { connection: id, direction, local, remote };
        self.step(inner, event);
        Ok(id)
    }

    /// Passes an event of a connection, unless the state machine has closed it.
    pub(super) fn handle_for(self: &Arc<Self>, id: ConnectionId, event: Event<'_>) {
        let mut inner = self.inner.lock();
        let connection = inner.connections.get_mut(&id).filter(|c| c.close_by.is_none());
        if let Some(connection) = connection {
            connection.silent_since_rekey &= !matches!(event, Event::Bytes(..));
            self.step(&mut inner, event);
        }
    }

    /// Returns what a connection waits for: whether octets are to be written, the deadline if it is
    /// closing, and what signals a change of either.
    pub(super) fn due(&self, id: ConnectionId) -> Option<(bool, Option<Instant>, Arc<Notify>)> {
        let inner = self.inner.lock();
        let connection = inner.connections.get(&id)?;
        Some((!connection.unwritten.is_empty(), connection.close_by, Arc::clone(&connection.wake)))
    }

    /// Writes as much as `write` accepts, and notifies the state machine if nothing is left and the
    /// connection is not closing.
    pub(super) fn write(
        self: &Arc<Self>,
        id: ConnectionId,
        write: impl Fn(&[u8]) -> io::Result<usize>,
    ) -> io::Result<WriteOutcome> {
        let mut inner = self.inner.lock();
        let Some(connection) = inner.connections.get_mut(&id) else {
            return Ok(WriteOutcome::All);
        };
        while !connection.unwritten.is_empty() {
            match write(connection.unwritten.as_slices().0) {
                Ok(taken) => drop(connection.unwritten.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(WriteOutcome::Part);
                }
                Err(error) => return Err(error),
            }
        }
        if connection.close_by.is_none() {
            self.step(&mut inner, Event::Written(id));
        }
        Ok(WriteOutcome::All)
    }

    /// Removes a connection whose socket is closed.
    pub(super) fn remove_connection(&self, id: ConnectionId) {
        self.inner.lock().connections.remove(&id);
        self.wake.notify_one();
    }

    /// Drives the timers of the state machine until the peer is removed and its last connection is
    /// closed.
    async fn run_timers(self: Arc<Self>) {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                if inner.removed && inner.connections.is_empty() {
                    return;
                }
                inner.due = inner.machine.next_deadline();
                inner.due
            };
            let reached = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = reached => self.handle(Event::Tick),
            }
        }
    }

    /// Handles a change of the BFD session.
    pub(super) fn handle_bfd(self: &Arc<Self>, status: BfdStatus, event: Option<Event<'_>>) {
        let mut inner = self.inner.lock();
        inner.bfd = Some(status);
        match event {
            Some(event) => self.step(&mut inner, event),
            None => self.context.notify_changed(),
        }
    }

    /// Returns whether the peer was sent all desired routes.
    pub(super) fn all_sent(&self) -> bool {
        self.inner.lock().machine.all_sent()
    }

    /// Gives read access to the state machine.
    pub(super) fn with_machine<T>(&self, read: impl FnOnce(&Peer) -> T) -> T {
        read(&self.inner.lock().machine)
    }

    /// Returns the status of the peer, including its sockets.
    pub(super) fn status(&self, now: Instant) -> PeerSocketStatus {
        let inner = self.inner.lock();
        PeerSocketStatus {
            peer: inner.machine.status(now),
            unwritten: inner
                .connections
                .values()
                .map(|connection| connection.unwritten.len())
                .sum(),
            last_error: inner.last_error.clone(),
            bfd: inner.bfd.clone(),
        }
    }
}

fn abort_attempt(inner: &mut Inner) {
    if let Some((_, task)) = inner.attempt.take() {
        task.abort();
    }
}

/// Returns the reason of the most recent end of a connection.
fn last_end_reason(history: &History) -> String {
    let sent = history.sent.as_ref().map(|(at, n)| (*at, format!("sent NOTIFICATION: {n}")));
    let received =
        history.received.as_ref().map(|(at, n)| (*at, format!("received NOTIFICATION: {n}")));
    let lost = history.lost.as_ref().map(|(at, why)| (*at, (*why).to_owned()));
    let last = [sent, received, lost].into_iter().flatten().max_by_key(|(at, _)| *at);
    last.map_or_else(|| "unknown".to_owned(), |(_, why)| why)
}

/// Performs attempt `number` to connect, and serves the connection until its end.
async fn attempt(peer_task: Arc<PeerTask>, number: u64) {
    let stream = match socket::connect(&peer_task.config()).await {
        Ok(stream) => stream,
        Err(error) => return peer_task.failed(number, &error),
    };
    match peer_task.connected(number, &stream) {
        Ok(Some(id)) => serve(peer_task, id, stream).await,
        // The attempt was abandoned meanwhile.
        Ok(None) => {}
        Err(error) => peer_task.failed(number, &error),
    }
}

/// Transfers octets in both directions until the connection ends, and removes the connection.
pub(super) async fn serve(peer_task: Arc<PeerTask>, id: ConnectionId, mut stream: TcpStream) {
    let mut buffer = vec![0; READ_BUFFER];
    let closed = transfer(&peer_task, id, &stream, &mut buffer).await;
    if let Ok(Some(close_by)) = closed {
        // Closing a socket with unread octets sends a reset, which would discard what the peer has
        // not read yet.
        let last = async {
            stream.shutdown().await?;
            while stream.read(&mut buffer).await? > 0 {}
            io::Result::Ok(())
        };
        // Past the deadline, messages that the peer has not received are lost.
        let _ = tokio::time::timeout_at(close_by.into(), last).await;
    }
    drop(stream);
    peer_task.remove_connection(id);
}

/// Transfers octets until the connection ends. Returns the deadline for closing the socket if the
/// state machine has closed the connection and all is written; `None` if the deadline has passed or
/// the connection was lost.
async fn transfer(
    peer_task: &Arc<PeerTask>,
    id: ConnectionId,
    stream: &TcpStream,
    buffer: &mut [u8],
) -> io::Result<Option<Instant>> {
    while let Some((unwritten, close_by, wake)) = peer_task.due(id) {
        if !peer_task.install_keys(id, stream) {
            peer_task.handle_for(id, Event::Closed(id));
            return Ok(None);
        }
        let interest = match (unwritten, close_by) {
            (false, Some(close_by)) => return Ok(Some(close_by)),
            (true, Some(_)) => Interest::WRITABLE,
            (true, None) => Interest::READABLE | Interest::WRITABLE,
            (false, None) => Interest::READABLE,
        };
        let expired = async {
            match close_by {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            ready = stream.ready(interest) => ready?,
            () = wake.notified() => continue,
            () = expired => return Ok(None),
        };
        if ready.is_writable() && peer_task.write(id, |octets| stream.try_write(octets)).is_err() {
            peer_task.handle_for(id, Event::Closed(id));
            return Ok(None);
        }
        if ready.is_readable() && close_by.is_none() {
            match stream.try_read(buffer) {
                Ok(0) => peer_task.handle_for(id, Event::Closed(id)),
                Ok(length) => peer_task.handle_for(id, Event::Bytes(id, &buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => peer_task.handle_for(id, Event::Closed(id)),
            }
        }
    }
    Ok(None)
}
