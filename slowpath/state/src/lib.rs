//! Control state: the objects that operators and controllers write, the tables derived from them,
//! and the reconciler that brings data planes in line with the tables.
//!
//! ```text
//!   objects, stored by store.rs
//!      |
//!   reflect.rs --> writer.rs --> tables (services, frontends, backends; immutable snapshots)
//!                                  |            |
//!                               watch.rs     select.rs: the backends of each frontend
//!                                               |
//!                                         reconcile.rs --> plane.rs: interface of a data plane
//!                                               |
//!                                         status of each frontend, written back
//! ```
//! The crate opens no socket, reads no clock (time is an argument), and touches no file but the
//! store's.
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
pub mod select;
pub mod service;
pub mod services;
pub mod shared_btree;
pub mod show;
pub mod shrink;
pub mod sources;
pub mod store;
pub mod tables;
pub mod text;
pub mod watch;
pub mod writer;
