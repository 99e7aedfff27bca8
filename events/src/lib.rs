//! Events: one list of everything that Weir's programs log, the history of what happened to the
//! appliance, and the log.
//!
//! ```text
//!  tracing::warn!(event = "bgp_session_closed", peer, reason, "BGP session closed")
//!      |                                     list.rs: name, severity, message, fields, meaning
//!      +--> log/       rate limit -> text, JSON or journald -> thread -> standard error
//!      +--> history.rs queue -> thread: merge.rs -> line_files.rs -> control.state/events
//! ```
//! One call writes both, so that log and history cannot differ. Neither blocks the caller: queues
//! are bounded, and what they lose is counted.
#![forbid(unsafe_code)]

pub(crate) mod fields;
pub mod filter;
pub(crate) mod flush;
pub mod history;
pub mod kind;
pub mod line_files;
pub mod list;
pub mod log;
pub(crate) mod merge;
pub mod page;
pub mod record;
pub mod record_files;
pub(crate) mod thread_capabilities;
