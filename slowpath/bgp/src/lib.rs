//! BGP speaker: sessions with routers and the advertisement of frontend routes to them. It is
//! announce-only: routes that peers send are parsed and counted, never installed.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | message encoding and decoding |
//! | `session` | one connection, from OPEN to its end |
//! | `peer` | peer state machine: connecting, collisions, backoff, administrative stop, BFD |
//! | `advertise` | difference between desired and sent routes, and the UPDATEs for it |
//! | `status` | peer status for the API, `weir bgp` and the metrics |
//! | `speaker` | sockets, timers and BFD: the only module that does I/O |
//!
//! All modules but `speaker` are free of sockets and clocks. `CONFORMANCE.md` lists the conformance
//! to RFC 4271 by section.

#![forbid(unsafe_code)]

pub mod advertise;
pub mod peer;
pub mod session;
pub mod speaker;
pub mod status;
pub mod wire;
