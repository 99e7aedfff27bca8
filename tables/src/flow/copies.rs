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

use super::leg_copy::LegCopy;
use super::path::{ANSWER_TRIES, Answer, Stored};
use super::step::step;
use super::{Flows, Hit, Missed};
use crate::layout::LEG_COPIES;
use crate::rows::Numbered;
#[cfg(target_arch = "bpf")]
use crate::{layout::Section, region::Region, rows::Rows};

/// How often a reader looks for the copy of a path that is held, and a writer for a copy. The
/// kernel's verifier looks at each turn.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 1 } else { 512 };

impl<'r> Flows<'r> {
    #[inline(always)]
    fn copy_of(&self, path: u32) -> Option<&'r LegCopy> {
        #[cfg(not(target_arch = "bpf"))]
        let copies = self.copies;
        #[cfg(target_arch = "bpf")]
        let copies: Rows<'r, LegCopy> = Region.slice(Section::LegCopies);
        copies.row(path & (LEG_COPIES - 1))
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
