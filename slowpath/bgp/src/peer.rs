//! A peer: when to connect, which of two connections stays, how long to wait after a failure, and
//! what all of it is told (RFC 4271 sections 6.8 and 8). No clock and no socket: times and what
//! came are arguments of [`Peer::step`], what is to be done is returned.
//!
//! Whoever has the sockets keeps to this. Octets of a connection are written in the order of
//! [`Output::Send`]; [`Output::Close`] closes once they are written, and after a few seconds
//! anyway. [`Input::Written`] is told whenever nothing is left to write. A name is of one
//! connection for ever. After `Close` nothing more is told of a connection, not even that it is
//! closed. At most one attempt to connect is under way: a new [`Output::Connect`] takes the
//! former's place.
//!
//! After a failure the RFC rests in Idle, ever longer (DampPeerOscillations), and lets nobody in
//! meanwhile. Two such speakers can refuse each other for ever: each connects while the other
//! rests. Here a rest is spent in Active: we don't connect, but the peer may.

mod collide;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod retry;
pub mod settings;
mod words;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::advertise::Table;
use crate::session::negotiate::Without;
use crate::session::{Direction, Down, Event, Jitter, Session, Stage};
use settings::Settings;
pub use words::{History, Input, Output, State, Stop};

pub use crate::session::ConnectionId;

/// A session that lasted this long was none.
const STABLE: Duration = Duration::from_secs(60);

/// The machine of one peer.
#[derive(Debug)]
pub struct Peer {
    settings: Arc<Settings>,
    /// The operator wants it up.
    wanted: bool,
    /// An attempt to connect is under way.
    attempt: bool,
    /// When to connect next, in Connect and Active.
    retry: Option<Instant>,
    sessions: Vec<Session>,
    desired: Arc<Table>,
    complete: bool,
    shutting: bool,
    bfd_down: bool,
    failures: u32,
    /// Attempts to connect since the last connection.
    attempts: u32,
    restarted: bool,
    without: Without,
    jitter: Jitter,
    history: History,
    outputs: Vec<Output>,
}

impl Peer {
    /// At rest until [`Input::Start`].
    pub fn new(settings: Settings, now: Instant) -> Peer {
        let seed = u64::from(settings.local_asn) ^ (u64::from(settings.peer.port()) << 40);
        Peer {
            restarted: settings.graceful_restart.is_some_and(|restart| restart.restarted),
            jitter: Jitter::new(seed, settings.identifier),
            settings: Arc::new(settings),
            wanted: false,
            attempt: false,
            retry: None,
            sessions: Vec::new(),
            desired: Arc::default(),
            complete: false,
            shutting: false,
            bfd_down: false,
            failures: 0,
            attempts: 0,
            without: Without::default(),
            history: History::new(now),
            outputs: Vec::new(),
        }
    }

    /// What is configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Hears `input`, and tells what is to be done, in this order.
    pub fn step(&mut self, now: Instant, input: Input<'_>) -> Vec<Output> {
        let before = self.look();
        self.hear(now, input);
        self.tick(now);
        self.collect();
        let state = self.state();
        if state != before.0 {
            self.history.since = now;
        }
        if self.look() != before {
            self.outputs.push(Output::Changed);
        }
        std::mem::take(&mut self.outputs)
    }

    /// What somebody who looks would see change.
    fn look(&self) -> (State, Option<ConnectionId>, bool) {
        let established = self.established().map(|session| session.id);
        (self.state(), established, self.is_told())
    }

