//! Budgets of unconfirmed flows: how much of the flow table they may occupy.

/// Maximum shares of the table for unconfirmed flows in percent: flows whose replies pass this
/// appliance, and flows whose replies bypass it.
pub const MAX_PERCENT: [u32; 2] = [75, 50];
/// Maximum sum of both configured shares in percent: the rest of the table is left for confirmed
/// flows.
pub const MAX_PERCENT_TOGETHER: u32 = 75;
/// Default shares of the two kinds of flows in percent.
pub const DEFAULT_PERCENT: [u32; 2] = [50, 25];

/// Returns `percent` of a table of `flows`, at least 1.
pub const fn budget(flows: u32, percent: u32) -> u32 {
    let budget = (flows as u64 * percent as u64 / 100) as u32;
    if budget == 0 { 1 } else { budget }
}

/// Returns the number of slots of each ring of unconfirmed flows for a table of `flows`: powers of
/// two that hold the largest budgets.
pub const fn unconfirmed_ring_slots(flows: u32) -> [u32; 2] {
    let [two_way, one_way] = MAX_PERCENT;
    [budget(flows, two_way).next_power_of_two(), budget(flows, one_way).next_power_of_two()]
}
