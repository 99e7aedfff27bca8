//! A peer's state machine with its connections, from connect or accept to the last NOTIFICATION,
//! and its timers. Events are handled under the peer's lock, and what they cause is started before
//! the lock is released, so that a query right after an order ([`Slot::is_told`]) sees its effect.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::ground::Ground;
use super::socket;
use super::told::{BfdTold, Told};
use super::wanted::{PeerKey, Wanted};
use crate::peer::{ConnectionId, History, Input, Output, Peer, State};
use crate::session::Direction;

/// Maximum time for a closing connection to deliver its last messages.
pub(super) const FAREWELL: Duration = Duration::from_secs(3);

/// Size of the read buffer in bytes.
const READ: usize = 64 * 1024;

/// A peer with its state machine, connections and timer.
pub(super) struct Slot {
    pub(super) key: PeerKey,
    pub(super) wanted: Wanted,
    ground: Arc<Ground>,
    inner: Mutex<Inner>,
    /// Wakes the timer task.
    wake: Notify,
}

struct Inner {
    machine: Peer,
    lines: BTreeMap<ConnectionId, Line>,
    /// The attempt to connect that is in progress: its number and its task.
    attempt: Option<(u64, AbortHandle)>,
    attempts: u64,
    /// When the timer task wakes up by itself.
    due: Option<Instant>,
    removed: bool,
    trouble: Option<String>,
    bfd: Option<BfdTold>,
}

/// Output queue of a connection.
struct Line {
    unwritten: VecDeque<u8>,
    /// Set once the state machine closed the connection: it ends when all is written, at this time
    /// at the latest.
    close_by: Option<Instant>,
    wake: Arc<Notify>,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All queued octets were written.
    All,
    /// The kernel's send buffer is full.
    Part,
}

impl Slot {
    /// Creates a peer and starts it.
    pub(super) fn start(key: PeerKey, wanted: Wanted, ground: &Arc<Ground>) -> Arc<Slot> {
        let machine = Peer::new(wanted.settings.clone(), Instant::now());
        let inner = Inner {
            machine,
            lines: BTreeMap::new(),
            attempt: None,
            attempts: 0,
            due: None,
            removed: false,
            trouble: None,
            bfd: None,
        };
        let slot = Arc::new(Slot {
            key,
            wanted,
            ground: Arc::clone(ground),
            inner: Mutex::new(inner),
            wake: Notify::new(),
        });
        slot.tell(Input::Start);
        ground.spawn(Arc::clone(&slot).keep_time());
        slot
    }

    /// Passes an input to the state machine and performs the resulting actions.
    pub(super) fn tell(self: &Arc<Self>, input: Input<'_>) {
        self.step(&mut self.inner.lock(), input);
    }

    /// Stops the peer for good; its connections end once their last messages are written.
    pub(super) fn remove(self: &Arc<Self>, stop: crate::peer::Stop) {
        let mut inner = self.inner.lock();
        self.step(&mut inner, Input::Stop(stop));
        inner.removed = true;
        self.wake.notify_one();
    }

    fn step(self: &Arc<Self>, inner: &mut Inner, input: Input<'_>) {
        let now = Instant::now();
        let before = inner.machine.state();
        for output in inner.machine.step(now, input) {
            match output {
                Output::Connect => self.connect(inner),
                Output::Abandon => give_up(inner),
                Output::Send(id, octets) => {
                    if let Some(line) = inner.lines.get_mut(&id) {
                        line.unwritten.extend(octets);
                        line.wake.notify_one();
                    }
                }
                Output::Close(id) => {
                    if let Some(line) = inner.lines.get_mut(&id) {
                        line.close_by = Some(now + FAREWELL);
                        line.wake.notify_one();
                    }
                }
                Output::Changed => {
                    self.say(before, &inner.machine);
                    self.ground.changed();
                }
            }
        }
        let sooner = |next: Instant| inner.due.is_none_or(|due| next < due);
        if inner.machine.next_deadline().is_some_and(sooner) {
            self.wake.notify_one();
        }
    }

    fn say(&self, before: State, machine: &Peer) {
        let (key, after) = (&self.key, machine.state());
        match (before, after) {
            (before, after) if before == after => {}
            (_, State::Established) => tracing::info!("BGP with {key} is established"),
            (State::Established, _) => {
                tracing::warn!("BGP with {key} is down: {}", why(machine.history()));
            }
            _ => tracing::debug!("BGP with {key}: {after}"),
        }
    }

