//! Actions produced by the peer state machine.

use crate::session::ConnectionId;

/// An action for the caller to perform.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect to the peer, and abandon the previous attempt if one is in progress.
    Connect,
    /// Abandon the attempt to connect.
    Abandon,
    /// Write octets to a connection.
    Send(ConnectionId, Vec<u8>),
    /// Close a connection once its queued octets are written. Also emitted for connections that are
    /// refused and for those that closed by themselves. The state machine has forgotten the ID.
    Close(ConnectionId),
    /// The state, the established session or [`super::Peer::all_sent`] changed.
    Changed,
}
