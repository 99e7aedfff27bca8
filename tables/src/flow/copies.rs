//! Copies of gateway legs that are being changed.
//!
//! A writer holds a path while it changes the path's legs, and the kernel may preempt the lcore
//! right there. So the writer first copies the legs as they are to a place that readers find by the
//! path's number, and answers go by the copy until the new leg stands:
//!
//! ```text
//!  claim a copy > fill it > hold the path > change its legs > publish the path > give it back
//!                           |<------- answers go by the copy ------->|
//! ```
//! Paths share the few copies by their number. Where a copy is in use for another path, the change
//! waits for a later packet. A copy that is given back keeps its contents, so that a reader that
//! began while the path was held can finish.

use super::path::{Answer, Slab, Stored};
use super::{Flows, Hit, Missed, step};
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::rows::{Numbered, Rows, Shared};
#[cfg(target_arch = "bpf")]
use crate::{layout::Section, region::Region};

/// How many there are, a power of two: as many changes may be under way at once, and an lcore has
/// one at a time.
pub const COUNT: u32 = 64;

/// How often a reader looks for the copy of a path that is held, and a writer for a copy. The
/// kernel's verifier looks at each turn.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 1 } else { 512 };

/// The legs of one path. 704 bytes.
#[repr(C, align(64))]
pub(crate) struct LegCopy {
    /// 1 while a writer has it.
    claimed: AtomicU32,
    /// 1 where the responder's leg is another than the initiator's.
    responder: AtomicU32,
    /// Which path it is of, and the state in which that is held: [`of`]. 0 while it is filled.
    of: AtomicU64,
    /// The initiator's, and the responder's.
    legs: [Slab; 2],
}

const _: () = assert!(size_of::<LegCopy>() == 704);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for LegCopy {}

/// A path and its state. The state of a held path is not 0.
#[inline(always)]
const fn of(path: u32, state: u32) -> u64 {
    (path as u64) << 32 | state as u64
}

impl LegCopy {
    #[inline(always)]
    fn claim(&self) -> bool {
        self.claimed.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Another writer may have it from here on.
    pub(super) fn give_back(&self) {
        self.claimed.store(0, Release);
    }

    /// Copies the legs of a path, which the caller will hold in this state.
    #[inline(always)]
    fn fill(&self, id: u32, path: &Stored, held: u32, slabs: Rows<'_, Slab>) {
        self.of.store(0, Relaxed);
        fence(Release);
        step!();
        path.copy_leg(slabs, &self.legs[0]);
        let differs = path.copy_responder(slabs, &self.legs[1]);
        self.responder.store(u32::from(differs), Relaxed);
        step!();
        self.of.store(of(id, held), Release);
    }

    /// Copies a leg out, if it is of this path in this state.
    #[inline(always)]
    fn read(&self, id: u32, held: u32, from_initiator: bool, out: &mut Answer) -> bool {
        if self.of.load(Acquire) != of(id, held) {
            return false;
        }
        match !from_initiator && self.responder.load(Relaxed) != 0 {
            true => self.legs[1].read(out),
            false => self.legs[0].read(out),
        }
        fence(Acquire);
        self.of.load(Relaxed) == of(id, held)
    }

    /// Forgets all.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn clear(&self) {
        self.of.store(0, Relaxed);
        self.claimed.store(0, Relaxed);
    }
}

impl<'r> Flows<'r> {
    #[inline(always)]
    fn copy_of(&self, path: u32) -> Option<&'r LegCopy> {
        #[cfg(not(target_arch = "bpf"))]
        let copies = self.copies;
        #[cfg(target_arch = "bpf")]
        let copies: Rows<'r, LegCopy> = Region.slice(Section::LegCopies);
        copies.row(path & (COUNT - 1))
    }

    /// Holds a live path in order to change its legs. [`Stored::publish`] lets it go, and then
    /// [`LegCopy::give_back`] is to be called. `None` when the path is gone, or it or its copy stay
    /// busy.
    #[inline(always)]
    pub(super) fn hold_legs(&self, id: u32, path: &Stored) -> Option<&'r LegCopy> {
        let copy = self.copy_of(id)?;
        for _ in 0..TRIES {
            let state = path.live_state()?;
            if Stored::is_free(state) && copy.claim() {
                step!();
                copy.fill(id, path, Stored::held(state), self.slabs);
                step!();
                // The copy is consistent, if nothing changed the path until here.
                if path.hold(state) {
                    return Some(copy);
                }
                copy.give_back();
            }
            crate::atomic::spin_loop();
        }
        None
    }

    /// As [`Flows::answer`], for a path whose legs are being changed: by those of before.
    #[cold]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn answer_held(
        &self,
        hit: &Hit,
        from_initiator: bool,
        out: &mut Answer,
    ) -> Result<(), Missed> {
        let path = self.paths.row(hit.path).ok_or(Missed::Gone)?;
        let copy = self.copy_of(hit.path).ok_or(Missed::Gone)?;
        for _ in 0..TRIES {
            let state = path.live_state().ok_or(Missed::Gone)?;
            if !Stored::is_free(state) && copy.read(hit.path, state, from_initiator, out) {
                return self.forward_held(hit, &mut out.forward);
            }
            // It was let go, and may be held anew.
            let done = self.consistent_in(hit, ANSWER_TRIES, |path| {
                path.answer(from_initiator, self.slabs, out);
            });
            if done != Err(Missed::Busy) {
                return done;
            }
        }
        Err(Missed::Busy)
    }
}

/// How often an answer tries to read a path before it goes by the copy.
pub(super) const ANSWER_TRIES: u64 = 8;
