//! BGP's messages in our own words, and the way between them and bytes. Pure: bytes in, a message
//! or a [`Fault`] out. Nothing here knows of sockets, times or sessions.
//!
//! The codec is our own. `netgauze-bgp-pkt` was measured first (`wire/tests/measured.rs`): it
//! leaves the data of most notifications empty, misses RFC 9072 and loses its place after a
//! malformed attribute, and these are what RFC 7606 and section 6 of RFC 4271 are about. It reads
//! what we write in the tests, as a second opinion.

pub mod attribute;
pub mod capability;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod notification;
pub mod open;
pub mod prefix;
pub mod read;
pub mod update;
pub mod write;

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use attribute::{Attributes, Origin};
pub use capability::{Capability, GracefulRestart};
pub use frame::{Framer, Kind};
pub use notification::Notification;
pub use open::Open;
pub use update::{Arrived, Treated};

/// The head of every message: marker, length, type.
pub const HEAD: usize = 19;
/// What a message may have, and what it may have once extended messages were offered (RFC 8654).
pub const MESSAGE: usize = 4096;
/// See [`MESSAGE`].
pub const EXTENDED_MESSAGE: usize = 65_535;
/// What a speaker of 2-octet numbers is told in place of a number that is larger (RFC 6793).
pub const AS_TRANS: u16 = 23_456;

/// An address family with its subsequent one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Family {
    /// AFI 1, SAFI 1.
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    /// AFI 2, SAFI 1.
    #[serde(rename = "ipv6-unicast")]
    Ipv6Unicast,
}

impl Family {
    /// All that we speak.
    pub const ALL: [Family; 2] = [Family::Ipv4Unicast, Family::Ipv6Unicast];

    /// The address family identifier.
    pub fn afi(self) -> u16 {
        match self {
            Family::Ipv4Unicast => 1,
            Family::Ipv6Unicast => 2,
        }
    }

    /// The subsequent one: unicast.
    pub fn safi(self) -> u8 {
        1
    }

    /// The family of two numbers, if we speak it.
    pub fn of(afi: u16, safi: u8) -> Option<Family> {
        Family::ALL.into_iter().find(|family| (family.afi(), family.safi()) == (afi, safi))
    }

    /// The family that a prefix belongs to.
    pub fn of_prefix(prefix: &IpNet) -> Family {
        match prefix {
            IpNet::V4(_) => Family::Ipv4Unicast,
            IpNet::V6(_) => Family::Ipv6Unicast,
        }
    }

    /// AFI and SAFI as three octets.
    pub fn octets(self) -> [u8; 3] {
        let afi = self.afi().to_be_bytes();
        [afi[0], afi[1], self.safi()]
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4Unicast => "ipv4 unicast",
            Family::Ipv6Unicast => "ipv6 unicast",
        })
    }
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Who the peer is, and what it can.
    Open(Open),
    /// Routes, come and gone.
    Update(Arrived),
    /// The session is over, and why.
    Notification(Notification),
    /// The peer lives.
    Keepalive,
    /// What was advertised is asked for again, or such an answer begins or ends.
    Refresh(Refresh),
}

impl Message {
    /// The message of `kind` whose body (what follows the head) is `body`.
    pub fn read(kind: Kind, body: &[u8], context: &update::Context) -> Result<Message, Fault> {
        Ok(match kind {
            Kind::Open => Message::Open(Open::read(body)?),
            Kind::Update => Message::Update(update::read(body, context)?),
            Kind::Notification => Message::Notification(Notification::read(body)?),
            Kind::Keepalive => Message::Keepalive,
            Kind::Refresh => Message::Refresh(Refresh::read(body)?),
        })
    }
}

/// A ROUTE-REFRESH (RFC 2918, RFC 7313).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refresh {
    /// AFI and SAFI; only those of a [`Family`] concern us.
    pub family: (u16, u8),
    /// What of it.
    pub subtype: RefreshKind,
}

/// The subtype of a ROUTE-REFRESH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefreshKind {
    /// Say all again.
    Asked,
    /// Saying all again begins.
    Begin,
    /// Saying all again is done.
    End,
    /// Not known: to be ignored.
    Other(u8),
}

impl Refresh {
    /// For `family`.
    pub fn new(family: Family, subtype: RefreshKind) -> Refresh {
        Refresh { family: (family.afi(), family.safi()), subtype }
    }

    /// The octets, head and all.
    pub fn write(self) -> Vec<u8> {
        let subtype = match self.subtype {
            RefreshKind::Asked => 0,
            RefreshKind::Begin => 1,
            RefreshKind::End => 2,
            RefreshKind::Other(other) => other,
        };
        let afi = self.family.0.to_be_bytes();
        frame::message(Kind::Refresh, &[afi[0], afi[1], subtype, self.family.1])
    }

    fn read(body: &[u8]) -> Result<Refresh, Fault> {
        let &[high, low, subtype, safi, ref rest @ ..] = body else {
            return Err(Notification::message_length(HEAD + body.len()).into());
        };
        let subtype = match subtype {
            0 => RefreshKind::Asked,
            1 => RefreshKind::Begin,
            2 => RefreshKind::End,
            other => RefreshKind::Other(other),
        };
        // RFC 7313 section 5: of these two the length is known.
        if !rest.is_empty() && matches!(subtype, RefreshKind::Begin | RefreshKind::End) {
            let whole = frame::message(Kind::Refresh, body);
            return Err(Notification::new(7, 1, whole).into());
        }
        Ok(Refresh { family: (u16::from_be_bytes([high, low]), safi), subtype })
    }
}

/// Why a message isn't one, and what the session does about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The peer is told this, and the session ends.
    Notify(Notification),
    /// The session ends without a word: what was wrong was a notification (RFC 4271 section 6.4).
    Silent(&'static str),
}

impl From<Notification> for Fault {
    fn from(notification: Notification) -> Fault {
        Fault::Notify(notification)
    }
}

#[cfg(test)]
pub(crate) mod tests;
