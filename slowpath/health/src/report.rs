//! Status of health checks, as shown by `weir health`.

use serde::{Deserialize, Serialize};

/// Status of one backend of one service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Name of the service.
    pub service: String,
    /// The backend, for example `10.0.2.11:80/TCP`.
    pub backend: String,
    /// `unknown`, `healthy`, `unhealthy`, or `unprobed` if it cannot be checked.
    pub state: String,
    /// Seconds since `state` last changed; `None` while `unknown` or `unprobed`.
    pub since_s: Option<u64>,
    /// Outcome of the last check: `good`, `bad`, `not_run` (this machine could not run the check),
    /// or empty before the first one.
    pub last: String,
    /// What the last check observed, empty before the first one; if `unprobed`, why the backend
    /// cannot be checked.
    pub result: String,
    /// Seconds since the last result.
    pub last_check_s_ago: Option<u64>,
    /// Duration of the last check in milliseconds.
    pub took_ms: Option<u64>,
    /// Milliseconds until the next check; `None` while one is running, or if `unprobed`.
    pub next_ms: Option<u64>,
    /// Number of further consecutive results that would change the state: successes if `unhealthy`,
    /// otherwise failures. 0 if `unprobed`.
    pub needs: u32,
}
