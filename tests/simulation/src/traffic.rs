//! Emulated traffic: flows begin while the gateway sends new ones, and end at random.

use std::time::Instant;

use fastrand::Rng;

/// Emulated traffic of an appliance.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Flows in the table.
    pub flows: u64,
    /// Packet counter; advances by one in each second in which packets were forwarded.
    pub packets: u64,
    /// The time of the last activity.
    pub active_at: Instant,
}

impl Traffic {
    /// Returns the state without traffic.
    pub fn new(now: Instant) -> Traffic {
        Traffic { flows: 0, packets: 0, active_at: now }
    }

    /// Advances by a second. `new_flows`: whether the gateway may begin flows. `packets`: whether
    /// it may send packets that belong to no flow in the table. While the table has flows, their
    /// packets are forwarded in any case.
    pub fn advance(&mut self, now: Instant, (packets, new_flows): (bool, bool), rng: &mut Rng) {
        if new_flows && rng.u32(..4) == 0 {
            self.flows += rng.u64(..3);
        }
        if self.flows > 0 && rng.u32(..8) == 0 {
            self.flows -= 1;
        }
        // Packets without a flow in the table count as activity as well.
        if self.flows > 0 || (packets && rng.u32(..2) == 0) {
            self.packets += 1;
            self.active_at = now;
        }
    }
}
