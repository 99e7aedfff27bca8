//! Output of the BFD session state machine, and the state that it stores about the neighbor.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::packet::{Diagnostic, Packet, State};

/// Reason for a change to Down or AdminDown. It determines the diagnostic in sent packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No packet arrived for the detection time.
    Expired,
    /// The neighbor signaled that its session is down.
    NeighborDown,
    /// The neighbor's session is administratively down.
    NeighborAdminDown,
    /// The local session is administratively down.
    Stopped,
}

impl Reason {
    /// Returns whether the reason indicates a failure of the path. AdminDown does not indicate a
    /// failure, so that users of the session, such as BGP, must not react to it as to one (RFC 5882
    /// section 3.2).
    pub fn is_failure(self) -> bool {
        matches!(self, Reason::Expired | Reason::NeighborDown)
    }

    /// Returns the diagnostic to send in packets.
    pub fn diagnostic(self) -> Diagnostic {
        match self {
            Reason::Expired => Diagnostic::DetectionTimeExpired,
            Reason::NeighborDown | Reason::NeighborAdminDown => Diagnostic::NeighborSignaledDown,
            Reason::Stopped => Diagnostic::AdministrativelyDown,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Expired => "detection time expired",
            Reason::NeighborDown => "neighbor signaled session down",
            Reason::NeighborAdminDown => "neighbor is administratively down",
            Reason::Stopped => "administratively down",
        })
    }
}

/// A change of a session, reported to its users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The session is up.
    Up,
    /// The session left Up.
    Down(Reason),
    /// The session is not up and the neighbor now reports AdminDown: users must not wait for the
    /// session (RFC 5882 section 3.2).
    #[serde(rename = "held")]
    NeighborAdminDown,
}

/// Actions that result from a received packet or a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// Packet to send at once.
    pub send: Option<Packet>,
    /// Change to report.
    pub change: Option<Change>,
}

/// Timers that one side advertises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timers {
    /// Desired Min TX Interval.
    pub(crate) transmit: Duration,
    /// Required Min RX Interval.
    pub(crate) receive: Duration,
}

/// State of the neighbor, from its last packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) discriminator: u32,
    pub(crate) multiplier: u8,
    pub(crate) independent: bool,
    pub(crate) demand: bool,
    pub(crate) timers: Timers,
    pub(crate) received_at: Option<Instant>,
}

impl Remote {
    /// Initial values, before a packet of the neighbor arrives (RFC 5880 section 6.8.1).
    pub(crate) fn unknown() -> Remote {
        Remote {
            state: State::Down,
            diagnostic: Diagnostic::None,
            discriminator: 0,
            multiplier: 0,
            independent: false,
            demand: false,
            timers: Timers { transmit: Duration::ZERO, receive: Duration::from_micros(1) },
            received_at: None,
        }
    }
}

/// Counters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) ups: u64,
    pub(crate) downs: u64,
}
