//! slowpath: sources ask, state remembers, reconcile compares, targets are told.
//!
//! ```text
//!  services file --> sources/file.rs --> state.rs --> reconcile.rs --> targets/tables.rs
//!                                                        |  ^               | commit
//!                       kernel --> neighbours.rs --------'  |               v
//!                                                  rings <--'            region <--> fastpath
//!                                                                           |
//!     backends <-- checks.rs: the crate `health` --> verdicts, to the control loop
//!       probes <-- health.rs      Prometheus <-- metrics.rs <-- live.rs <---'
//!                                 `weir`     <-- control.rs <----'
//! ```
//! One thread runs the control loop and alone writes; all others read the region and what the loop
//! publishes. slowpath may be killed at any time: the fastpath goes on with the tables as they are,
//! and the next slowpath finds its place from the region.
#![forbid(unsafe_code)]

mod busy;

pub mod announcing;
pub mod checks;
pub mod cloud;
pub mod control;
pub mod counted;
pub mod desired;
pub mod explain;
pub mod flows;
pub mod followed;
pub mod health;
pub mod heartbeat;
pub mod lcores;
pub mod listening;
pub mod live;
pub mod metrics;
pub mod neighbours;
mod parting;
pub mod path_mtus;
pub mod private_link;
mod privileges;
pub mod probe_addresses;
pub mod proxy_rules;
pub mod published;
pub mod reconcile;
pub mod report;
pub mod rings;
pub mod sources;
pub mod start;
pub mod targets;
pub mod trace;
