//! Bidirectional forwarding detection (RFC 5880) over one hop (RFC 5881) and over several (RFC
//! 5883): whether the way to a neighbour carries packets, known in a fraction of a second.
//!
//! ```text
//!   UDP -> packet (parsed or a counted discard) -> machine (one a neighbour) -> packet -> UDP
//!          `------------------ driver: sockets, clock, who is meant ------------------'
//!                                       |
//!                         events: up, down and why; what is told
//! ```
//!
//! Asynchronous mode. We never ask for demand mode, but keep silent for a neighbour that does; we
//! take no echo packets and say so; and we have no authentication: packets that carry it are
//! discarded, as RFC 5880 asks of one who has no key. What stands in for it is the hop count.

#![forbid(unsafe_code)]

pub mod driver;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod machine;
pub mod packet;
mod receive;
mod session;
pub mod settings;
pub mod told;

pub use driver::{Bfd, Driver, Error, Event, Given, open};
pub use settings::{Key, Settings, SettingsError};
pub use told::{Report, Told};
