//! Events consumed by the peer state machine.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::advertise::Table;
use crate::session::{CloseReason, ConnectionId, Direction, Session};
use crate::wire::Notification;
use crate::wire::notification::cease;

/// An input of the state machine.
#[derive(Clone, Debug)]
pub enum Event<'a> {
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
    /// The attempt started by the last [`super::Action::Connect`] failed.
    ConnectFailed,
    /// Octets were received on the connection.
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
    BfdAdminDown,
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
    pub(super) fn close_reason(&self, session: &Session) -> CloseReason {
        let notification = match self {
            Stop::Shutdown(message) => Notification::cease_with_message(cease::SHUTDOWN, message),
            Stop::Reset(message) => Notification::cease_with_message(cease::RESET, message),
            Stop::Deconfigured => Notification::cease(cease::DECONFIGURED),
            // With graceful restart for notifications (RFC 8538), the peer keeps the routes until
            // the new session advertises them.
            Stop::Changed => return Notification::cease(cease::CHANGED).into(),
            Stop::Restart => return CloseReason::Lost("local restart"),
        };
        hard_if_negotiated(notification, session)
    }

    /// Returns how to end `session` when BFD is down: with a hard reset where it is needed for the
    /// peer to drop the routes. The forwarding path has failed, so the peer must not keep them as
    /// stale routes.
    pub(super) fn bfd_down(session: &Session) -> CloseReason {
        hard_if_negotiated(Notification::cease(cease::BFD_DOWN), session)
    }
}

/// Wraps `notification` in a hard reset (RFC 8538) if both sides negotiated graceful restart for
/// notifications, so that the peer drops the routes.
fn hard_if_negotiated(notification: Notification, session: &Session) -> CloseReason {
    let graceful = session.negotiated().is_some_and(|negotiated| negotiated.notification);
    if graceful { notification.hard().into() } else { notification.into() }
}
