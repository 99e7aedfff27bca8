//! Request for a packet trace.

use std::time::Duration;

use tables::command::TraceFilter;
use tokio::sync::mpsc;

use crate::control::report::TraceLine;

/// A request for a packet trace.
pub struct TraceRequest {
    /// Which packets to trace, and how many.
    pub filter: TraceFilter,
    /// Maximum duration of the trace.
    pub duration: Duration,
    /// Channel for the lines. The receiver is closed when the client disconnects.
    pub lines: mpsc::Sender<TraceLine>,
}
