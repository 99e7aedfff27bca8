//! BGP's control plane: which policy applies to this appliance, what is announced to whom, and
//! what is withdrawn before it would be a lie.
//!
//! ```text
//!   objects --> select.rs: the one policy that applies
//!                  |
//!   snapshot.rs ---+--> controller.rs --> routers.rs (trait) --> announcer.rs
//!   tables, able,                                                  |       |
//!   addresses                             peers.rs: sessions <-----+       +--> routes.rs: tables
//!                                         secrets.rs: keys <-------'
//!                                                          speaker.rs (trait) --> sockets.rs
//! ```
//! Level-triggered: every round looks at the whole state. Nothing but `sockets` has a socket;
//! times come with the snapshot, but in `Controller::run`, which waits.

#![forbid(unsafe_code)]

pub mod announcer;
pub mod controller;
pub mod leave;
pub mod peers;
pub mod routers;
pub mod routes;
pub mod secrets;
pub mod select;
pub mod snapshot;
pub mod sockets;
pub mod speaker;
pub mod told;

#[cfg(test)]
mod world;
