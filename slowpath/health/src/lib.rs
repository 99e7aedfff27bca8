//! Health of backends: probes them, judges them, and answers for those that are local.
//!
//! ```text
//!   tables --> plan.rs (what is asked of whom) --> machine.rs (who is probed when) --> probe.rs
//!     ^                                               |  judge.rs (what that makes)       |
//!     |                                               |  <--------- answers --------------'
//!   writer <-- the control loop <-- verdicts <--------'
//!                                                  node_port.rs: local backends, for who asks
//! ```
//! `checker.rs` joins them. Judge and machine have neither clock nor socket. A verdict is told to
//! the control loop, which writes it; what serves is what the tables say, and never what is known
//! here.
#![forbid(unsafe_code)]

pub mod checker;
pub mod counters;
pub mod judge;
pub mod machine;
pub mod node_port;
pub mod plan;
pub mod probe;
pub mod report;
pub mod tls;
