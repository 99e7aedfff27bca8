//! Expiry of path MTUs that the data plane learned from ICMP errors. The path may have a larger MTU
//! by now, which only an attempt can show (RFC 1191, 6.3).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tables::region::Region;

/// How long a learned path MTU is used. RFC 1191, 6.3 proposes ten minutes.
const LIFETIME: Duration = Duration::from_secs(600);

/// Next hops with a learned path MTU, and when it expires.
#[derive(Default)]
pub struct PathMtus {
    /// Time of expiry by id of the next hop.
    until: HashMap<u32, Instant>,
}

impl PathMtus {
    /// Returns all learned path MTUs in the region, including those learned while slowpath was not
    /// running. Each expires [`LIFETIME`] after `now`.
    pub fn find(region: &Region, now: Instant) -> PathMtus {
        let lowered =
            |id: &u32| region.path_mtu(*id).is_some_and(|mtu| mtu.load(Ordering::Relaxed) != 0);
        let all = (0..region.sizes().next_hops).filter(lowered);
        PathMtus { until: all.map(|id| (id, now + LIFETIME)).collect() }
    }

    /// Records that the data plane learned a path MTU, which expires [`LIFETIME`] after `now`.
    pub fn record(&mut self, next_hop: u32, now: Instant) {
        self.until.insert(next_hop, now + LIFETIME);
    }

    /// Removes expired path MTUs. If a path still has a lower MTU, an oversized packet to it causes
    /// the MTU to be learned again. Also finds path MTUs whose event was lost because the data
    /// plane's event ring was full; they expire [`LIFETIME`] after `now`.
    pub fn expire(&mut self, region: &Region, now: Instant) {
        for (id, until) in PathMtus::find(region, now).until {
            self.until.entry(id).or_insert(until);
        }
        self.until.retain(|id, until| {
            let over = now >= *until;
            if over {
                forget(region, *id);
            }
            !over
        });
    }
}

/// Removes the path MTU of a next hop: it expired, or the id now belongs to another next hop.
pub fn forget(region: &Region, next_hop: u32) {
    if let Some(mtu) = region.path_mtu(next_hop) {
        mtu.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::layout::Sizes;

    #[test]
    fn a_learned_path_mtu_expires_after_ten_minutes_also_over_a_restart() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let mtu = |id: u32| region.path_mtu(id).unwrap();
        let now = Instant::now();
        mtu(3).store(1400, Ordering::Relaxed);
        let mut mtus = PathMtus::find(&region, now);
        mtu(4).store(1300, Ordering::Relaxed);
        mtus.record(4, now + LIFETIME / 2);
        mtus.expire(&region, now + LIFETIME);
        assert_eq!((mtu(3).load(Ordering::Relaxed), mtu(4).load(Ordering::Relaxed)), (0, 1300));
        mtus.expire(&region, now + LIFETIME * 2);
        assert_eq!(mtu(4).load(Ordering::Relaxed), 0);
        // A path MTU without an event expires 10 minutes after `expire` found it.
        mtu(5).store(1200, Ordering::Relaxed);
        mtus.expire(&region, now + LIFETIME * 2);
        assert_eq!(mtu(5).load(Ordering::Relaxed), 1200);
        mtus.expire(&region, now + LIFETIME * 3);
        assert_eq!(mtu(5).load(Ordering::Relaxed), 0);
    }
}
