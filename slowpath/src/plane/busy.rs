//! Load of an lcore: the share of its poll iterations that found packets.
//!
//! A poll loop always uses all of its CPU, so the CPU's utilization does not show the load.

use std::time::{Duration, Instant};

use tables::counters::Counter;
use tables::region::Region;

/// Length of the measured interval.
const SPAN: Duration = Duration::from_secs(1);

/// Load of one lcore, updated once a second.
#[derive(Default)]
pub struct Busy {
    since: Option<(Instant, u64, u64)>,
    share: f64,
}

impl Busy {
    /// Returns the share over the last full second, 0 to 1.
    pub fn look(&mut self, region: &Region, lcore: usize, now: Instant) -> f64 {
        let turns = region.lcores().get(lcore).map_or(0, |lcore| lcore.tick());
        let page = region.counters().lcore(lcore as u32);
        let bursts = page.map_or(0, |page| page.lcore_count(Counter::Bursts));
        match self.since {
            None => self.since = Some((now, turns, bursts)),
            Some((at, turns_then, bursts_then)) if now >= at + SPAN => {
                let turned = turns.wrapping_sub(turns_then).max(1);
                let worked = bursts.wrapping_sub(bursts_then);
                self.share = (worked as f64 / turned as f64).clamp(0.0, 1.0);
                self.since = Some((now, turns, bursts));
            }
            Some(_) => {}
        }
        self.share
    }
}
