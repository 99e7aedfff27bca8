//! One connection of a peer, from the local OPEN to its end: OpenSent, OpenConfirm, Established
//! (RFC 4271 section 8). Connecting and collisions are handled in [`crate::peer`].
//!
//! The optional DelayOpen is not implemented: the OPEN is always sent at once.

pub mod negotiate;
pub mod received;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;

use crate::advertise::{Advertiser, BURST, Table};
use crate::peer::settings::Settings;
use crate::wire::capability::code;
use crate::wire::{
    DecodeContext, Family, Fault, Framer, Kind, Message, Notification, Open, Refresh, RefreshKind,
    frame,
};
use negotiate::{Negotiated, OmitCapabilities, local_open, negotiate};
use received::Received;

/// Hold timer until the peer's OPEN arrives (RFC 4271 section 8.2.2 suggests 4 minutes).
const OPEN_HOLD_TIME: Duration = Duration::from_secs(240);
/// Minimum time between keepalives (RFC 4271 section 4.4).
const KEEPALIVE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Minimum of the send hold timer, 8 minutes: how long octets may wait because the peer does not
/// read (RFC 9687). The timer is twice the hold time if that is longer.
const SEND_HOLD_TIME_MIN: Duration = Duration::from_secs(480);

/// Identifies a connection between the state machine and the owner of its socket.
pub type ConnectionId = u64;

/// Which side opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Opened by this speaker.
    Outbound,
    /// Opened by the peer.
    Inbound,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// OPEN sent; waiting for the peer's OPEN.
    OpenSent,
    /// OPENs exchanged; waiting for a KEEPALIVE.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// Result of processing a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// The peer's OPEN is valid, so its identity is known. [`Session::confirm`] continues.
    Opened,
    /// The session became established.
    Established,
    /// No effect outside of the session.
    Handled,
}

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// An error or a decision of this side: the NOTIFICATION is to be sent.
    SendNotification(Notification),
    /// The peer sent a NOTIFICATION.
    ReceivedNotification(Notification),
    /// The connection is lost, or ends without a NOTIFICATION.
    Lost(&'static str),
}

impl From<Notification> for CloseReason {
    fn from(notification: Notification) -> CloseReason {
        CloseReason::SendNotification(notification)
    }
}

/// A connection and its BGP session.
#[derive(Debug)]
pub struct Session {
    /// ID of the connection.
    pub id: ConnectionId,
    /// Which side opened the connection.
    pub direction: Direction,
    /// Local and remote address and port.
    pub endpoints: (SocketAddr, SocketAddr),
    /// When the connection was opened.
    pub began: Instant,
    /// When the current stage was reached.
    pub since: Instant,
    settings: Arc<Settings>,
    stage: Stage,
    local: Open,
    framer: Framer,
    /// When the hold timer expires; `None` with a negotiated hold time of 0.
    hold: Option<Instant>,
    /// When the next keepalive is due.
    keepalive: Option<Instant>,
    /// Since when octets wait to be written; `None` if all are in the kernel's send buffer.
    unwritten: Option<Instant>,
    /// Routes are among the octets that wait to be written.
    routes_unwritten: bool,
    jitter: Jitter,
    negotiated: Option<Negotiated>,
    advertiser: Option<Advertiser>,
    received: Received,
    outgoing: Vec<Vec<u8>>,
}

impl Session {
    /// Creates the session of a new connection. The OPEN is the first message of
    /// [`Session::take_messages`].
    pub fn new(
        settings: &Arc<Settings>,
        omit_capabilities: &OmitCapabilities,
        restarted: bool,
        now: Instant,
        (id, direction, endpoints): (ConnectionId, Direction, (SocketAddr, SocketAddr)),
    ) -> Session {
        let local = local_open(settings, omit_capabilities, restarted);
        let mut framer = Framer::default();
        if local.capabilities.iter().any(|offered| offered.code() == code::EXTENDED_MESSAGE) {
            framer.accept_extended_messages();
        }
        let mut session = Session {
            id,
            direction,
            endpoints,
            began: now,
            since: now,
            settings: Arc::clone(settings),
            stage: Stage::OpenSent,
            framer,
            hold: Some(now + OPEN_HOLD_TIME),
            keepalive: None,
            unwritten: None,
            routes_unwritten: false,
            jitter: Jitter::new(id, settings.identifier),
            negotiated: None,
            advertiser: None,
            received: Received::default(),
            outgoing: Vec::new(),
            local,
        };
        let open = session.local.write();
        session.send(now, open);
        session
    }

