//! What a trace is to follow.

use std::time::Duration;

use tables::command::TraceFilter;
use tokio::sync::mpsc;

use crate::control::report::TraceLine;

/// A wish to follow packets.
pub struct TraceRequest {
    /// Which, and how many.
    pub filter: TraceFilter,
    /// For how long at most.
    pub lasts: Duration,
    /// Where the lines go; closed by whoever asked when they went away.
    pub lines: mpsc::Sender<TraceLine>,
}
