//! States of the peer state machine, and the history of a peer.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::session::CloseReason;
use crate::wire::Notification;

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
    /// OPEN sent; waiting for the peer's OPEN.
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

/// Counters and last events of a peer over all of its sessions.
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
    /// The last NOTIFICATION sent, and when.
    pub sent: Option<(Instant, Notification)>,
    /// The last NOTIFICATION received, and when.
    pub received: Option<(Instant, Notification)>,
    /// The last time that a connection ended without a NOTIFICATION, and why.
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

    /// Records why a connection ended.
    pub(super) fn record_end(&mut self, now: Instant, reason: &CloseReason) {
        match reason {
            CloseReason::SendNotification(notification) => {
                self.sent = Some((now, notification.clone()))
            }
            CloseReason::ReceivedNotification(notification) => {
                self.received = Some((now, notification.clone()))
            }
            CloseReason::Lost(why) => self.lost = Some((now, why)),
        }
    }
}
