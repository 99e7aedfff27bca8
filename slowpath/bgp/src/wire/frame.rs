//! The frame of a message: marker, length and type (RFC 4271 section 4.1).

/// The head of every message: marker, length, type.
pub const HEAD: usize = 19;

/// What a message may have, and what it may have once extended messages were offered (RFC 8654).
pub const MESSAGE: usize = 4096;

/// See [`MESSAGE`].
pub const EXTENDED_MESSAGE: usize = 65_535;

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// 1.
    Open = 1,
    /// 2.
    Update = 2,
    /// 3.
    Notification = 3,
    /// 4.
    Keepalive = 4,
    /// 5, RFC 2918.
    Refresh = 5,
}

impl Kind {
    pub(super) fn of(octet: u8) -> Option<Kind> {
        [Kind::Open, Kind::Update, Kind::Notification, Kind::Keepalive, Kind::Refresh]
            .into_iter()
            .find(|kind| *kind as u8 == octet)
    }

    /// What a message of this type has at least and at most, where `limit` is the session's.
    pub(super) fn lengths(self, limit: usize) -> (usize, usize) {
        match self {
            Kind::Open => (29, MESSAGE),
            Kind::Update => (23, limit),
            Kind::Notification => (21, limit),
            Kind::Keepalive => (HEAD, HEAD),
            Kind::Refresh => (23, limit),
        }
    }
}

/// A whole message: head and `body`. A body is never longer than a length field can say: each
/// writer keeps to a limit.
pub fn message(kind: Kind, body: &[u8]) -> Vec<u8> {
    let length = (HEAD + body.len()).min(EXTENDED_MESSAGE);
    let mut octets = Vec::with_capacity(length);
    octets.extend_from_slice(&[0xff; 16]);
    octets.extend_from_slice(&(length as u16).to_be_bytes());
    octets.push(kind as u8);
    octets.extend_from_slice(&body[..length - HEAD]);
    octets
}

/// A KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    message(Kind::Keepalive, &[])
}