    fn connect(self: &Arc<Self>, inner: &mut Inner) {
        if inner.attempt.is_some() {
            let transport = &self.wanted.settings.transport;
            let key = match (&transport.md5, &transport.tcp_ao[..]) {
                (Some(_), _) => "; is its TCP-MD5 key the same?",
                (None, [_, ..]) => "; are its TCP-AO keys, ids and algorithms the same?",
                (None, []) => "",
            };
            self.complain(inner, format!("no answer from {}{key}", self.key.peer));
        }
        give_up(inner);
        inner.attempts += 1;
        let number = inner.attempts;
        let task = self.ground.spawn(attempt(Arc::clone(self), number));
        inner.attempt = Some((number, task));
    }

    /// Handles a failed attempt to connect.
    pub(super) fn failed(self: &Arc<Self>, number: u64, error: &io::Error) {
        let mut inner = self.inner.lock();
        if inner.attempt.as_ref().is_some_and(|(current, _)| *current == number) {
            inner.attempt = None;
            self.complain(&mut inner, format!("can't connect to {}: {error}", self.key.peer));
            self.step(&mut inner, Input::ConnectFailed);
        }
    }

    /// Records an error, and logs it unless it is the one recorded last.
    fn complain(&self, inner: &mut Inner, trouble: String) {
        if inner.trouble.as_ref() != Some(&trouble) {
            tracing::warn!("BGP with {}: {trouble}", self.key);
            inner.trouble = Some(trouble);
        }
    }

    /// Handles a successful attempt to connect; `None` if it was abandoned meanwhile.
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
        self.adopt(&mut inner, Direction::Outbound, stream).map(Some)
    }

    /// Handles a connection that the peer opened.
    pub(super) fn accepted(self: &Arc<Self>, stream: &TcpStream) -> io::Result<ConnectionId> {
        socket::prepare(stream, &self.wanted.settings)?;
        self.adopt(&mut self.inner.lock(), Direction::Inbound, stream)
    }

    fn adopt(
        self: &Arc<Self>,
        inner: &mut Inner,
        direction: Direction,
        stream: &TcpStream,
    ) -> io::Result<ConnectionId> {
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        let id = self.ground.name();
        let line =
            Line { unwritten: VecDeque::new(), close_by: None, wake: Arc::new(Notify::new()) };
        inner.lines.insert(id, line);
        inner.trouble = None;
        let connection = Input::Connected { connection: id, direction, local, remote };
        self.step(inner, connection);
        Ok(id)
    }

    /// Passes an input about a connection, unless the state machine has closed it.
    pub(super) fn tell_of(self: &Arc<Self>, id: ConnectionId, input: Input<'_>) {
        let mut inner = self.inner.lock();
        if inner.lines.get(&id).is_some_and(|line| line.close_by.is_none()) {
            self.step(&mut inner, input);
        }
    }

    /// Returns what a connection waits for: whether octets are to be written, the deadline if it is
    /// closing, and what signals a change of either.
    pub(super) fn due(&self, id: ConnectionId) -> Option<(bool, Option<Instant>, Arc<Notify>)> {
        let inner = self.inner.lock();
        let line = inner.lines.get(&id)?;
        Some((!line.unwritten.is_empty(), line.close_by, Arc::clone(&line.wake)))
    }

    /// Writes as much as `write` accepts, and notifies the state machine if nothing is left.
    pub(super) fn write(
        self: &Arc<Self>,
        id: ConnectionId,
        write: impl Fn(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Written> {
        let mut inner = self.inner.lock();
        let Some(line) = inner.lines.get_mut(&id) else { return Ok(Written::All) };
        while !line.unwritten.is_empty() {
            match write(line.unwritten.as_slices().0) {
                Ok(taken) => drop(line.unwritten.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Written::Part);
                }
                Err(error) => return Err(error),
            }
        }
        if line.close_by.is_none() {
            self.step(&mut inner, Input::Written(id));
        }
        Ok(Written::All)
    }

    /// Forgets a connection whose socket is closed.
    pub(super) fn forget(&self, id: ConnectionId) {
        self.inner.lock().lines.remove(&id);
        self.wake.notify_one();
    }

    /// Drives the timers of the state machine until the peer is removed and its last connection is
    /// closed.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                if inner.removed && inner.lines.is_empty() {
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
                () = reached => self.tell(Input::Tick),
            }
        }
    }

    /// Handles a change of the BFD session.
    pub(super) fn hear_bfd(self: &Arc<Self>, told: BfdTold, input: Option<Input<'_>>) {
        let mut inner = self.inner.lock();
        inner.bfd = Some(told);
        match input {
            Some(input) => self.step(&mut inner, input),
            None => self.ground.changed(),
        }
    }

    /// Returns whether the peer was sent all desired routes.
    pub(super) fn is_told(&self) -> bool {
        self.inner.lock().machine.is_told()
    }

    /// Gives read access to the state machine.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Peer) -> T) -> T {
        look(&self.inner.lock().machine)
    }

    /// Returns the status of the peer, including its sockets.
    pub(super) fn told(&self, now: Instant) -> Told {
        let inner = self.inner.lock();
        Told {
            peer: inner.machine.told(now),
            unwritten: inner.lines.values().map(|line| line.unwritten.len()).sum(),
            trouble: inner.trouble.clone(),
            bfd: inner.bfd.clone(),
        }
    }
}

