//! The BGP speaker: sessions with routers, and what they are told of our frontends. Announce-only:
//! what peers say is parsed and counted, and never installed.
//!
//! | module | for |
//! |---|---|
//! | `wire` | messages and bytes, both ways |
//! | `session` | one connection from OPEN to its end |
//! | `peer` | all connections of a peer: connecting, collisions, rests, admin, BFD |
//! | `advertise` | what a peer should have against what it was sent |
//! | `told` | what those who look are told |
//! | `speaker` | sockets, clocks, BFD beside: what joins all of it to the network |
//!
//! None but the last has a socket or a clock. `CONFORMANCE.md` goes through RFC 4271 by section.

#![forbid(unsafe_code)]

pub mod advertise;
pub mod peer;
pub mod session;
pub mod speaker;
pub mod told;
pub mod wire;
