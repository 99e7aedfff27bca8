//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use super::family::Family;
use super::frame::{self, HEAD, Kind};
use super::notification::{Fault, Notification};

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

    pub(super) fn read(body: &[u8]) -> Result<Refresh, Fault> {
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
