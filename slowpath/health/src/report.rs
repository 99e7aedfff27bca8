//! What is known of probed backends, as `weir health` shows it.

use serde::{Deserialize, Serialize};

/// One backend of one service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The service.
    pub service: String,
    /// The backend, `10.0.2.11:80/TCP`.
    pub backend: String,
    /// `unknown`, `healthy`, `unhealthy`, or `unprobed` where it can't be asked.
    pub state: String,
    /// Seconds since the verdict; none where there is none.
    pub since_s: Option<u64>,
    /// `good`, `bad`, `untold` (this machine could not ask), or empty before the first answer.
    pub last: String,
    /// What the last probe saw, or why there is none.
    pub why: String,
    /// Seconds since the last answer.
    pub asked_s_ago: Option<u64>,
    /// Milliseconds that the last probe took.
    pub took_ms: Option<u64>,
    /// Milliseconds until the next probe; none while it is under way.
    pub next_ms: Option<u64>,
    /// How many answers of the other kind in a row would change the state.
    pub needs: u32,
}
