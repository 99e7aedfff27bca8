//! The `[telemetry]` section as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Export of traces and metrics to an OpenTelemetry collector.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Base URL of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`; traces
    /// are sent to `/v1/traces` below it, metrics to `/v1/metrics`. Certificates of `https` are
    /// checked with the system's roots; `HTTPS_PROXY` and `NO_PROXY` are honored with `https`.
    /// Empty: nothing is exported.
    pub otlp_endpoint: String,
    /// File with additional headers of the requests, one `NAME: VALUE` per line, such as an
    /// authorization; at most 4 KiB. It is read before each request.
    #[schemars(extend("x-weir" = "secret"))]
    pub headers_file: String,
    /// Seconds between two exports of the metrics.
    #[schemars(range(min = 1, max = 3600))]
    pub interval_s: u32,
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry { otlp_endpoint: String::new(), headers_file: String::new(), interval_s: 30 }
    }
}
