//! Recovery of the index: clears incomplete entries and recomputes the buckets' words.

use super::super::entry::{Hit, LIVE, WRITING};
use super::Index;
use super::key_position::{KeyPosition, OWNER, WINDOW};
use crate::atomic::{AtomicU64, Ordering::*};
use packet::flow::FlowKey;

impl<'r> Index<'r> {
    /// Number of locked buckets.
    pub(crate) fn locked(&self) -> u32 {
        self.words.iter().map(|word| u32::from(word.load(Relaxed) & OWNER != 0)).sum()
    }

    pub(crate) fn lock_words(&self) -> &'r [AtomicU64] {
        self.words
    }

    /// Releases all locks, clears entries that are incomplete, at a wrong position or rejected by
    /// `keep`, and recomputes the buckets' words. For recovery, while no lcore runs. Returns the
    /// number of cleared entries and the number of released locks.
    pub(crate) fn rebuild(&self, mut keep: impl FnMut(u32, &FlowKey, &Hit) -> bool) -> (u32, u32) {
        let (mut cleared, locks) = (0, self.locked());
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        for (i, entry) in (0..).zip(self.entries) {
            let state = entry.state.load(Relaxed);
            if state & (LIVE | WRITING) == 0 {
                continue;
            }
            let key = entry.key();
            let position = self.position(self.hash(&key));
            let complete = state & WRITING == 0 && self.belongs(i, &position);
            if complete && keep(i, &key, &entry.hit(i, state)) {
                self.enter(i, &position);
            } else {
                entry.state.store(state & !(LIVE | WRITING), Relaxed);
                cleared += 1;
            }
        }
        (cleared, locks)
    }

    /// Returns whether a key with this position may be in entry `i`.
    pub(crate) fn belongs(&self, i: u32, position: &KeyPosition) -> bool {
        let distance = (i / 4).wrapping_sub(position.home) & self.mask();
        distance <= WINDOW || i / 4 == position.second
    }
}

#[cfg(test)]
impl Index<'_> {
    /// Returns all bucket words, for comparison.
    pub(crate) fn word_values(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Relaxed)).collect()
    }
}
