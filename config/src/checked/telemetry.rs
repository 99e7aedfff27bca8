//! The `[telemetry]` section, validated.

use std::path::PathBuf;
use std::time::Duration;

/// Export of traces and metrics to an OpenTelemetry collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Telemetry {
    /// Base URL of the collector, without a slash at its end.
    pub endpoint: String,
    /// File with additional HTTP headers of the requests; `None` for none.
    pub headers_file: Option<PathBuf>,
    /// Time between two exports of the metrics.
    pub interval: Duration,
}
