//! Peer state machine: when to connect, which of two connections stays, how long to wait after a
//! failure, and which routes the peer gets (RFC 4271 sections 6.8 and 8). It has no clock and no
//! socket: the time and what happened are arguments of [`Peer::step`], which returns the actions to
//! perform.
//!
//! The caller owns the sockets and must keep these rules:
//!
//! - Octets of a connection are written in the order of [`Action::Send`].
//! - [`Action::Close`] closes a connection once its octets are written, and after a few seconds in
//!   any case. No event of this connection is passed after this action, not even [`Event::Closed`].
//! - [`Event::Written`] is passed whenever no octets of a connection are left to write.
//! - A [`ConnectionId`] is never reused.
//! - At most one attempt to connect is in progress: a new [`Action::Connect`] replaces the previous
//!   one.
//!
//! With DampPeerOscillations of RFC 4271, a speaker waits in Idle for increasing times after a
//! failure and refuses connections meanwhile. Two such speakers can refuse each other forever,
//! because each connects while the other waits. Therefore this implementation waits in Active: it
//! does not connect, but the peer may.

mod action;
mod backoff;
mod collision;
mod event;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod settings;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::advertise::Table;
use crate::session::negotiate::OmitCapabilities;
use crate::session::{CloseReason, Direction, Jitter, Session, SessionEvent, Stage};
pub use action::Action;
pub use event::{Event, Stop};
use settings::Settings;
pub use state::{History, State};

pub use crate::session::ConnectionId;

/// A session that lasted at least this long resets the backoff between connections.
const STABLE: Duration = Duration::from_secs(60);

/// State machine of one peer.
#[derive(Debug)]
pub struct Peer {
    settings: Arc<Settings>,
    /// Administratively up.
    enabled: bool,
    /// An attempt to connect is in progress.
    attempt: bool,
    /// When to connect next, in Connect and Active.
    retry: Option<Instant>,
    sessions: Vec<Session>,
    desired: Arc<Table>,
    /// The desired routes were declared complete, so that End-of-RIB may be sent.
    complete: bool,
    shutting_down: bool,
    /// BFD has failed. Cleared when BFD comes up, or when the neighbor holds it in AdminDown.
    bfd_down: bool,
    /// Number of failed sessions since the start or since one lasted [`STABLE`]; determines the
    /// backoff.
    failures: u32,
    /// Number of attempts to connect since the last connection was opened.
    attempts: u32,
    /// The next OPEN has the R bit of graceful restart.
    restarted: bool,
    omit_capabilities: OmitCapabilities,
    jitter: Jitter,
    history: History,
    actions: Vec<Action>,
}

impl Peer {
    /// Creates a state machine in Idle, where it stays until [`Event::Start`].
    pub fn new(settings: Settings, now: Instant) -> Peer {
        let seed = u64::from(settings.local_asn) ^ (u64::from(settings.peer.port()) << 40);
        Peer {
            restarted: settings.graceful_restart.is_some_and(|restart| restart.restarted),
            jitter: Jitter::new(seed, settings.identifier),
            settings: Arc::new(settings),
            enabled: false,
            attempt: false,
            retry: None,
            sessions: Vec::new(),
            desired: Arc::default(),
            complete: false,
            shutting_down: false,
            bfd_down: false,
            failures: 0,
            attempts: 0,
            omit_capabilities: OmitCapabilities::default(),
            history: History::new(now),
            actions: Vec::new(),
        }
    }

    /// Returns the settings. Of these, only `graceful_restart.forwarding` ever changes.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Processes `event` and returns the actions, to be performed in order.
    pub fn step(&mut self, now: Instant, event: Event<'_>) -> Vec<Action> {
        let before = self.visible_state();
        self.apply(now, event);
        self.tick(now);
        self.collect();
        let state = self.state();
        if state != before.0 {
            self.history.since = now;
        }
        if self.visible_state() != before {
            self.actions.push(Action::Changed);
        }
        std::mem::take(&mut self.actions)
    }

    /// Returns the parts of the status of which a change emits [`Action::Changed`].
    fn visible_state(&self) -> (State, Option<ConnectionId>, bool) {
        let established = self.established().map(|session| session.id);
        (self.state(), established, self.all_sent())
    }

