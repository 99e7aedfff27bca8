//! Registration of an lcore as a reader of the tables.

use std::sync::atomic::Ordering;

use super::{LcoreStatus, POLLING};
use crate::region::Region;
use crate::versioned;

impl LcoreStatus {
    /// Registers the lcore as a reader and returns the committed generation, which it reads from
    /// now on. No commit reuses the memory of that generation until the lcore acknowledges a later
    /// one.
    pub fn join(&self, region: &Region, epoch: u32, cpu: u32) -> u32 {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
        let generation = &region.header().slow.generation;
        versioned::join(generation, &self.acknowledged, &self.state, POLLING)
    }
}
