//! The limit of new flows: how many an lcore begins in a second. Both planes ask here.
//!
//! An unconfirmed flow lives until its budget, or its NAT port, is taken by newer ones. A flood
//! whose flows come faster than that evicts the flows of real clients before their answers are
//! here, so that none of them gets through. Above the limit a new flow is refused before anything
//! is done for it: those that were admitted live long enough, and a client that was refused sends
//! again. Packets of known flows are not asked.

use crate::record::NewFlowLimits;
use crate::token_bucket::{Rate, SECOND_NS, TokenBucket};

/// Two round trips of a distant client: so long an unconfirmed flow has to live, to see the answer
/// and the client's next packet.
const TWO_ROUND_TRIPS_NS: u64 = 200_000_000;
/// What a bucket holds: the flows of so many nanoseconds. More than a clock's step, and little
/// beside the round trips.
const DEPTH_NS: u64 = 50_000_000;

/// The limit per second and lcore, where `unconfirmed` flows may be held at once and `lcores` begin
/// them: in any two round trips no more begin than can be held. At least one.
pub const fn derived(unconfirmed: u32, lcores: u32) -> u32 {
    let lcores = if lcores == 0 { 1 } else { lcores };
    let all = unconfirmed as u64 * SECOND_NS / (TWO_ROUND_TRIPS_NS + DEPTH_NS);
    let each = all / lcores as u64;
    if each == 0 {
        1
    } else if each > u32::MAX as u64 {
        u32::MAX
    } else {
        each as u32
    }
}

/// The flows that an lcore began lately. One lcore writes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct NewFlowLimit {
    translated: TokenBucket,
    tunnelled: TokenBucket,
}

impl NewFlowLimit {
    /// Nothing begun yet.
    pub const fn new() -> NewFlowLimit {
        NewFlowLimit { translated: TokenBucket::new(), tunnelled: TokenBucket::new() }
    }

    /// The bucket and its rate of flows that need their entry (`translated`: NAT and proxies), or
    /// of those that can go on without.
    #[inline(always)]
    fn of(&self, limits: &NewFlowLimits, translated: bool) -> (&TokenBucket, Rate) {
        let (bucket, per_s) = match translated {
            true => (&self.translated, limits.translated),
            false => (&self.tunnelled, limits.tunnelled),
        };
        (bucket, Rate { per_s, depth_ns: DEPTH_NS })
    }

    /// Whether one more flow may begin.
    #[inline(always)]
    pub fn admits(&self, limits: &NewFlowLimits, translated: bool, now_ns: u64) -> bool {
        let (bucket, rate) = self.of(limits, translated);
        bucket.has_one(rate, now_ns)
    }

    /// Counts a flow that has begun.
    #[inline(always)]
    pub fn count(&self, limits: &NewFlowLimits, translated: bool, now_ns: u64) {
        let (bucket, rate) = self.of(limits, translated);
        bucket.take(rate, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const US: u64 = 1000;

    /// A flood of `per_s` new flows a second over `lcores`, and room for `held` of them, the oldest
    /// of which end for new ones: how many flows began in `seconds`, and the shortest time in
    /// microseconds for which one lived.
    fn flood(per_s: u64, lcores: u32, held: u32, seconds: u64) -> (u64, u64) {
        let each = derived(held, lcores);
        let limits = NewFlowLimits { translated: each, tunnelled: 0 };
        let all: Vec<NewFlowLimit> = (0..lcores).map(|_| NewFlowLimit::new()).collect();
        let (mut flows, mut begun, mut shortest) = (VecDeque::new(), 0, u64::MAX);
        for n in 0..per_s * seconds {
            let now_us = n * 1_000_000 / per_s;
            // What an lcore's clock says is a little old.
            let (lcore, clock) = (&all[n as usize % all.len()], now_us / 4000 * 4000 * US);
            if lcore.admits(&limits, true, clock) {
                lcore.count(&limits, true, clock);
                begun += 1;
                flows.push_back(now_us);
                if flows.len() > held as usize
                    && let Some(since) = flows.pop_front()
                {
                    shortest = shortest.min(now_us - since);
                }
            }
        }
        (begun, shortest)
    }

    #[test]
    fn in_any_flood_a_flow_that_begins_lives_for_two_round_trips() {
        for (per_s, lcores) in [(20_000, 1), (200_000, 2), (900_000, 7)] {
            let (begun, shortest) = flood(per_s, lcores, 2_000, 5);
            assert!(shortest >= 195_000, "{per_s}/s by {lcores}: ended after {shortest} us");
            // Four times the room in a second, and what the buckets held at first.
            assert!((39_000..42_500).contains(&begun), "{per_s}/s by {lcores}: {begun}");
        }
    }

    #[test]
    fn below_the_limit_every_flow_begins() {
        let (begun, _) = flood(7_500, 2, 2_000, 5);
        assert_eq!(begun, 37_500);
    }

    #[test]
    fn flows_without_need_of_an_entry_take_nothing_of_the_others() {
        let limit = NewFlowLimit::new();
        let limits = NewFlowLimits { translated: 1, tunnelled: 20 };
        limit.count(&limits, false, 0);
        assert!(limit.admits(&limits, true, 0) && !limit.admits(&limits, false, 0));
        limit.count(&limits, true, 0);
        assert!(!limit.admits(&limits, true, 0) && limit.admits(&limits, false, 60_000 * US));
        let none = NewFlowLimits::default();
        assert!(limit.admits(&none, true, 0) && limit.admits(&none, false, 0));
    }

    #[test]
    fn the_derived_limit_is_four_times_the_room_shared_by_the_lcores() {
        assert_eq!([derived(31_744, 1), derived(31_744, 2)], [126_976, 63_488]);
        assert_eq!([derived(1, 64), derived(0, 0)], [1, 1]);
        assert_eq!(derived(u32::MAX, 1), u32::MAX);
    }
}
