//! Scheduled events.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A scheduled event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Id, a UUID.
    pub id: String,
    /// Type: `Freeze`, `Reboot`, `Redeploy`, `Preempt` or `Terminate`.
    pub kind: String,
    /// Names of the affected machines.
    pub machines: Vec<String>,
    /// Time at which the event starts unless it is acknowledged before, since the emulator's start.
    pub not_before: Duration,
    /// True once the event has started.
    pub started: bool,
    /// Duration of the event after its start.
    pub lasts: Duration,
    /// Azure's description.
    pub description: String,
}
