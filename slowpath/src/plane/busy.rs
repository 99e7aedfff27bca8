//! Load of an lcore: the share of its poll iterations that found packets.
//!
//! A poll loop always uses all of its CPU, so the CPU's utilization does not show the load.

use std::time::{Duration, Instant};

use tables::counters::Counter;
use tables::region::Region;

/// Length of the measured interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Load of one lcore, updated once a second.
#[derive(Default)]
pub struct LcoreLoad {
    since: Option<(Instant, u64, u64)>,
    share: f64,
}

impl LcoreLoad {
    /// Returns the share over the last full second, 0 to 1; 0 until the first second has passed.
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
