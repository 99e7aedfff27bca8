//! The words in which a session's machine hears and speaks.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::packet::{Diagnostic, Packet, State};

/// Why a session is not up any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing came for the detection time.
    Expired,
    /// The neighbour says that it is down.
    NeighbourDown,
    /// The neighbour was told to hold it down.
    NeighbourAdminDown,
    /// So were we.
    Stopped,
}

impl Reason {
    /// Whether it says anything of the way there. What a person or a plan does is no failure, and
    /// no reason to give up routes (RFC 5882, 3.2).
    pub fn is_failure(self) -> bool {
        matches!(self, Reason::Expired | Reason::NeighbourDown)
    }

    /// What packets say.
    pub fn diagnostic(self) -> Diagnostic {
        match self {
            Reason::Expired => Diagnostic::DetectionTimeExpired,
            Reason::NeighbourDown | Reason::NeighbourAdminDown => Diagnostic::NeighborSignaledDown,
            Reason::Stopped => Diagnostic::AdministrativelyDown,
        }
    }
}

/// What whoever depends on the session is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Both hear each other.
    Up,
    /// Not any more.
    Down(Reason),
    /// They did not, and now the neighbour says that it holds the session down on purpose: there is
    /// nothing to wait for (RFC 5882, 3.2).
    Held,
}

/// What came of a packet, or of time that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// To be sent at once.
    pub send: Option<Packet>,
    /// To be told.
    pub change: Option<Change>,
}

/// The timers that a side announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timers {
    pub(crate) transmit: Duration,
    pub(crate) receive: Duration,
}

/// What the neighbour said last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) discriminator: u32,
    pub(crate) multiplier: u8,
    pub(crate) independent: bool,
    pub(crate) demand: bool,
    pub(crate) timers: Timers,
    pub(crate) heard: Option<Instant>,
}

impl Remote {
    /// Before a word of it (6.8.1).
    pub(crate) fn unknown() -> Remote {
        Remote {
            state: State::Down,
            diagnostic: Diagnostic::None,
            discriminator: 0,
            multiplier: 0,
            independent: false,
            demand: false,
            timers: Timers { transmit: Duration::ZERO, receive: Duration::from_micros(1) },
            heard: None,
        }
    }
}

/// What is counted of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) ups: u64,
    pub(crate) downs: u64,
}
