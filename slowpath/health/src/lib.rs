//! Health checks of backends: scheduling, probes and verdicts, and responses on health check ports.
//!
//! ```text
//!   tables --> plan.rs (what to check) --> scheduler.rs --> probe.rs
//!     ^                                       |  verdict.rs    |
//!     |                                       |  <-- results --'
//!   writer <-- control loop <-- verdicts <----'
//!                                          node_port.rs: local backends, for load balancers
//! ```
//! `checker.rs` connects these parts; `counters.rs` and `report.rs` are for the metrics and `weir
//! health`. `verdict.rs` and `scheduler.rs` have neither clock nor socket. Verdicts are sent to the
//! control loop, which writes them to the tables; the tables alone decide which backends serve.
#![forbid(unsafe_code)]

pub mod checker;
pub mod counters;
pub mod node_port;
pub mod plan;
pub mod probe;
pub mod report;
pub mod scheduler;
pub mod tls;
pub mod verdict;
