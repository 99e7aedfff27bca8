//! One connection of a peer, from our OPEN to its end: OpenSent, OpenConfirm, Established (RFC 4271
//! section 8). What comes before, and which of two connections stays, is the business of
//! [`crate::peer`].
//!
//! Delayed OPENs (optional) are not done: we always have one ready.

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
    Context, Family, Fault, Framer, Kind, Message, Notification, Open, Refresh, RefreshKind, frame,
};
use negotiate::{Negotiated, Without, negotiate, our_open};
use received::Received;

/// Until the peer's OPEN has come (RFC 4271 section 8.2.2: "large").
const OPEN_PATIENCE: Duration = Duration::from_secs(240);
/// Keepalives are no closer than this (RFC 4271 section 4.4).
const KEEPALIVES_APART: Duration = Duration::from_secs(1);
/// How long the peer may take nothing of what we send, at least (RFC 9687).
const SEND_PATIENCE: Duration = Duration::from_secs(480);

/// Names a connection between the machine and whoever has its socket.
pub type ConnectionId = u64;

/// Who began a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// We.
    Outbound,
    /// The peer.
    Inbound,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Our OPEN is sent.
    OpenSent,
    /// Both OPENs are taken, a KEEPALIVE is awaited.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// What a message led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer's OPEN is good: now it is known who it is. [`Session::confirm`] goes on.
    Opened,
    /// Routes are exchanged from now on.
    Established,
    /// Nothing that others need to know.
    Heard,
}

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Down {
    /// The peer is told.
    Tell(Notification),
    /// The peer told us.
    Told(Notification),
    /// Nobody tells anybody.
    Lost(&'static str),
}

impl From<Notification> for Down {
    fn from(notification: Notification) -> Down {
        Down::Tell(notification)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: ConnectionId,
    /// Who began it.
    pub direction: Direction,
    /// Both ends of it.
    pub ends: (SocketAddr, SocketAddr),
    /// Since when it is.
    pub began: Instant,
    /// Since when it is as far as it is.
    pub since: Instant,
    settings: Arc<Settings>,
    stage: Stage,
    ours: Open,
    framer: Framer,
    hold: Option<Instant>,
    keepalive: Option<Instant>,
    /// Since when something waits to be written; none: all is with the kernel.
    unwritten: Option<Instant>,
    /// Routes are among it.
    routes_unwritten: bool,
    jitter: Jitter,
    negotiated: Option<Negotiated>,
    advertiser: Option<Advertiser>,
    received: Received,
    sends: Vec<Vec<u8>>,
}

impl Session {
    /// A connection that has just come to be; our OPEN is among the first [`Session::sends`].
    pub fn new(
        settings: &Arc<Settings>,
        without: &Without,
        restarted: bool,
        now: Instant,
        (id, direction, ends): (ConnectionId, Direction, (SocketAddr, SocketAddr)),
    ) -> Session {
        let ours = our_open(settings, without, restarted);
        let mut framer = Framer::default();
        if ours.capabilities.iter().any(|offered| offered.code() == code::EXTENDED_MESSAGE) {
            framer.extend();
        }
        let mut session = Session {
            id,
            direction,
            ends,
            began: now,
            since: now,
            settings: Arc::clone(settings),
            stage: Stage::OpenSent,
            framer,
            hold: Some(now + OPEN_PATIENCE),
            keepalive: None,
            unwritten: None,
            routes_unwritten: false,
            jitter: Jitter::new(id, settings.identifier),
            negotiated: None,
            advertiser: None,
            received: Received::default(),
            sends: Vec::new(),
            ours,
        };
        let open = session.ours.write();
        session.send(now, open);
        session
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What both sides agreed on, once the peer's OPEN is there.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// What the peer is told, once the session is established.
    pub fn advertiser(&self) -> Option<&Advertiser> {
        self.advertiser.as_ref()
    }

    /// What the peer told.
    pub fn received(&self) -> &Received {
        &self.received
    }

    /// Whether all that was handed out of routes is with the kernel.
    pub fn is_written(&self) -> bool {
        !self.routes_unwritten
    }

    /// What is to be written, in order.
    pub fn sends(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sends)
    }

    /// Takes octets; [`Session::next_event`] makes messages of them.
    pub fn push(&mut self, octets: &[u8]) {
        self.framer.push(octets);
    }

    /// Hears the next whole message, if there is one.
    pub fn next_event(&mut self, now: Instant) -> Result<Option<Event>, Down> {
        let Some((kind, body)) = self.framer.next_message()? else { return Ok(None) };
        let context = self.negotiated.as_ref().map(Negotiated::reading).unwrap_or_default();
        // What has no place in this state isn't read: it could not be read right.
        if !self.expects(kind) {
            return Err(self.unexpected(kind));
        }
        let message = read(kind, &body, &context)?;
        if self.stage != Stage::OpenSent {
            self.restart_hold(now);
        }
        self.received.message(&message);
        match message {
            Message::Notification(notification) => Err(Down::Told(notification)),
            Message::Open(theirs) => {
                self.negotiated = Some(negotiate(&self.settings, &self.ours, &theirs)?);
                Ok(Some(Event::Opened))
            }
            Message::Keepalive if self.stage == Stage::OpenConfirm => {
                self.establish(now);
                Ok(Some(Event::Established))
            }
            Message::Refresh(refresh) => {
                self.answer(refresh);
                Ok(Some(Event::Heard))
            }
            Message::Keepalive | Message::Update(_) => Ok(Some(Event::Heard)),
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

    fn unexpected(&self, kind: Kind) -> Down {
        let state = match self.stage {
            Stage::OpenSent => 1,
            Stage::OpenConfirm => 2,
            Stage::Established => 3,
        };
        Notification::unexpected(state, kind).into()
    }

    /// The peer is who it should be, and this connection is the one that stays.
    pub fn confirm(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::OpenConfirm, now);
        self.send(now, frame::keepalive());
        self.restart_hold(now);
    }

    fn establish(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::Established, now);
        let Some(negotiated) = &self.negotiated else { return };
        self.received.begin(&negotiated.families);
        let speaking = negotiated.speaking(&self.settings);
        let enhanced = negotiated.enhanced_refresh;
        self.advertiser = Some(Advertiser::new(speaking, &negotiated.families, enhanced));
    }

    /// This is what the peer should have. Nothing is said of it before the session is established.
    pub fn desire(&mut self, now: Instant, table: &Arc<Table>, complete: bool, shutting: bool) {
        if let Some(advertiser) = &mut self.advertiser {
            advertiser.desire(table, complete, shutting);
        }
        self.advance(now);
    }

    fn answer(&mut self, refresh: Refresh) {
        let family = Family::of(refresh.family.0, refresh.family.1);
        // Marks of the peer's own answers mean nothing to who installs nothing.
        let asked = refresh.subtype == RefreshKind::Asked;
        if let (true, Some(family), Some(advertiser)) = (asked, family, &mut self.advertiser) {
            advertiser.refresh(family);
        }
    }

    /// Says all again, of all families, unasked.
    pub fn refresh(&mut self, now: Instant) {
        if let Some(advertiser) = &mut self.advertiser {
            Family::ALL.into_iter().for_each(|family| advertiser.refresh(family));
        }
        self.advance(now);
    }

    /// What was handed out is with the kernel.
    pub fn written(&mut self, now: Instant) {
        (self.unwritten, self.routes_unwritten) = (None, false);
        self.advance(now);
    }

    /// Says more, unless what was said before is still on its way.
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
        self.sends.push(message);
        self.unwritten.get_or_insert(now);
        let interval = self.negotiated.as_ref().map(|n| n.keepalive).filter(|i| !i.is_zero());
        self.keepalive =
            interval.map(|interval| now + self.jitter.shorten(interval).max(KEEPALIVES_APART));
    }

    fn restart_hold(&mut self, now: Instant) {
        let hold = self.negotiated.as_ref().map(|n| n.hold).filter(|hold| !hold.is_zero());
        self.hold = hold.map(|hold| now + hold);
    }

    fn send_deadline(&self) -> Option<Instant> {
        let hold = self.negotiated.as_ref().map(|n| n.hold).filter(|hold| !hold.is_zero())?;
        Some(self.unwritten? + SEND_PATIENCE.max(2 * hold))
    }

    /// When to [`Session::tick`] at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        [self.hold, self.keepalive, self.send_deadline()].into_iter().flatten().min()
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Instant) -> Result<(), Down> {
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

    /// Hold and keepalive timers, for those who ask.
    pub fn timers(&self) -> (Option<Instant>, Option<Instant>) {
        (self.hold, self.keepalive)
    }
}

fn read(kind: Kind, body: &[u8], context: &Context) -> Result<Message, Down> {
    Message::read(kind, body, context).map_err(|fault| match fault {
        Fault::Notify(notification) => Down::Tell(notification),
        Fault::Silent(why) => Down::Lost(why),
    })
}

/// Makes times a little shorter, each time by another quarter at most, so that many speakers don't
/// fall into step (RFC 4271 section 10). Not random: what began alike goes on alike.
#[derive(Debug)]
pub struct Jitter {
    rng: Rng,
}

impl Jitter {
    /// Other names, other times.
    pub fn new(seed: u64, identifier: std::net::Ipv4Addr) -> Jitter {
        let seed = seed ^ (u64::from(u32::from(identifier)) << 32);
        Jitter { rng: Rng::with_seed(seed) }
    }

    /// From three quarters of `time` to all of it.
    pub fn shorten(&mut self, time: Duration) -> Duration {
        time - time / 4_000 * self.rng.u32(..1_000)
    }
}
