//! Events consumed and actions produced by the peer state machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::advertise::Table;
use crate::session::{ConnectionId, Direction, Down, Session};
use crate::wire::Notification;
use crate::wire::notification::cease;

/// An event.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// Time passed.
    Tick,
    /// Administrative start (ManualStart of RFC 4271).
    Start,
    /// Administrative stop (ManualStop of RFC 4271).
    Stop(Stop),
    /// A connection was opened; the caller chooses its ID.
    Connected {
        /// ID of the connection.
        connection: ConnectionId,
        /// Which side opened it.
        direction: Direction,
        /// Local address and port.
        local: SocketAddr,
        /// Remote address and port.
        remote: SocketAddr,
    },
    /// The attempt of the last [`Output::Connect`] failed.
    ConnectFailed,
    /// Octets were received.
    Bytes(ConnectionId, &'a [u8]),
    /// All octets queued on the connection are in the kernel's send buffer.
    Written(ConnectionId),
    /// The connection was closed by the peer or by an error.
    Closed(ConnectionId),
    /// Replaces the routes that the peer should have.
    Desired(Arc<Table>),
    /// The desired routes are complete, so that End-of-RIB may be sent.
    Complete,
    /// Graceful shutdown (RFC 8326) is turned on or off.
    GracefulShutdown(bool),
    /// All routes are to be sent again.
    Refresh,
    /// The BFD session went down because of a failure.
    BfdDown,
    /// The BFD session is up.
    BfdUp,
    /// The neighbor holds its BFD session in AdminDown, which is no failure: do not wait for BFD.
    BfdHeld,
}

/// Why this side ends a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Administrative shutdown, with a message for the peer's operator (RFC 9003). The peer drops
    /// the routes even with graceful restart.
    Shutdown(String),
    /// Administrative reset, with a message: the session ends and starts again. The peer drops the
    /// routes meanwhile.
    Reset(String),
    /// The peer was removed from the configuration.
    Deconfigured,
    /// The configuration of the peer changed, and a new state machine will replace this one.
    Changed,
    /// This process restarts. No NOTIFICATION is sent, so that the peer keeps the routes.
    Restart,
}

impl Stop {
    /// Returns how to end `session`: with a hard reset where it is needed for the peer to drop the
    /// routes.
    pub(super) fn said(&self, session: &Session) -> Down {
        let notification = match self {
            Stop::Shutdown(words) => Notification::cease_with(cease::SHUTDOWN, words),
            Stop::Reset(words) => Notification::cease_with(cease::RESET, words),
            Stop::Deconfigured => Notification::cease(cease::DECONFIGURED),
            // With graceful restart, the peer keeps the routes until the new session advertises
            // them.
            Stop::Changed => return Notification::cease(cease::CHANGED).into(),
            Stop::Restart => return Down::Lost("we restart"),
        };
        hard(notification, session)
    }

    /// Returns how to end `session` when BFD is down: the path fails, so that the peer must drop
    /// the routes.
    pub(super) fn bfd_down(session: &Session) -> Down {
        hard(Notification::cease(cease::BFD_DOWN), session)
    }
}

fn hard(notification: Notification, session: &Session) -> Down {
    let graceful = session.negotiated().is_some_and(|both| both.notification);
    if graceful { notification.hard().into() } else { notification.into() }
}

/// An action for the caller to perform.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect to the peer and abandon a previous attempt.
    Connect,
    /// Abandon the attempt to connect.
    Abandon,
    /// Write octets to a connection.
    Send(ConnectionId, Vec<u8>),
    /// Close a connection once its queued octets are written. Also emitted for connections that are
    /// refused and for those that closed by themselves; the ID may be forgotten.
    Close(ConnectionId),
    /// State, connection or progress changed.
    Changed,
}

/// States of the BGP finite state machine (RFC 4271 section 8.2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Administratively down, or waiting for BFD.
    Idle,
    /// An attempt to connect is in progress.
    Connect,
    /// Waiting for the peer to connect, or for the next attempt.
    Active,
    /// OPEN sent; waiting for the peer's.
    OpenSent,
    /// OPENs exchanged; waiting for a KEEPALIVE.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Counters and last events, which outlive sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// Time of the last change of state.
    pub since: Instant,
    /// Number of sessions that were established.
    pub established: u64,
    /// Number of established sessions that ended.
    pub flaps: u64,
    /// Number of connections that were refused.
    pub refused: u64,
    /// The last NOTIFICATION sent.
    pub sent: Option<(Instant, Notification)>,
    /// The last NOTIFICATION received.
    pub received: Option<(Instant, Notification)>,
    /// Why the last connection that ended without a NOTIFICATION did so.
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