fn give_up(inner: &mut Inner) {
    if let Some((_, task)) = inner.attempt.take() {
        task.abort();
    }
}

/// Returns the reason of the most recent end of a connection.
fn why(history: &History) -> String {
    let sent = history.sent.as_ref().map(|(at, n)| (*at, format!("we said: {n}")));
    let received = history.received.as_ref().map(|(at, n)| (*at, format!("the peer said: {n}")));
    let lost = history.lost.as_ref().map(|(at, why)| (*at, (*why).to_owned()));
    let last = [sent, received, lost].into_iter().flatten().max_by_key(|(at, _)| *at);
    last.map_or_else(|| "nobody said why".to_owned(), |(_, why)| why)
}

/// Connects, and serves the connection.
async fn attempt(slot: Arc<Slot>, number: u64) {
    let stream = match socket::connect(&slot.wanted).await {
        Ok(stream) => stream,
        Err(error) => return slot.failed(number, &error),
    };
    match slot.connected(number, &stream) {
        Ok(Some(id)) => serve(slot, id, stream).await,
        // Abandoned meanwhile.
        Ok(None) => {}
        Err(error) => slot.failed(number, &error),
    }
}

/// Transfers octets in both directions until the connection ends.
pub(super) async fn serve(slot: Arc<Slot>, id: ConnectionId, mut stream: TcpStream) {
    let mut room = vec![0; READ];
    let closed = carry(&slot, id, &stream, &mut room).await;
    if let Ok(Some(close_by)) = closed {
        // Closing a socket with unread octets sends a reset, which would discard what the peer has
        // not read yet.
        let last = async {
            stream.shutdown().await?;
            while stream.read(&mut room).await? > 0 {}
            io::Result::Ok(())
        };
        // Past the deadline the last messages are given up.
        let _ = tokio::time::timeout_at(close_by.into(), last).await;
    }
    drop(stream);
    slot.forget(id);
}

/// Transfers octets until the connection is closed and all is written, which returns the remaining
/// deadline, or until the deadline passes or the connection fails.
async fn carry(
    slot: &Arc<Slot>,
    id: ConnectionId,
    stream: &TcpStream,
    room: &mut [u8],
) -> io::Result<Option<Instant>> {
    while let Some((unwritten, close_by, wake)) = slot.due(id) {
        let interest = match (unwritten, close_by) {
            (false, Some(close_by)) => return Ok(Some(close_by)),
            (true, Some(_)) => Interest::WRITABLE,
            (true, None) => Interest::READABLE | Interest::WRITABLE,
            (false, None) => Interest::READABLE,
        };
        let over = async {
            match close_by {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            ready = stream.ready(interest) => ready?,
            () = wake.notified() => continue,
            () = over => return Ok(None),
        };
        if ready.is_writable() && slot.write(id, |octets| stream.try_write(octets)).is_err() {
            slot.tell_of(id, Input::Closed(id));
            return Ok(None);
        }
        if ready.is_readable() && close_by.is_none() {
            match stream.try_read(room) {
                Ok(0) => slot.tell_of(id, Input::Closed(id)),
                Ok(length) => slot.tell_of(id, Input::Bytes(id, &room[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => slot.tell_of(id, Input::Closed(id)),
            }
        }
    }
    Ok(None)
}