    fn apply(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Tick => {}
            Event::Start => self.start(now),
            Event::Stop(stop) => self.stop(now, stop),
            Event::Connected { connection, direction, local, remote } => {
                self.connected(now, connection, direction, (local, remote));
            }
            Event::ConnectFailed => self.attempt = false,
            Event::Bytes(connection, octets) => self.bytes(now, connection, octets),
            Event::Written(connection) => {
                if let Some(session) = self.session(connection) {
                    session.written(now);
                }
            }
            Event::Closed(connection) => {
                self.down(now, connection, CloseReason::Lost("connection closed"));
            }
            Event::Desired(table) => {
                self.desired = table;
                self.advertise(now);
            }
            Event::Complete => {
                self.complete = true;
                self.advertise(now);
            }
            Event::GracefulShutdown(shutting_down) => {
                self.shutting_down = shutting_down;
                self.advertise(now);
            }
            Event::Refresh => {
                self.sessions.iter_mut().for_each(|session| session.refresh(now));
            }
            Event::BfdDown => self.bfd_down(now),
            Event::BfdUp | Event::BfdAdminDown => {
                self.bfd_down = false;
                self.connect_if_idle(now);
            }
        }
    }

    fn start(&mut self, now: Instant) {
        if !self.enabled {
            (self.enabled, self.failures, self.attempts) = (true, 0, 0);
            self.omit_capabilities = OmitCapabilities::default();
            self.connect_if_idle(now);
        }
    }

    /// Ends all connections, with a NOTIFICATION unless this process restarts, and goes to Idle, or
    /// starts again in case of a reset.
    fn stop(&mut self, now: Instant, stop: Stop) {
        self.enabled = false;
        self.halt(now, |session| stop.close_reason(session));
        if let Stop::Reset(_) = stop {
            self.start(now);
        }
    }

    /// Ends all connections and the attempt to connect; `reason` returns the reason for each
    /// connection.
    fn halt(&mut self, now: Instant, reason: impl Fn(&Session) -> CloseReason) {
        while let Some(session) = self.sessions.pop() {
            let close_reason = reason(&session);
            self.end(now, session, close_reason);
        }
        if std::mem::take(&mut self.attempt) {
            self.actions.push(Action::Abandon);
        }
        self.retry = None;
    }

    fn bfd_down(&mut self, now: Instant) {
        self.bfd_down = true;
        if self.established().is_some() || self.waits_for_bfd() {
            self.halt(now, Stop::bfd_down);
            self.back_off(now);
        }
    }

    fn connected(
        &mut self,
        now: Instant,
        id: ConnectionId,
        direction: Direction,
        endpoints: (SocketAddr, SocketAddr),
    ) {
        let allowed = self.enabled && endpoints.1.ip() == self.settings.peer.ip();
        let expected = direction == Direction::Inbound || self.attempt;
        if !allowed || self.waits_for_bfd() || !expected || self.session(id).is_some() {
            self.history.refused += 1;
            self.actions.push(Action::Close(id));
            return;
        }
        self.attempts = 0;
        match direction {
            Direction::Outbound => (self.attempt, self.retry) = (false, None),
            Direction::Inbound => self.supersede(now),
        }
        let connection = (id, direction, endpoints);
        let session =
            Session::new(&self.settings, &self.omit_capabilities, self.restarted, now, connection);
        self.sessions.push(session);
    }

    fn bytes(&mut self, now: Instant, id: ConnectionId, octets: &[u8]) {
        if let Some(session) = self.session(id) {
            session.push(octets);
        }
        while let Some(session) = self.session(id) {
            match session.next_event(now) {
                Ok(None) => break,
                Ok(Some(SessionEvent::Handled)) => session.advance(now),
                Ok(Some(SessionEvent::Opened)) => self.opened(now, id),
                Ok(Some(SessionEvent::Established)) => self.up(now, id),
                Err(reason) => self.down(now, id, reason),
            }
        }
    }

    /// Handles a session that became established: closes all other connections and advertises
    /// routes.
    fn up(&mut self, now: Instant, id: ConnectionId) {
        self.close_others(now, id);
        if std::mem::take(&mut self.attempt) {
            self.actions.push(Action::Abandon);
        }
        self.retry = None;
        self.history.established += 1;
        self.advertise(now);
    }

    fn advertise(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.set_desired(now, &self.desired, self.complete, self.shutting_down);
        }
    }

    /// Ends a connection because of an error, an expired timer or a message of the peer.
    fn down(&mut self, now: Instant, id: ConnectionId, reason: CloseReason) {
        let Some(at) = self.sessions.iter().position(|session| session.id == id) else { return };
        let session = self.sessions.remove(at);
        if let (CloseReason::ReceivedNotification(notification), false) =
            (&reason, session.stage() == Stage::Established)
        {
            self.omit_capabilities.learn(notification);
        }
        self.end(now, session, reason);
        if self.sessions.is_empty() {
            self.back_off(now);
        }
    }

    /// Sends the session's last messages and the NOTIFICATION of `reason`, if any, closes the
    /// connection and records the reason.
    fn end(&mut self, now: Instant, mut session: Session, reason: CloseReason) {
        let id = session.id;
        self.actions
            .extend(session.take_messages().into_iter().map(|octets| Action::Send(id, octets)));
        if let CloseReason::SendNotification(notification) = &reason {
            self.actions.push(Action::Send(id, notification.write()));
        }
        self.actions.push(Action::Close(id));
        if session.stage() == Stage::Established {
            self.history.flaps += 1;
            if now.saturating_duration_since(session.since) >= STABLE {
                self.failures = 0;
            }
        }
        self.history.record_end(now, &reason);
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
            if let Some(Err(reason)) = self.session(id).map(|session| session.tick(now)) {
                self.down(now, id, reason);
            }
        }
    }

    /// Moves the sessions' messages to the actions. Once the peer has all routes, clears the R bit
    /// and sets the F bit for the next OPEN.
    fn collect(&mut self) {
        for session in &mut self.sessions {
            let id = session.id;
            self.actions
                .extend(session.take_messages().into_iter().map(|octets| Action::Send(id, octets)));
        }
        let advertiser = self.established().and_then(Session::advertiser);
        if self.complete && advertiser.is_some_and(|advertiser| advertiser.is_done()) {
            self.restarted = false;
            // From now on the data plane forwards for all of these routes, so the next OPEN sets F.
            let restart = &self.settings.graceful_restart;
            if restart.is_some_and(|restart| !restart.forwarding) {
                let restart = &mut Arc::make_mut(&mut self.settings).graceful_restart;
                restart.iter_mut().for_each(|restart| restart.forwarding = true);
            }
        }
    }

    /// Returns the latest time for the next [`Peer::step`]; `None` if no timer runs.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(Session::deadline);
        sessions.chain(self.retry).min()
    }

    /// Returns whether BFD is down and the settings forbid to connect without it.
    fn waits_for_bfd(&self) -> bool {
        self.bfd_down && self.settings.strict_bfd
    }

    fn session(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }

    /// Returns the established session.
    pub fn established(&self) -> Option<&Session> {
        self.sessions.iter().find(|session| session.stage() == Stage::Established)
    }

    /// Returns the session that is farthest in the state machine.
    pub fn foremost(&self) -> Option<&Session> {
        self.sessions.iter().max_by_key(|session| session.stage())
    }

    /// Returns the state of RFC 4271: that of the connection that is farthest in the state machine,
    /// or of the peer if there is no connection.
    pub fn state(&self) -> State {
        match self.foremost().map(Session::stage) {
            Some(Stage::Established) => State::Established,
            Some(Stage::OpenConfirm) => State::OpenConfirm,
            Some(Stage::OpenSent) => State::OpenSent,
            None if !self.enabled => State::Idle,
            None if self.waits_for_bfd() => State::Idle,
            None if self.attempt => State::Connect,
            None => State::Active,
        }
    }

    /// Returns the counters and the last events.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns whether all desired routes were sent and are in the kernel's send buffer; true if no
    /// session is established. With an empty table, the result tells whether all routes are
    /// withdrawn.
    pub fn all_sent(&self) -> bool {
        self.established().is_none_or(|session| {
            let done = session.advertiser().is_none_or(|advertiser| advertiser.is_done());
            done && session.is_written()
        })
    }

    /// Returns the desired routes.
    pub fn desired(&self) -> &Arc<Table> {
        &self.desired
    }
}

#[cfg(test)]
pub(crate) mod tests;
