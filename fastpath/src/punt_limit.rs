//! The limit of packets for this machine itself.

use std::cell::Cell;
use tables::punt::{PUNT_CLASSES, PuntClass};

/// Punted packets of the running second, by class.
#[derive(Debug, Default)]
pub struct PuntLimit {
    used: [Cell<u32>; PUNT_CLASSES],
}

impl PuntLimit {
    /// A new second.
    pub fn refill(&self) {
        self.used.iter().for_each(|used| used.set(0));
    }

    /// Whether one more packet of a class is within its limit; it is counted then. 0 is no limit.
    pub fn allows(&self, class: PuntClass, limit: u32) -> bool {
        let used = &self.used[class as usize];
        if limit != 0 && used.get() >= limit {
            return false;
        }
        used.set(used.get() + 1);
        true
    }
}
