//! BGP control plane: selects the policy that applies to this appliance, computes the routes for
//! each peer, and withdraws routes before traffic would be black-holed.
//!
//! ```text
//!   objects ------> select.rs: the one policy that applies
//!                      |
//!                      v
//!   snapshot.rs --> controller.rs: rounds, retries, shutdown
//!   tables,            |
//!   forwarding,        v
//!   addresses       apply.rs: trait PolicyApplier, implemented by announcer.rs with
//!                      |        peers.rs: session settings
//!                      |        secrets.rs: keys
//!                      |        routes.rs: the route table for each neighbor
//!                      v
//!                   speaker.rs: trait Speaker, implemented by sockets.rs
//! ```
//! Reconciliation is level-triggered: every round evaluates the whole state. Only `sockets` has
//! sockets. The time comes with the snapshot or as an argument, except in `Controller`, which has
//! timers and measures its rounds, and in `announcer::keys::watch`, which polls files.

#![forbid(unsafe_code)]

pub mod announcer;
pub mod apply;
pub mod controller;
pub mod peers;
pub mod routes;
pub mod secrets;
pub mod select;
pub mod shutdown;
pub mod snapshot;
pub mod sockets;
pub mod speaker;
pub mod status;

#[cfg(test)]
mod fixture;
