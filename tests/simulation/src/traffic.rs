//! Traffic of an appliance: flows come where the gateway sends new ones, and go by themselves.

use std::time::Instant;

use fastrand::Rng;

/// What goes through an appliance.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Flows in the table.
    pub flows: u64,
    /// Packets so far.
    pub packets: u64,
    /// When something was last active.
    pub active_at: Instant,
}

impl Traffic {
    /// None so far.
    pub fn new(now: Instant) -> Traffic {
        Traffic { flows: 0, packets: 0, active_at: now }
    }

    /// A second. The gateway may send packets here, and new flows.
    pub fn pass(&mut self, now: Instant, (packets, new_flows): (bool, bool), rng: &mut Rng) {
        if new_flows && rng.u32(..4) == 0 {
            self.flows += rng.u64(..3);
        }
        if self.flows > 0 && rng.u32(..8) == 0 {
            self.flows -= 1;
        }
        // Stateless ones are seen by their packets alone.
        if self.flows > 0 || (packets && rng.u32(..2) == 0) {
            self.packets += 1;
            self.active_at = now;
        }
    }
}
