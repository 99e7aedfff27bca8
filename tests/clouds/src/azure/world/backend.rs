//! Members of pools by what their probes say.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A member of a pool by what its probes say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// Id of the pool.
    pub pool: String,
    /// The member's address.
    pub address: String,
    /// Id of its IP configuration, where it is a member by that.
    pub configuration: Option<String>,
    /// What its probes bring.
    pub good: bool,
    /// It gets new flows: one good probe is enough, two bad ones end it.
    pub up: bool,
    /// Bad probes in a row.
    pub bad: u32,
    /// When it is probed next.
    pub next: Duration,
}

impl Backend {
    /// A member whose first probe is still to come.
    pub fn new(
        (pool, address, configuration): (String, String, Option<String>),
        good: bool,
        next: Duration,
    ) -> Backend {
        Backend { pool, address, configuration, good, up: false, bad: 0, next }
    }

    /// Carries out its probes until now.
    pub fn pass(&mut self, now: Duration, interval: Duration) {
        while self.next <= now {
            self.bad = if self.good { 0 } else { self.bad.saturating_add(1) };
            self.up = self.good || (self.up && self.bad < 2);
            self.next += interval.max(Duration::from_millis(1));
        }
    }

    /// Whether new flows come: its probes say so, and no administrative state says otherwise. Where
    /// no rule has a probe they always do.
    pub fn serves(&self, admin: Option<&str>, probed: bool) -> bool {
        match admin {
            _ if !probed => true,
            Some("Down") => false,
            Some("Up") => true,
            _ => self.up,
        }
    }
}
