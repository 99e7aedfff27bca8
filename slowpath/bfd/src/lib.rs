//! Bidirectional Forwarding Detection (RFC 5880), single-hop (RFC 5881) and multihop (RFC 5883):
//! detects within a fraction of a second whether the path to a neighbor carries packets.
//!
//! ```text
//!   UDP -> packet (parsed, or a counted discard) -> machine (one per neighbor) -> packet -> UDP
//!          `------------------ driver: sockets, clock, session lookup -----------------'
//!                                       |
//!                          events: up, down with reason; status
//! ```
//!
//! Sessions use asynchronous mode. Demand mode is never requested by this side, but respected if
//! the neighbor requests it. Echo packets are not accepted, which is advertised as a Required Min
//! Echo RX Interval of 0. Authentication is not supported: authenticated packets are discarded, as
//! RFC 5880 section 6.8.6 requires of a session without a key. The TTL check (GTSM) protects
//! against remote senders instead.

#![forbid(unsafe_code)]

pub mod driver;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod machine;
pub mod packet;
mod receive;
mod session;
pub mod settings;
pub mod status;

pub use driver::{Bfd, Driver, DriverParams, Error, Event, open};
pub use settings::{Key, Settings, SettingsError};
pub use status::{BfdStatus, SessionStatus};
