//! BGP message encoding and decoding. The functions are pure: bytes in, a message or a [`Fault`]
//! out, without sockets, clocks or session state.
//!
//! The codec is Weir's own. The crate `netgauze-bgp-pkt` was evaluated first
//! (`wire/tests/netgauze.rs`), with this result:
//!
//! - It leaves the data of most notifications empty, although RFC 4271 section 6 defines them.
//! - It rejects the extended optional parameters of RFC 9072.
//! - It loses its position after a malformed attribute, which rules out the error handling of RFC
//!   7606.
//!
//! The tests use that crate as an independent decoder of the messages encoded here.

pub mod attribute;
pub mod capability;
mod context;
mod family;
pub mod frame;
mod framer;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod notification;
pub mod open;
pub mod prefix;
pub mod read;
mod refresh;
pub mod update;
pub mod write;

pub use attribute::{AS_TRANS, Attributes, Origin};
pub use capability::{Capability, GracefulRestart};
pub use context::DecodeContext;
pub use family::Family;
pub use frame::{HEADER_SIZE, Kind, MAX_EXTENDED_MESSAGE, MAX_MESSAGE};
pub use framer::Framer;
pub use notification::{Fault, Notification};
pub use open::Open;
pub use refresh::{Refresh, RefreshKind};
pub use update::{ErrorHandling, ReceivedUpdate};

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Identity and capabilities of the peer.
    Open(Open),
    /// Announced and withdrawn routes.
    Update(ReceivedUpdate),
    /// End of the session and its reason.
    Notification(Notification),
    /// Restarts the hold timer.
    Keepalive,
    /// A request for all routes, or a marker of the beginning or end of the response (RFC 2918, RFC
    /// 7313).
    Refresh(Refresh),
}

impl Message {
    /// Decodes a message of type `kind`; `body` is the part after the header.
    pub fn read(kind: Kind, body: &[u8], context: &DecodeContext) -> Result<Message, Fault> {
        Ok(match kind {
            Kind::Open => Message::Open(Open::read(body)?),
            Kind::Update => Message::Update(update::read(body, context)?),
            Kind::Notification => Message::Notification(Notification::read(body)?),
            Kind::Keepalive => Message::Keepalive,
            Kind::Refresh => Message::Refresh(Refresh::read(body)?),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
