//! The control state: what people and machines asked for, and how planes come to be so.
//!
//! ```text
//!   objects --> writer --> tables (services, frontends, backends; immutable snapshots)
//!                            |            |
//!                          watches     select.rs: which backends a frontend gets
//!                                         |
//!                                   reconcile.rs --> plane.rs: the region, in memory or BPF maps
//!                                         |
//!                                       status, written back
//! ```
//! No socket, no clock, no file but the store's: time is an argument.
#![forbid(unsafe_code)]

pub use config::services::{address, labels};

pub mod appliance;
pub mod backend;
pub mod dump;
pub mod frontend;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod kubernetes;
pub mod name;
pub mod object;
pub mod plane;
pub mod reconcile;
pub mod reflect;
pub mod room;
pub mod select;
pub mod service;
pub mod services;
pub mod show;
pub mod sorted;
pub mod sources;
pub mod store;
pub mod tables;
pub mod watch;
pub mod words;
pub mod writer;
