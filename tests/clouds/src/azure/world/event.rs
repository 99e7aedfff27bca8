//! Scheduled events.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A scheduled event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Its id, a UUID.
    pub id: String,
    /// `Freeze`, `Reboot`, `Redeploy`, `Preempt`, `Terminate`.
    pub kind: String,
    /// Names of the machines that it concerns.
    pub machines: Vec<String>,
    /// It does not begin before, unless all agree.
    pub not_before: Duration,
    /// It has begun.
    pub started: bool,
    /// It is over this long after it began.
    pub lasts: Duration,
    /// In Azure's words.
    pub description: String,
}
