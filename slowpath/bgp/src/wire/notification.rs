//! NOTIFICATION: encoding, decoding and names of error codes (RFC 4271 sections 4.5 and 6, RFC
//! 4486, RFC 6608, RFC 8538, RFC 9003, RFC 9384, RFC 9687).

use std::fmt;

use super::frame::{self, HEADER_SIZE, Kind, MAX_MESSAGE};

/// Error code of Cease.
pub const CEASE: u8 = 6;
/// Subcodes of Cease.
pub mod cease {
    /// Administrative Shutdown; may carry a message.
    pub const SHUTDOWN: u8 = 2;
    /// Peer De-configured.
    pub const DECONFIGURED: u8 = 3;
    /// Administrative Reset; may carry a message.
    pub const RESET: u8 = 4;
    /// Other Configuration Change.
    pub const CHANGED: u8 = 6;
    /// Connection Collision Resolution.
    pub const COLLISION: u8 = 7;
    /// Hard Reset: graceful restart must not keep the routes (RFC 8538). The data holds the actual
    /// reason.
    pub const HARD_RESET: u8 = 9;
    /// BFD Down (RFC 9384).
    pub const BFD_DOWN: u8 = 10;
}
/// Maximum length of a shutdown message in octets (RFC 9003).
const MAX_SHUTDOWN_MESSAGE: usize = 255;

/// A NOTIFICATION.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode; 0 if none is defined.
    pub subcode: u8,
    /// Data, whose format depends on code and subcode.
    pub data: Vec<u8>,
}

impl Notification {
    /// Creates a NOTIFICATION.
    pub fn new(code: u8, subcode: u8, data: Vec<u8>) -> Notification {
        Notification { code, subcode, data }
    }

    /// Bad Message Length, with the erroneous length.
    pub fn message_length(length: usize) -> Notification {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        Notification::new(1, 2, length.to_be_bytes().to_vec())
    }

    /// Hold Timer Expired.
    pub fn hold_timer() -> Notification {
        Notification::new(4, 0, Vec::new())
    }

    /// Send Hold Timer Expired: the peer did not read for too long (RFC 9687).
    pub fn send_hold_timer() -> Notification {
        Notification::new(8, 0, Vec::new())
    }

    /// Finite State Machine Error: a message of type `kind` is not allowed in `state`, which is 1
    /// for OpenSent, 2 for OpenConfirm, 3 for Established (RFC 6608).
    pub fn unexpected(state: u8, kind: Kind) -> Notification {
        Notification::new(5, state, vec![kind as u8])
    }

    /// Cease without a message.
    pub fn cease(subcode: u8) -> Notification {
        Notification::new(CEASE, subcode, Vec::new())
    }

    /// Cease with a message for the peer's operator, truncated at a character boundary to 255
    /// octets (RFC 9003).
    pub fn cease_with_message(subcode: u8, message: &str) -> Notification {
        if message.is_empty() {
            return Notification::cease(subcode);
        }
        let end = (0..=message.len().min(MAX_SHUTDOWN_MESSAGE))
            .rev()
            .find(|end| message.is_char_boundary(*end));
        let message = &message.as_bytes()[..end.unwrap_or(0)];
        let mut data = vec![message.len() as u8];
        data.extend_from_slice(message);
        Notification::new(CEASE, subcode, data)
    }

    /// Wraps this notification in a hard reset, so that graceful restart does not keep the routes
    /// (RFC 8538 section 3).
    pub fn hard(self) -> Notification {
        let mut data = vec![self.code, self.subcode];
        data.extend(self.data);
        Notification::new(CEASE, cease::HARD_RESET, data)
    }

    /// Encodes the message; data that exceeds the maximum message size is truncated.
    pub fn write(&self) -> Vec<u8> {
        let capacity = MAX_MESSAGE - HEADER_SIZE - 2;
        let mut body = vec![self.code, self.subcode];
        body.extend_from_slice(&self.data[..self.data.len().min(capacity)]);
        frame::message(Kind::Notification, &body)
    }

    /// Decodes a NOTIFICATION. An error in a NOTIFICATION cannot be reported to the peer (RFC 4271
    /// section 6.4).
    pub(super) fn read(body: &[u8]) -> Result<Notification, Fault> {
        match body {
            [code, subcode, data @ ..] => Ok(Notification::new(*code, *subcode, data.to_vec())),
            _ => Err(Fault::Silent("NOTIFICATION without code and subcode")),
        }
    }

    /// Returns the message that a shutdown or reset carries (RFC 9003).
    pub fn message(&self) -> Option<&str> {
        let has_message =
            self.code == CEASE && matches!(self.subcode, cease::SHUTDOWN | cease::RESET);
        let (length, rest) = self.data.split_first().filter(|_| has_message)?;
        let message = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
        Some(message).filter(|message| !message.is_empty())
    }

    /// Returns the names of the error code and the subcode.
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
            _ => "unknown error code",
        };
        // One table with a line per subcode.
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
            // Shows the actual reason; a hard reset within a hard reset is invalid.
            return match Notification::read(&self.data) {
                Ok(inner) if inner.subcode != cease::HARD_RESET => write!(f, " ({inner})"),
                _ => Ok(()),
            };
        }
        match self.message() {
            Some(message) => write!(f, ", \"{}\"", message.escape_debug()),
            None => Ok(()),
        }
    }
}

/// Why a message is invalid, and how the session reacts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Send this NOTIFICATION and end the session.
    Notify(Notification),
    /// End the session without a NOTIFICATION, because the error is in a NOTIFICATION (RFC 4271
    /// section 6.4).
    Silent(&'static str),
}

impl From<Notification> for Fault {
    fn from(notification: Notification) -> Fault {
        Fault::Notify(notification)
    }
}
