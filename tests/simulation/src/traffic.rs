//! Emulated traffic: flows arrive while the gateway sends new ones, and end by themselves.

use std::time::Instant;

use fastrand::Rng;

/// Emulated traffic of an appliance.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Flows in the table.
    pub flows: u64,
    /// Packets so far.
    pub packets: u64,
    /// When there was activity last.
    pub active_at: Instant,
}

impl Traffic {
    /// Returns the state without traffic.
    pub fn new(now: Instant) -> Traffic {
        Traffic { flows: 0, packets: 0, active_at: now }
    }

    /// Advances a second, in which the gateway may send packets and new flows.
    pub fn pass(&mut self, now: Instant, (packets, new_flows): (bool, bool), rng: &mut Rng) {
        if new_flows && rng.u32(..4) == 0 {
            self.flows += rng.u64(..3);
        }
        if self.flows > 0 && rng.u32(..8) == 0 {
            self.flows -= 1;
        }
        // Stateless flows show by their packets only.
        if self.flows > 0 || (packets && rng.u32(..2) == 0) {
            self.packets += 1;
            self.active_at = now;
        }
    }
}
