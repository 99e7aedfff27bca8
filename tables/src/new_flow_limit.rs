//! Rate limit of new flows per lcore, for both data planes.
//!
//! An unconfirmed flow lives until newer flows need its budget or its NAT port. A flood that begins
//! flows faster than that evicts flows of real clients before their replies arrive, so that no
//! client gets through. Above the limit, a new flow is rejected before any work is done for it:
//! admitted flows live long enough to be confirmed, and rejected clients retransmit. Packets of
//! existing flows are not limited.

use crate::record::NewFlowLimits;
use crate::token_bucket::{Rate, SECOND_NS, TokenBucket};

/// Two round trips to a distant client, in nanoseconds: an unconfirmed flow has to live this long
/// to see the reply and the client's next packet.
const TWO_ROUND_TRIPS_NS: u64 = 200_000_000;
/// Depth of a bucket, in nanoseconds of flows at its rate: more than the resolution of the clock,
/// and small compared to the round trips.
const DEPTH_NS: u64 = 50_000_000;

/// Returns the limit per second and lcore, at least 1, for a budget of `unconfirmed` flows that
/// `lcores` share: all lcores together begin at most that number of flows within two round trips.
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

/// Token buckets of new flows of one lcore, which is their only writer.
#[repr(C)]
#[derive(Debug, Default)]
pub struct NewFlowLimit {
    /// Bucket of flows that need their entry: NAT and proxies.
    translated: TokenBucket,
    /// Bucket of other flows.
    tunneled: TokenBucket,
}

impl NewFlowLimit {
    /// Creates full buckets.
    pub const fn new() -> NewFlowLimit {
        NewFlowLimit { translated: TokenBucket::new(), tunneled: TokenBucket::new() }
    }

    /// Returns the bucket and rate of flows that need their entry (`translated`: NAT and proxies),
    /// or of the others.
    #[inline(always)]
    fn of(&self, limits: &NewFlowLimits, translated: bool) -> (&TokenBucket, Rate) {
        let (bucket, per_s) = match translated {
            true => (&self.translated, limits.translated),
            false => (&self.tunneled, limits.tunneled),
        };
        (bucket, Rate { per_s, depth_ns: DEPTH_NS })
    }

    /// Returns whether another flow may begin.
    #[inline(always)]
    pub fn admits(&self, limits: &NewFlowLimits, translated: bool, now_ns: u64) -> bool {
        let (bucket, rate) = self.of(limits, translated);
        bucket.has_token(rate, now_ns)
    }

    /// Takes a token for a flow that has begun.
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

    /// Simulates `per_s` new flows per second over `lcores`, of which `unconfirmed` fit before new
    /// flows evict the oldest. Returns how many flows began in `seconds`, and the shortest lifetime
    /// of a flow in microseconds.
    fn flood(per_s: u64, lcores: u32, unconfirmed: u32, seconds: u64) -> (u64, u64) {
        let each = derived(unconfirmed, lcores);
        let limits = NewFlowLimits { translated: each, tunneled: 0 };
        let all: Vec<NewFlowLimit> = (0..lcores).map(|_| NewFlowLimit::new()).collect();
        let (mut flows, mut begun, mut shortest) = (VecDeque::new(), 0, u64::MAX);
        for n in 0..per_s * seconds {
            let now_us = n * 1_000_000 / per_s;
            // An lcore's clock advances in steps of 4 ms.
            let (lcore, clock) = (&all[n as usize % all.len()], now_us / 4000 * 4000 * US);
            if lcore.admits(&limits, true, clock) {
                lcore.count(&limits, true, clock);
                begun += 1;
                flows.push_back(now_us);
                if flows.len() > unconfirmed as usize
                    && let Some(since) = flows.pop_front()
                {
                    shortest = shortest.min(now_us - since);
                }
            }
        }
        (begun, shortest)
    }

    #[test]
    fn flows_survive_two_round_trips_in_any_flood() {
        for (per_s, lcores) in [(20_000, 1), (200_000, 2), (900_000, 7)] {
            let (begun, shortest) = flood(per_s, lcores, 2_000, 5);
            // Two round trips, minus the steps of the clock.
            assert!(shortest >= 195_000, "{per_s}/s by {lcores}: ended after {shortest} us");
            // Four times the capacity per second, plus the initial contents of the buckets.
            assert!((39_000..42_500).contains(&begun), "{per_s}/s by {lcores}: {begun}");
        }
    }

    #[test]
    fn below_the_limit_every_flow_begins() {
        let (begun, _) = flood(7_500, 2, 2_000, 5);
        assert_eq!(begun, 37_500);
    }

    #[test]
    fn tunnel_flows_do_not_use_nat_limit() {
        let limit = NewFlowLimit::new();
        let limits = NewFlowLimits { translated: 1, tunneled: 20 };
        limit.count(&limits, false, 0);
        assert!(limit.admits(&limits, true, 0) && !limit.admits(&limits, false, 0));
        limit.count(&limits, true, 0);
        assert!(!limit.admits(&limits, true, 0) && limit.admits(&limits, false, 60_000 * US));
        let none = NewFlowLimits::default();
        assert!(limit.admits(&none, true, 0) && limit.admits(&none, false, 0));
    }

    #[test]
    fn derived_limit_is_four_times_capacity_divided_by_lcores() {
        assert_eq!([derived(31_744, 1), derived(31_744, 2)], [126_976, 63_488]);
        assert_eq!([derived(1, 64), derived(0, 0)], [1, 1]);
        assert_eq!(derived(u32::MAX, 1), u32::MAX);
    }
}
