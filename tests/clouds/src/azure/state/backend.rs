//! Probe state of pool members.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Probe state of a pool member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// Id of the pool.
    pub pool: String,
    /// Address of the member.
    pub address: String,
    /// Id of the IP configuration of a member by interface; `None` for a member by address.
    pub configuration: Option<String>,
    /// True if the member's probes succeed from now on.
    pub good: bool,
    /// True if the member receives new flows according to its probes: from one successful probe
    /// until two consecutive failed ones.
    pub up: bool,
    /// Consecutive failed probes.
    pub bad: u32,
    /// Time of the next probe, since the emulator's start.
    pub next: Duration,
}

impl Backend {
    /// Returns a member before its first probe.
    pub fn new(
        (pool, address, configuration): (String, String, Option<String>),
        good: bool,
        next: Duration,
    ) -> Backend {
        Backend { pool, address, configuration, good, up: false, bad: 0, next }
    }

    /// Performs the member's probes until now.
    pub fn pass(&mut self, now: Duration, interval: Duration) {
        while self.next <= now {
            self.bad = if self.good { 0 } else { self.bad.saturating_add(1) };
            self.up = self.good || (self.up && self.bad < 2);
            self.next += interval.max(Duration::from_millis(1));
        }
    }

    /// Returns true if the member receives new flows, by its probes and its administrative state.
    /// If no rule has a probe (`probed` is false), the member always receives them.
    pub fn serves(&self, admin: Option<&str>, probed: bool) -> bool {
        match admin {
            _ if !probed => true,
            Some("Down") => false,
            Some("Up") => true,
            _ => self.up,
        }
    }
}
