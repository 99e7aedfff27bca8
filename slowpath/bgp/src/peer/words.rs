//! What goes in and out of the machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::advertise::Table;
use crate::session::{ConnectionId, Direction, Down, Session};
use crate::wire::Notification;
use crate::wire::notification::cease;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// Time passed.
    Tick,
    /// The operator wants the session.
    Start,
    /// The operator doesn't.
    Stop(Stop),
    /// A connection is there; whoever has its socket names it.
    Connected {
        /// Its name.
        connection: ConnectionId,
        /// Who began it.
        direction: Direction,
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// The attempt of the last [`Output::Connect`] failed.
    ConnectFailed,
    /// Octets came.
    Bytes(ConnectionId, &'a [u8]),
    /// All that was to be sent on it is with the kernel.
    Written(ConnectionId),
    /// It is closed, and not by us.
    Closed(ConnectionId),
    /// What the peer should have.
    Desired(Arc<Table>),
    /// What is desired is all that there is: End-of-RIB may be said.
    Complete,
    /// All routes are about to go (RFC 8326), or not any more.
    GracefulShutdown(bool),
    /// Say all again.
    Refresh,
    /// BFD had a session and lost it.
    BfdDown,
    /// BFD has a session.
    BfdUp,
    /// BFD has none because the neighbour holds it down on purpose: nothing is to be waited for.
    BfdHeld,
}

/// Why a session is ended from our side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Shut down, with words for the peer's operator. Our routes go, whatever restarts are agreed
    /// on.
    Shutdown(String),
    /// Ended and begun anew, with words. Our routes go meanwhile.
    Reset(String),
    /// It isn't configured any more.
    Deconfigured,
    /// It is configured otherwise, and another machine begins anew.
    Changed,
    /// This process restarts. Nobody is told, so that the peer keeps our routes.
    Restart,
}

impl Stop {
    /// What the peer is told. A hard reset, where it is needed for our routes to go.
    pub(super) fn said(&self, session: &Session) -> Down {
        let notification = match self {
            Stop::Shutdown(words) => Notification::cease_with(cease::SHUTDOWN, words),
            Stop::Reset(words) => Notification::cease_with(cease::RESET, words),
            Stop::Deconfigured => Notification::cease(cease::DECONFIGURED),
            // Routes are kept until the new session says them again.
            Stop::Changed => return Notification::cease(cease::CHANGED).into(),
            Stop::Restart => return Down::Lost("we restart"),
        };
        hard(notification, session)
    }

    /// The path is gone: nothing is to be kept on it.
    pub(super) fn bfd_down(session: &Session) -> Down {
        hard(Notification::cease(cease::BFD_DOWN), session)
    }
}

fn hard(notification: Notification, session: &Session) -> Down {
    let graceful = session.negotiated().is_some_and(|both| both.notification);
    if graceful { notification.hard().into() } else { notification.into() }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect to the peer; a former attempt is given up.
    Connect,
    /// Give the attempt to connect up.
    Abandon,
    /// Write.
    Send(ConnectionId, Vec<u8>),
    /// Close, after what is to be sent. What was not let in is closed so as well, and what has
    /// closed by itself: its name may be forgotten.
    Close(ConnectionId),
    /// State, connection or progress changed: worth a look.
    Changed,
}

/// The states of RFC 4271.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not wanted, or waiting for BFD.
    Idle,
    /// An attempt to connect is under way.
    Connect,
    /// The peer may connect; we do so again later.
    Active,
    /// Our OPEN is sent.
    OpenSent,
    /// Both OPENs are taken.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What was, beyond the sessions that are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// Since when the state is what it is.
    pub since: Instant,
    /// How often a session was established.
    pub established: u64,
    /// How often an established session ended.
    pub flaps: u64,
    /// How many connections were not let in.
    pub refused: u64,
    /// The last notification that we sent.
    pub sent: Option<(Instant, Notification)>,
    /// The last one that the peer sent.
    pub received: Option<(Instant, Notification)>,
    /// Why the last connection ended without one.
    pub lost: Option<(Instant, &'static str)>,
}

impl History {
    pub(super) fn new(now: Instant) -> History {
        History {
            since: now,
            established: 0,
            flaps: 0,
            refused: 0,
            sent: None,
            received: None,
            lost: None,
        }
    }

    pub(super) fn ended(&mut self, now: Instant, down: &Down) {
        match down {
            Down::Tell(notification) => self.sent = Some((now, notification.clone())),
            Down::Told(notification) => self.received = Some((now, notification.clone())),
            Down::Lost(why) => self.lost = Some((now, why)),
        }
    }
}
