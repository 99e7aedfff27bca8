//! Encoding and decoding of ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::family::Family;
use super::frame::{self, HEADER_SIZE, Kind};
use super::notification::{Fault, Notification};

/// A ROUTE-REFRESH message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refresh {
    /// AFI and SAFI; those without a [`Family`] are ignored.
    pub family: (u16, u8),
    /// Message subtype.
    pub subtype: RefreshKind,
}

/// Message subtype of a ROUTE-REFRESH (RFC 7313).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefreshKind {
    /// Request for all routes (subtype 0).
    Request,
    /// Beginning of a route refresh (BoRR, subtype 1).
    Begin,
    /// End of a route refresh (EoRR, subtype 2).
    End,
    /// Unknown subtype, to be ignored.
    Other(u8),
}

impl Refresh {
    /// Creates a message for `family`.
    pub fn new(family: Family, subtype: RefreshKind) -> Refresh {
        Refresh { family: (family.afi(), family.safi()), subtype }
    }

    /// Encodes the message.
    pub fn write(self) -> Vec<u8> {
        let subtype = match self.subtype {
            RefreshKind::Request => 0,
            RefreshKind::Begin => 1,
            RefreshKind::End => 2,
            RefreshKind::Other(other) => other,
        };
        let afi = self.family.0.to_be_bytes();
        frame::message(Kind::Refresh, &[afi[0], afi[1], subtype, self.family.1])
    }

    pub(super) fn read(body: &[u8]) -> Result<Refresh, Fault> {
        let &[high, low, subtype, safi, ref rest @ ..] = body else {
            return Err(Notification::message_length(HEADER_SIZE + body.len()).into());
        };
        let subtype = match subtype {
            0 => RefreshKind::Request,
            1 => RefreshKind::Begin,
            2 => RefreshKind::End,
            other => RefreshKind::Other(other),
        };
        // RFC 7313 section 5: only the length of these two subtypes is checked.
        if !rest.is_empty() && matches!(subtype, RefreshKind::Begin | RefreshKind::End) {
            let message = frame::message(Kind::Refresh, body);
            return Err(Notification::new(7, 1, message).into());
        }
        Ok(Refresh { family: (u16::from_be_bytes([high, low]), safi), subtype })
    }
}
