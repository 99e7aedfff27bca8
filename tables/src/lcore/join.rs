//! An lcore begins to read a region's tables.

use std::sync::atomic::Ordering;

use super::{LcoreStatus, POLLING};
use crate::region::Region;
use crate::versioned;

impl LcoreStatus {
    /// The lcore begins: it reads the committed generation, which it returns, and from now on no
    /// commit reuses what it reads.
    pub fn join(&self, region: &Region, epoch: u32, cpu: u32) -> u32 {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
        let generation = &region.header().slow.generation;
        versioned::join(generation, &self.acknowledged, &self.state, POLLING)
    }
}
