//! NOTIFICATION: why a session ends, as octets and in words (RFC 4271 section 4.5 and 6, RFC 4486,
//! 6608, 8538, 9003, 9384, 9687).

use std::fmt;

use super::frame::{self, HEAD, Kind, MESSAGE};

/// The code of a Cease.
pub const CEASE: u8 = 6;
/// Subcodes of a Cease.
pub mod cease {
    /// Administrative shutdown; may carry words.
    pub const SHUTDOWN: u8 = 2;
    /// The peer isn't configured any more.
    pub const DECONFIGURED: u8 = 3;
    /// Administrative reset; may carry words.
    pub const RESET: u8 = 4;
    /// Something of the configuration changed.
    pub const CHANGED: u8 = 6;
    /// The other of two connections stays.
    pub const COLLISION: u8 = 7;
    /// Graceful restart must not keep the routes (RFC 8538); the true reason is in the data.
    pub const HARD_RESET: u8 = 9;
    /// BFD says the path is down (RFC 9384).
    pub const BFD_DOWN: u8 = 10;
}
/// The longest words that a shutdown carries, in octets (RFC 9003).
const WORDS: usize = 255;

/// Why a session ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The kind of error.
    pub code: u8,
    /// Which one of the kind; 0 is unspecific.
    pub subcode: u8,
    /// What the kind asks for.
    pub data: Vec<u8>,
}

impl Notification {
    /// Of its three parts.
    pub fn new(code: u8, subcode: u8, data: Vec<u8>) -> Notification {
        Notification { code, subcode, data }
    }

    /// Bad message length, with the length that was found.
    pub fn message_length(length: usize) -> Notification {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        Notification::new(1, 2, length.to_be_bytes().to_vec())
    }

    /// The hold timer ran out.
    pub fn hold_timer() -> Notification {
        Notification::new(4, 0, Vec::new())
    }

    /// What we sent was not taken for too long (RFC 9687).
    pub fn send_hold_timer() -> Notification {
        Notification::new(8, 0, Vec::new())
    }

    /// A message that has no place in a state: 1 OpenSent, 2 OpenConfirm, 3 Established (RFC 6608).
    pub fn unexpected(state: u8, kind: Kind) -> Notification {
        Notification::new(5, state, vec![kind as u8])
    }

    /// A Cease without words.
    pub fn cease(subcode: u8) -> Notification {
        Notification::new(CEASE, subcode, Vec::new())
    }

    /// A Cease with words for the operator of the peer, cut to what fits (RFC 9003).
    pub fn cease_with(subcode: u8, words: &str) -> Notification {
        if words.is_empty() {
            return Notification::cease(subcode);
        }
        let end = (0..=words.len().min(WORDS)).rev().find(|end| words.is_char_boundary(*end));
        let words = &words.as_bytes()[..end.unwrap_or(0)];
        let mut data = vec![words.len() as u8];
        data.extend_from_slice(words);
        Notification::new(CEASE, subcode, data)
    }

    /// The same, wrapped so that graceful restart doesn't keep our routes (RFC 8538 section 3).
    pub fn hard(self) -> Notification {
        let mut data = vec![self.code, self.subcode];
        data.extend(self.data);
        Notification::new(CEASE, cease::HARD_RESET, data)
    }

    /// The octets, head and all; data that no message has room for is cut.
    pub fn write(&self) -> Vec<u8> {
        let room = MESSAGE - HEAD - 2;
        let mut body = vec![self.code, self.subcode];
        body.extend_from_slice(&self.data[..self.data.len().min(room)]);
        frame::message(Kind::Notification, &body)
    }

    /// A notification with an error in it can't be answered by another.
    pub(super) fn read(body: &[u8]) -> Result<Notification, Fault> {
        match body {
            [code, subcode, data @ ..] => Ok(Notification::new(*code, *subcode, data.to_vec())),
            _ => Err(Fault::Silent("a notification without code and subcode")),
        }
    }

    /// The words that a shutdown or reset carries.
    pub fn words(&self) -> Option<&str> {
        let says = self.code == CEASE && matches!(self.subcode, cease::SHUTDOWN | cease::RESET);
        let (length, rest) = self.data.split_first().filter(|_| says)?;
        let words = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
        Some(words).filter(|words| !words.is_empty())
    }

    fn name(&self) -> (&'static str, Option<&'static str>) {
        let code = match self.code {
            1 => "message header error",
            2 => "OPEN message error",
            3 => "UPDATE message error",
            4 => "hold timer expired",
            5 => "finite state machine error",
            6 => "cease",
            7 => "ROUTE-REFRESH message error",
            8 => "send hold timer expired",
            _ => "error of an unknown kind",
        };
        // One list, a line each.
        let subcode = match (self.code, self.subcode) {
            (1, 1) => "connection not synchronized",
            (1, 2) => "bad message length",
            (1, 3) => "bad message type",
            (2, 1) => "unsupported version number",
            (2, 2) => "bad peer AS",
            (2, 3) => "bad BGP identifier",
            (2, 4) => "unsupported optional parameter",
            (2, 6) => "unacceptable hold time",
            (2, 7) => "unsupported capability",
            (2, 8) => "deprecated subcode 8",
            (2, 11) => "role mismatch",
            (3, 1) => "malformed attribute list",
            (3, 2) => "unrecognized well-known attribute",
            (3, 3) => "missing well-known attribute",
            (3, 4) => "attribute flags error",
            (3, 5) => "attribute length error",
            (3, 6) => "invalid ORIGIN attribute",
            (3, 8) => "invalid NEXT_HOP attribute",
            (3, 9) => "optional attribute error",
            (3, 10) => "invalid network field",
            (3, 11) => "malformed AS_PATH",
            (5, 1) => "unexpected message in OpenSent",
            (5, 2) => "unexpected message in OpenConfirm",
            (5, 3) => "unexpected message in Established",
            (6, 1) => "maximum number of prefixes reached",
            (6, 2) => "administrative shutdown",
            (6, 3) => "peer de-configured",
            (6, 4) => "administrative reset",
            (6, 5) => "connection rejected",
            (6, 6) => "other configuration change",
            (6, 7) => "connection collision resolution",
            (6, 8) => "out of resources",
            (6, 9) => "hard reset",
            (6, 10) => "BFD down",
            (7, 1) => "invalid message length",
            _ => return (code, None),
        };
        (code, Some(subcode))
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, subcode) = self.name();
        f.write_str(code)?;
        match subcode {
            Some(subcode) => write!(f, ": {subcode}")?,
            None if self.subcode != 0 => write!(f, " ({}/{})", self.code, self.subcode)?,
            None => {}
        }
        if (self.code, self.subcode) == (CEASE, cease::HARD_RESET) {
            // The true reason; a hard reset in a hard reset is none.
            return match Notification::read(&self.data) {
                Ok(inner) if inner.subcode != cease::HARD_RESET => write!(f, " ({inner})"),
                _ => Ok(()),
            };
        }
        match self.words() {
            Some(words) => write!(f, ", \"{}\"", words.escape_debug()),
            None => Ok(()),
        }
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
