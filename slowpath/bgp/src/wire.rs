//! BGP's messages in our own words, and the way between them and bytes. Pure: bytes in, a message
//! or a [`Fault`] out. Nothing here knows of sockets, times or sessions.
//!
//! The codec is our own. `netgauze-bgp-pkt` was measured first (`wire/tests/measured.rs`): it
//! leaves the data of most notifications empty, misses RFC 9072 and loses its place after a
//! malformed attribute, and these are what RFC 7606 and section 6 of RFC 4271 are about. It reads
//! what we write in the tests, as a second opinion.

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
pub use context::Context;
pub use family::Family;
pub use frame::{EXTENDED_MESSAGE, HEAD, Kind, MESSAGE};
pub use framer::Framer;
pub use notification::{Fault, Notification};
pub use open::Open;
pub use refresh::{Refresh, RefreshKind};
pub use update::{Arrived, Treated};

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
    pub fn read(kind: Kind, body: &[u8], context: &Context) -> Result<Message, Fault> {
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
