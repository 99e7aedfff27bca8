//! Positions in the rings of unconfirmed flows.

use crate::atomic::{AtomicU32, Ordering::Relaxed};

/// Positions of the rings, in the shared line. The index of an array is the ring: 0 for two-way
/// flows, 1 for one-way flows. Slot numbers count up and wrap.
#[repr(C)]
pub(super) struct RingPositions {
    /// Next slot of each ring.
    pub(super) next: [AtomicU32; 2],
    /// First slot of each ring that may hold an unconfirmed flow.
    pub(super) oldest: [AtomicU32; 2],
    /// Number of slots of each ring minus 1. 0 before the first recovery.
    pub(super) mask: [AtomicU32; 2],
    /// Budget of each ring: the number of newest flows that may be unconfirmed. 0 before the first
    /// recovery.
    pub(super) budget: [AtomicU32; 2],
    /// Path record at which the search for a reset flow continues.
    pub(super) record: AtomicU32,
}

impl RingPositions {
    /// Returns two fields of an lcore's own line, which have another meaning there: the next
    /// reserved slot of a ring, and the first slot after the reserved ones.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(super) fn reserved(&self, ring: usize) -> [&AtomicU32; 2] {
        [&self.next[ring], &self.oldest[ring]]
    }

    #[inline(always)]
    pub(super) fn slots(&self, ring: usize) -> u32 {
        self.mask[ring].load(Relaxed).wrapping_add(1)
    }

    #[inline(always)]
    pub(super) fn budget(&self, ring: usize) -> u32 {
        self.budget[ring].load(Relaxed)
    }

    /// Returns the index of slot number `n` of a ring in the section: the second ring follows the
    /// first.
    #[inline(always)]
    pub(super) fn slot_index(&self, ring: usize, n: u32) -> u32 {
        let first = if ring == 0 { 0 } else { self.slots(0) };
        first.wrapping_add(n & self.mask[ring].load(Relaxed))
    }
}
