//! `LegCopy`: the gateway legs of one path before an update (see `leg_updates`).

use super::path::{Answer, PathRecord, Slab};
use super::step::step;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::rows::{Rows, Shared};

/// The legs of one path. 704 bytes.
#[repr(C, align(64))]
pub(crate) struct LegCopy {
    /// 1 while a writer owns the copy.
    claimed: AtomicU32,
    /// 1 if the responder's leg differs from the initiator's.
    responder: AtomicU32,
    /// Path and locked state to which the copy belongs: [`owner_word`]. 0 while it is being filled.
    owner: AtomicU64,
    /// Legs of the initiator and of the responder.
    legs: [Slab; 2],
}

const _: () = assert!(size_of::<LegCopy>() == 704);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for LegCopy {}

/// Combines a path and its state. The result is not 0, because the state of a locked path is not.
#[inline(always)]
const fn owner_word(path: u32, state: u32) -> u64 {
    (path as u64) << 32 | state as u64
}

impl LegCopy {
    #[inline(always)]
    pub(super) fn claim(&self) -> bool {
        self.claimed.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Releases the copy to other writers; its contents are kept.
    pub(super) fn release(&self) {
        self.claimed.store(0, Release);
    }

    /// Copies the legs of a path, which the caller is about to lock with state `locked`.
    #[inline(always)]
    pub(super) fn fill(&self, id: u32, path: &PathRecord, locked: u32, slabs: Rows<'_, Slab>) {
        self.owner.store(0, Relaxed);
        fence(Release);
        step!();
        path.copy_leg(slabs, &self.legs[0]);
        let differs = path.copy_responder(slabs, &self.legs[1]);
        self.responder.store(u32::from(differs), Relaxed);
        step!();
        self.owner.store(owner_word(id, locked), Release);
    }

    /// Writes the leg for a packet of this direction to `out`. Returns false, and `out` is
    /// unspecified, if the copy does not belong to this path and state.
    #[inline(always)]
    pub(super) fn read(
        &self,
        id: u32,
        locked: u32,
        from_initiator: bool,
        out: &mut Answer,
    ) -> bool {
        if self.owner.load(Acquire) != owner_word(id, locked) {
            return false;
        }
        match !from_initiator && self.responder.load(Relaxed) != 0 {
            true => self.legs[1].read(out),
            false => self.legs[0].read(out),
        }
        fence(Acquire);
        self.owner.load(Relaxed) == owner_word(id, locked)
    }

    /// Clears the copy, for recovery.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn clear(&self) {
        self.owner.store(0, Relaxed);
        self.claimed.store(0, Relaxed);
    }
}