    /// Returns the stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the negotiated parameters; `None` before the peer's OPEN.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Returns the advertiser; `None` before the session is established.
    pub fn advertiser(&self) -> Option<&Advertiser> {
        self.advertiser.as_ref()
    }

    /// Returns the routes and messages that the peer sent.
    pub fn received(&self) -> &Received {
        &self.received
    }

    /// Returns whether all routes produced so far are in the kernel's send buffer.
    pub fn is_written(&self) -> bool {
        !self.routes_unwritten
    }

    /// Takes the messages that wait to be written, in order.
    pub fn take_messages(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing)
    }

    /// Adds received octets; [`Session::next_event`] parses them.
    pub fn push(&mut self, octets: &[u8]) {
        self.framer.push(octets);
    }

    /// Processes the next complete message, if there is one.
    ///
    /// # Errors
    /// Returns why the connection must be closed.
    pub fn next_event(&mut self, now: Instant) -> Result<Option<SessionEvent>, CloseReason> {
        let Some((kind, body)) = self.framer.next_message()? else { return Ok(None) };
        let context = self.negotiated.as_ref().map(Negotiated::decode_context).unwrap_or_default();
        // A message that is not allowed in this state is not parsed: before the peer's OPEN, the
        // parameters that its format depends on are unknown.
        if !self.expects(kind) {
            return Err(self.unexpected(kind));
        }
        let message = read(kind, &body, &context)?;
        if self.stage != Stage::OpenSent {
            self.restart_hold(now);
        }
        self.received.message(&message);
        match message {
            Message::Notification(notification) => {
                Err(CloseReason::ReceivedNotification(notification))
            }
            Message::Open(remote) => {
                self.negotiated = Some(negotiate(&self.settings, &self.local, &remote)?);
                Ok(Some(SessionEvent::Opened))
            }
            Message::Keepalive if self.stage == Stage::OpenConfirm => {
                self.establish(now);
                Ok(Some(SessionEvent::Established))
            }
            Message::Refresh(refresh) => {
                self.handle_refresh(refresh);
                Ok(Some(SessionEvent::Handled))
            }
            Message::Keepalive | Message::Update(_) => Ok(Some(SessionEvent::Handled)),
        }
    }

    fn expects(&self, kind: Kind) -> bool {
        match (self.stage, kind) {
            (_, Kind::Notification) => true,
            (Stage::OpenSent, Kind::Open) => self.negotiated.is_none(),
            (Stage::OpenSent, _) => false,
            (Stage::OpenConfirm, kind) => kind == Kind::Keepalive,
            (Stage::Established, kind) => kind != Kind::Open,
        }
    }

    fn unexpected(&self, kind: Kind) -> CloseReason {
        let state = match self.stage {
            Stage::OpenSent => 1,
            Stage::OpenConfirm => 2,
            Stage::Established => 3,
        };
        Notification::unexpected(state, kind).into()
    }

    /// Accepts the peer's OPEN once collisions are resolved: sends a KEEPALIVE and goes to
    /// OpenConfirm.
    pub fn confirm(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::OpenConfirm, now);
        self.send(now, frame::keepalive());
        self.restart_hold(now);
    }

    fn establish(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::Established, now);
        let Some(negotiated) = &self.negotiated else { return };
        self.received.begin(&negotiated.families);
        let encode_context = negotiated.encode_context(&self.settings);
        let enhanced = negotiated.enhanced_refresh;
        self.advertiser = Some(Advertiser::new(encode_context, &negotiated.families, enhanced));
    }

    /// Sets the desired routes; no effect before the session is established.
    pub fn set_desired(
        &mut self,
        now: Instant,
        table: &Arc<Table>,
        complete: bool,
        shutting_down: bool,
    ) {
        if let Some(advertiser) = &mut self.advertiser {
            advertiser.set_desired(table, complete, shutting_down);
        }
        self.advance(now);
    }

    fn handle_refresh(&mut self, refresh: Refresh) {
        let family = Family::of(refresh.family.0, refresh.family.1);
        // Begin and End of the peer's own refreshes are ignored because its routes are not
        // installed.
        let requested = refresh.subtype == RefreshKind::Request;
        if let (true, Some(family), Some(advertiser)) = (requested, family, &mut self.advertiser) {
            advertiser.refresh(family);
        }
    }

    /// Sends all routes of all families again.
    pub fn refresh(&mut self, now: Instant) {
        if let Some(advertiser) = &mut self.advertiser {
            Family::ALL.into_iter().for_each(|family| advertiser.refresh(family));
        }
        self.advance(now);
    }

    /// Handles the event that all messages are in the kernel's send buffer.
    pub fn written(&mut self, now: Instant) {
        (self.unwritten, self.routes_unwritten) = (None, false);
        self.advance(now);
    }

    /// Produces further messages of the advertiser, unless previous ones are still to be written.
    pub fn advance(&mut self, now: Instant) {
        if self.unwritten.is_some() {
            return;
        }
        for _ in 0..BURST {
            let Some(message) = self.advertiser.as_mut().and_then(Advertiser::next_message) else {
                break;
            };
            self.routes_unwritten = true;
            self.send(now, message);
        }
    }

    fn send(&mut self, now: Instant, message: Vec<u8>) {
        self.outgoing.push(message);
        self.unwritten.get_or_insert(now);
        let interval = self.negotiated.as_ref().map(|n| n.keepalive).filter(|i| !i.is_zero());
        self.keepalive = interval
            .map(|interval| now + self.jitter.shorten(interval).max(KEEPALIVE_INTERVAL_MIN));
    }

    fn restart_hold(&mut self, now: Instant) {
        let hold = self.negotiated.as_ref().map(|n| n.hold).filter(|hold| !hold.is_zero());
        self.hold = hold.map(|hold| now + hold);
    }

    /// Returns when the send hold timer expires; `None` if it does not run.
    fn send_deadline(&self) -> Option<Instant> {
        let hold = self.negotiated.as_ref().map(|n| n.hold).filter(|hold| !hold.is_zero())?;
        Some(self.unwritten? + SEND_HOLD_TIME_MIN.max(2 * hold))
    }

    /// Returns the latest time for the next [`Session::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        [self.hold, self.keepalive, self.send_deadline()].into_iter().flatten().min()
    }

    /// Handles expired timers.
    ///
    /// # Errors
    /// Returns why the connection must be closed.
    pub fn tick(&mut self, now: Instant) -> Result<(), CloseReason> {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if due(self.hold) {
            return Err(Notification::hold_timer().into());
        }
        if due(self.send_deadline()) {
            return Err(Notification::send_hold_timer().into());
        }
        if due(self.keepalive) {
            self.send(now, frame::keepalive());
        }
        Ok(())
    }

    /// Returns when the hold and the keepalive timer expire.
    pub fn timers(&self) -> (Option<Instant>, Option<Instant>) {
        (self.hold, self.keepalive)
    }
}

fn read(kind: Kind, body: &[u8], context: &DecodeContext) -> Result<Message, CloseReason> {
    Message::read(kind, body, context).map_err(|fault| match fault {
        Fault::Notify(notification) => CloseReason::SendNotification(notification),
        Fault::Silent(why) => CloseReason::Lost(why),
    })
}

/// Shortens timers by up to a quarter so that many speakers do not synchronize (RFC 4271 section
/// 10). The same seed and identifier give the same sequence.
#[derive(Debug)]
pub struct Jitter {
    rng: Rng,
}

impl Jitter {
    /// Creates a generator from a seed and the local BGP identifier.
    pub fn new(seed: u64, identifier: std::net::Ipv4Addr) -> Jitter {
        let seed = seed ^ (u64::from(u32::from(identifier)) << 32);
        Jitter { rng: Rng::with_seed(seed) }
    }

    /// Returns a duration between three quarters of `time` and `time`.
    pub fn shorten(&mut self, time: Duration) -> Duration {
        time - time / 4_000 * self.rng.u32(..1_000)
    }
}
