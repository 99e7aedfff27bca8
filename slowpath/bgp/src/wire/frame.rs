//! Message header: marker, length and type (RFC 4271 section 4.1).

/// Size of the message header in octets: marker, length, type.
pub const HEADER_SIZE: usize = 19;

/// Maximum message size in octets (RFC 4271 section 4.1).
pub const MAX_MESSAGE: usize = 4096;

/// Maximum size in octets of a message to a peer that advertised extended messages (RFC 8654).
pub const MAX_EXTENDED_MESSAGE: usize = 65_535;

/// Message type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// OPEN.
    Open = 1,
    /// UPDATE.
    Update = 2,
    /// NOTIFICATION.
    Notification = 3,
    /// KEEPALIVE.
    Keepalive = 4,
    /// ROUTE-REFRESH (RFC 2918).
    Refresh = 5,
}

impl Kind {
    pub(super) fn of(octet: u8) -> Option<Kind> {
        [Kind::Open, Kind::Update, Kind::Notification, Kind::Keepalive, Kind::Refresh]
            .into_iter()
            .find(|kind| *kind as u8 == octet)
    }

    /// Returns the minimum and maximum size of a message of this type; `limit` is the maximum
    /// message size of the session.
    pub(super) fn lengths(self, limit: usize) -> (usize, usize) {
        match self {
            Kind::Open => (29, MAX_MESSAGE),
            Kind::Update => (23, limit),
            Kind::Notification => (21, limit),
            Kind::Keepalive => (HEADER_SIZE, HEADER_SIZE),
            Kind::Refresh => (23, limit),
        }
    }
}

/// Encodes a message: header and `body`. Callers keep to the session's message size limit; a body
/// beyond the range of the length field is truncated.
pub fn message(kind: Kind, body: &[u8]) -> Vec<u8> {
    let length = (HEADER_SIZE + body.len()).min(MAX_EXTENDED_MESSAGE);
    let mut octets = Vec::with_capacity(length);
    octets.extend_from_slice(&[0xff; 16]);
    octets.extend_from_slice(&(length as u16).to_be_bytes());
    octets.push(kind as u8);
    octets.extend_from_slice(&body[..length - HEADER_SIZE]);
    octets
}

/// Encodes a KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    message(Kind::Keepalive, &[])
}
