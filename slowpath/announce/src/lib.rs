//! BGP control plane: selects the policy that applies to this appliance, computes the routes for
//! each peer, and withdraws routes before traffic would be black-holed.
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
//! Reconciliation is level-triggered: every round evaluates the whole state. Only `sockets` has
//! sockets. The time comes with the snapshot, except in `Controller::run`, which has timers.

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
