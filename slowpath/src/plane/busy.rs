//! Load of an lcore: the share of its poll iterations that found packets. The utilization of its
//! CPU does not show the load, because a poll loop always uses the whole CPU.

use std::time::{Duration, Instant};

use tables::counters::Counter;
use tables::region::Region;

/// Length of the measured interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Load of one lcore, updated once a second.
#[derive(Default)]
pub struct LcoreLoad {
    /// Start of the current interval, with the counts of iterations and bursts at that time.
    since: Option<(Instant, u64, u64)>,
    share: f64,
}

impl LcoreLoad {
    /// Returns the share, 0 to 1, over the last interval of at least a second; 0 during the first
    /// one. To be called at least once a second.
    pub fn update(&mut self, region: &Region, lcore: usize, now: Instant) -> f64 {
        let ticks = region.lcores().get(lcore).map_or(0, |lcore| lcore.tick());
        let page = region.counters().lcore(lcore as u32);
        let bursts = page.map_or(0, |page| page.lcore_count(Counter::Bursts));
        match self.since {
            None => self.since = Some((now, ticks, bursts)),
            Some((at, ticks_then, bursts_then)) if now >= at + INTERVAL => {
                let ticks_passed = ticks.wrapping_sub(ticks_then).max(1);
                let bursts_passed = bursts.wrapping_sub(bursts_then);
                self.share = (bursts_passed as f64 / ticks_passed as f64).clamp(0.0, 1.0);
                self.since = Some((now, ticks, bursts));
            }
            Some(_) => {}
        }
        self.share
    }
}
