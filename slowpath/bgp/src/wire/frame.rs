//! From a stream of octets to messages: marker, length and type (RFC 4271 section 6.1).

use bytes::{Buf, Bytes, BytesMut};

use super::{EXTENDED_MESSAGE, HEAD, MESSAGE, Notification};

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
    fn of(octet: u8) -> Option<Kind> {
        [Kind::Open, Kind::Update, Kind::Notification, Kind::Keepalive, Kind::Refresh]
            .into_iter()
            .find(|kind| *kind as u8 == octet)
    }

    /// What a message of this type has at least and at most, where `limit` is the session's.
    fn lengths(self, limit: usize) -> (usize, usize) {
        match self {
            Kind::Open => (29, MESSAGE),
            Kind::Update => (23, limit),
            Kind::Notification => (21, limit),
            Kind::Keepalive => (HEAD, HEAD),
            Kind::Refresh => (23, limit),
        }
    }
}

/// Octets that came, cut into messages.
#[derive(Debug)]
pub struct Framer {
    octets: BytesMut,
    limit: usize,
}

impl Default for Framer {
    fn default() -> Framer {
        Framer { octets: BytesMut::new(), limit: MESSAGE }
    }
}

impl Framer {
    /// From now on extended messages may come: we offered it (RFC 8654).
    pub fn extend(&mut self) {
        self.limit = EXTENDED_MESSAGE;
    }

    /// Takes what came.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// The next whole message: its type and its body. `None`: more octets are wanted. After an
    /// error the stream has no meaning any more.
    pub fn next_message(&mut self) -> Result<Option<(Kind, Bytes)>, Notification> {
        let Some(&head) = self.octets.first_chunk::<HEAD>() else { return Ok(None) };
        if head[..16] != [0xff; 16] {
            return Err(Notification::new(1, 1, Vec::new()));
        }
        let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
        if !(HEAD..=self.limit).contains(&length) {
            return Err(Notification::message_length(length));
        }
        let kind = Kind::of(head[18]).ok_or_else(|| Notification::new(1, 3, vec![head[18]]))?;
        let (least, most) = kind.lengths(self.limit);
        if !(least..=most).contains(&length) {
            return Err(Notification::message_length(length));
        }
        if self.octets.len() < length {
            return Ok(None);
        }
        let mut message = self.octets.split_to(length).freeze();
        message.advance(HEAD);
        Ok(Some((kind, message)))
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
