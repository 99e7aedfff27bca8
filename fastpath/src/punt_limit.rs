//! The limit of packets that an lcore punts to this machine's kernel per second.

use std::cell::Cell;
use tables::punt::{PUNT_CLASSES, PuntClass};

/// The number of packets that an lcore punted in the current second, by class.
#[derive(Debug, Default)]
pub struct PuntLimit {
    used: [Cell<u32>; PUNT_CLASSES],
}

impl PuntLimit {
    /// Starts a new second.
    pub fn refill(&self) {
        self.used.iter().for_each(|used| used.set(0));
    }

    /// Counts one more packet of a class and returns true, if it is within `limit` packets per
    /// second. A limit of 0 means unlimited.
    pub fn allows(&self, class: PuntClass, limit: u32) -> bool {
        let used = &self.used[class as usize];
        if limit != 0 && used.get() >= limit {
            return false;
        }
        used.set(used.get() + 1);
        true
    }
}
