//! Positions in the rings of unconfirmed flows.

use crate::atomic::{AtomicU32, Ordering::Relaxed};

/// Where the rings stand, in the line that all share.
#[repr(C)]
pub(super) struct Hands {
    /// The next place of each ring.
    pub(super) next: [AtomicU32; 2],
    /// The place from which on flows of each may be unconfirmed.
    pub(super) oldest: [AtomicU32; 2],
    /// Places of each ring, less one. 0 before a recovery.
    pub(super) mask: [AtomicU32; 2],
    /// How many of the newest flows of each ring may be unconfirmed. 0 before a recovery.
    pub(super) budget: [AtomicU32; 2],
    /// The record from which on those that were reset are sought.
    pub(super) record: AtomicU32,
}

impl Hands {
    /// In an lcore's own line: the next slot that it has reserved, and the first beyond.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(super) fn reserved(&self, ring: usize) -> [&AtomicU32; 2] {
        [&self.next[ring], &self.oldest[ring]]
    }

    #[inline(always)]
    pub(super) fn places(&self, ring: usize) -> u32 {
        self.mask[ring].load(Relaxed).wrapping_add(1)
    }

    #[inline(always)]
    pub(super) fn budget(&self, ring: usize) -> u32 {
        self.budget[ring].load(Relaxed)
    }

    /// Where in the section a place of a ring lies: the second ring lies behind the first.
    #[inline(always)]
    pub(super) fn place(&self, ring: usize, n: u32) -> u32 {
        let first = if ring == 0 { 0 } else { self.places(0) };
        first.wrapping_add(n & self.mask[ring].load(Relaxed))
    }
}