    fn hear(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Tick => {}
            Input::Start => self.start(now),
            Input::Stop(stop) => self.stop(now, stop),
            Input::Connected { connection, direction, local, remote } => {
                self.connected(now, connection, direction, (local, remote));
            }
            Input::ConnectFailed => self.attempt = false,
            Input::Bytes(connection, octets) => self.bytes(now, connection, octets),
            Input::Written(connection) => {
                if let Some(session) = self.session(connection) {
                    session.written(now);
                }
            }
            Input::Closed(connection) => {
                self.down(now, connection, Down::Lost("the connection was closed"));
            }
            Input::Desired(table) => {
                self.desired = table;
                self.tell(now);
            }
            Input::Complete => {
                self.complete = true;
                self.tell(now);
            }
            Input::GracefulShutdown(shutting) => {
                self.shutting = shutting;
                self.tell(now);
            }
            Input::Refresh => {
                self.sessions.iter_mut().for_each(|session| session.refresh(now));
            }
            Input::BfdDown => self.bfd_down(now),
            Input::BfdUp | Input::BfdHeld => {
                self.bfd_down = false;
                self.begin_if_idle(now);
            }
        }
    }

    fn start(&mut self, now: Instant) {
        if !self.wanted {
            (self.wanted, self.failures, self.attempts) = (true, 0, 0);
            self.without = Without::default();
            self.begin_if_idle(now);
        }
    }

    /// Ends all, says why, and rests until started again, or begins anew if that was asked.
    fn stop(&mut self, now: Instant, stop: Stop) {
        self.wanted = false;
        self.halt(now, |session| stop.said(session));
        if let Stop::Reset(_) = stop {
            self.start(now);
        }
    }

    /// Ends every connection and attempt; `says` what each is told.
    fn halt(&mut self, now: Instant, says: impl Fn(&Session) -> Down) {
        while let Some(session) = self.sessions.pop() {
            let down = says(&session);
            self.end(now, session, down);
        }
        if std::mem::take(&mut self.attempt) {
            self.outputs.push(Output::Abandon);
        }
        self.retry = None;
    }

    fn bfd_down(&mut self, now: Instant) {
        self.bfd_down = true;
        if self.established().is_some() || self.is_held() {
            self.halt(now, Stop::bfd_down);
            self.rest(now);
        }
    }

    fn connected(
        &mut self,
        now: Instant,
        id: ConnectionId,
        direction: Direction,
        ends: (SocketAddr, SocketAddr),
    ) {
        let open = self.wanted && ends.1.ip() == self.settings.peer.ip();
        let asked = direction == Direction::Inbound || self.attempt;
        if !open || self.is_held() || !asked || self.session(id).is_some() {
            self.history.refused += 1;
            self.outputs.push(Output::Close(id));
            return;
        }
        self.attempts = 0;
        match direction {
            Direction::Outbound => (self.attempt, self.retry) = (false, None),
            Direction::Inbound => self.supersede(now),
        }
        let about = (id, direction, ends);
        let session = Session::new(&self.settings, &self.without, self.restarted, now, about);
        self.sessions.push(session);
    }

    fn bytes(&mut self, now: Instant, id: ConnectionId, octets: &[u8]) {
        if let Some(session) = self.session(id) {
            session.push(octets);
        }
        while let Some(session) = self.session(id) {
            match session.next_event(now) {
                Ok(None) => break,
                Ok(Some(Event::Heard)) => session.advance(now),
                Ok(Some(Event::Opened)) => self.opened(now, id),
                Ok(Some(Event::Established)) => self.up(now, id),
                Err(down) => self.down(now, id, down),
            }
        }
    }

    /// A session is established: it is the only one, and gets its routes.
    fn up(&mut self, now: Instant, id: ConnectionId) {
        self.leave_only(now, id);
        if std::mem::take(&mut self.attempt) {
            self.outputs.push(Output::Abandon);
        }
        self.retry = None;
        self.history.established += 1;
        self.tell(now);
    }

    fn tell(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.desire(now, &self.desired, self.complete, self.shutting);
        }
    }

    /// A connection ends by itself, or because of what came over it.
    fn down(&mut self, now: Instant, id: ConnectionId, down: Down) {
        let Some(at) = self.sessions.iter().position(|session| session.id == id) else { return };
        let session = self.sessions.remove(at);
        if let (Down::Told(notification), false) = (&down, session.stage() == Stage::Established) {
            self.without.learn(notification);
        }
        self.end(now, session, down);
        if self.sessions.is_empty() {
            self.rest(now);
        }
    }

    /// Closes, and keeps what is worth telling of it.
    fn end(&mut self, now: Instant, mut session: Session, down: Down) {
        let id = session.id;
        self.outputs.extend(session.sends().into_iter().map(|octets| Output::Send(id, octets)));
        if let Down::Tell(notification) = &down {
            self.outputs.push(Output::Send(id, notification.write()));
        }
        self.outputs.push(Output::Close(id));
        if session.stage() == Stage::Established {
            self.history.flaps += 1;
            if now.saturating_duration_since(session.since) >= STABLE {
                self.failures = 0;
            }
        }
        self.history.ended(now, &down);
    }

    fn tick(&mut self, now: Instant) {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if due(self.retry) {
            self.retry = None;
            if self.sessions.is_empty() {
                self.connect(now);
            }
        }
        let ids: Vec<ConnectionId> = self.sessions.iter().map(|session| session.id).collect();
        for id in ids {
            if let Some(Err(down)) = self.session(id).map(|session| session.tick(now)) {
                self.down(now, id, down);
            }
        }
    }

    /// Hands out what sessions want written.
    fn collect(&mut self) {
        for session in &mut self.sessions {
            let id = session.id;
            self.outputs.extend(session.sends().into_iter().map(|octets| Output::Send(id, octets)));
        }
        // The peer has all: from its next OPEN on this is no restart any more.
        let told = self.established().and_then(Session::advertiser);
        if self.complete && told.is_some_and(|advertiser| advertiser.is_done()) {
            self.restarted = false;
            // From now on what it has is forwarded, whatever becomes of the session.
            let restart = &self.settings.graceful_restart;
            if restart.is_some_and(|restart| !restart.forwarding) {
                let restart = &mut Arc::make_mut(&mut self.settings).graceful_restart;
                restart.iter_mut().for_each(|restart| restart.forwarding = true);
            }
        }
    }

    /// When to [`Peer::step`] at the latest; `None`: when something comes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(Session::deadline);
        sessions.chain(self.retry).min()
    }

    /// BFD was lost, and nothing is to be tried without it.
    fn is_held(&self) -> bool {
        self.bfd_down && self.settings.strict_bfd
    }

    fn session(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }

    /// The session that is established.
    pub fn established(&self) -> Option<&Session> {
        self.sessions.iter().find(|session| session.stage() == Stage::Established)
    }

    /// The session that has come farthest.
    pub fn foremost(&self) -> Option<&Session> {
        self.sessions.iter().max_by_key(|session| session.stage())
    }

    /// The state in the words of RFC 4271: of the connection that has come farthest.
    pub fn state(&self) -> State {
        match self.foremost().map(Session::stage) {
            Some(Stage::Established) => State::Established,
            Some(Stage::OpenConfirm) => State::OpenConfirm,
            Some(Stage::OpenSent) => State::OpenSent,
            None if !self.wanted => State::Idle,
            None if self.is_held() => State::Idle,
            None if self.attempt => State::Connect,
            None => State::Active,
        }
    }

    /// What was, for those who ask.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether the peer has been told all that is desired, and all of it is with the kernel; true
    /// as well where nobody is there to be told. After an empty table this says that everything is
    /// withdrawn.
    pub fn is_told(&self) -> bool {
        self.established().is_none_or(|session| {
            let done = session.advertiser().is_none_or(|advertiser| advertiser.is_done());
            done && session.is_written()
        })
    }

    /// What the peer should have.
    pub fn desired(&self) -> &Arc<Table> {
        &self.desired
    }
}

#[cfg(test)]
pub(crate) mod tests;
