//! Splits a stream of octets into messages: marker, length and type (RFC 4271 section 6.1).

use bytes::{Buf, Bytes, BytesMut};

use super::frame::{HEADER_SIZE, Kind, MAX_EXTENDED_MESSAGE, MAX_MESSAGE};
use super::notification::Notification;

/// Received octets, to be split into messages.
#[derive(Debug)]
pub struct Framer {
    octets: BytesMut,
    limit: usize,
}

impl Default for Framer {
    fn default() -> Framer {
        Framer { octets: BytesMut::new(), limit: MAX_MESSAGE }
    }
}

impl Framer {
    /// Accepts extended messages from now on (RFC 8654); to be called if the local OPEN advertises
    /// them.
    pub fn accept_extended_messages(&mut self) {
        self.limit = MAX_EXTENDED_MESSAGE;
    }

    /// Adds received octets.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Returns type and body of the next complete message; `None` if more octets are needed. After
    /// an error the stream cannot be parsed any further.
    pub fn next_message(&mut self) -> Result<Option<(Kind, Bytes)>, Notification> {
        let Some(&head) = self.octets.first_chunk::<HEADER_SIZE>() else { return Ok(None) };
        if head[..16] != [0xff; 16] {
            // Connection Not Synchronized.
            return Err(Notification::new(1, 1, Vec::new()));
        }
        let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
        if !(HEADER_SIZE..=self.limit).contains(&length) {
            return Err(Notification::message_length(length));
        }
        // Bad Message Type.
        let kind = Kind::of(head[18]).ok_or_else(|| Notification::new(1, 3, vec![head[18]]))?;
        let (min, max) = kind.lengths(self.limit);
        if !(min..=max).contains(&length) {
            return Err(Notification::message_length(length));
        }
        if self.octets.len() < length {
            return Ok(None);
        }
        let mut message = self.octets.split_to(length).freeze();
        message.advance(HEADER_SIZE);
        Ok(Some((kind, message)))
    }
}
