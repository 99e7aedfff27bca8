//! Copies of gateway legs during updates.
//!
//! A writer locks a path while it updates the path's legs, and the kernel may preempt the writer's
//! lcore at that point. Therefore the writer first copies the current legs to a record that readers
//! find by the path's number, and replies use the copy until the new leg is published:
//!
//! ```text
//!  claim a copy > fill it > lock the path > update legs > publish the path > release the copy
//!                           |<----- replies use the copy ----->|
//! ```
//! There are few copies ([`LEG_COPIES`]). A path's number selects its copy, so that many paths
//! share one. If the copy is in use for another path, the update is left to a later packet. A
//! released copy keeps its contents, so that a reader that began while the path was locked can
//! finish.

use super::leg_copy::LegCopy;
use super::path::{ANSWER_TRIES, Answer, PathRecord};
use super::step::step;
use super::{Flows, Hit, PathError};
use crate::layout::LEG_COPIES;
use crate::rows::Numbered;
#[cfg(target_arch = "bpf")]
use crate::{layout::Section, region::Region, rows::Rows};

/// Number of attempts of a reader to read the copy of a locked path, and of a writer to claim a
/// copy; only one in the BPF program, because the verifier checks each iteration.
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

    /// Locks a live path to update its legs. The caller unlocks the path by [`PathRecord::publish`]
    /// and then calls [`LegCopy::release`]. `None` if the path ended, or if the path or its copy
    /// stays busy.
    #[inline(always)]
    pub(super) fn lock_legs(&self, id: u32, path: &PathRecord) -> Option<&'r LegCopy> {
        let copy = self.copy_of(id)?;
        for _ in 0..TRIES {
            let state = path.live_state()?;
            if PathRecord::is_unlocked(state) && copy.claim() {
                step!();
                copy.fill(id, path, PathRecord::locked(state), self.slabs);
                step!();
                // The copy is consistent if the path did not change up to here.
                if path.lock(state) {
                    return Some(copy);
                }
                copy.release();
            }
            crate::atomic::spin_loop();
        }
        None
    }

    /// As [`Flows::answer`] for a path whose legs are being updated: uses the previous legs.
    #[cold]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn answer_locked(
        &self,
        hit: &Hit,
        from_initiator: bool,
        out: &mut Answer,
    ) -> Result<(), PathError> {
        let path = self.paths.row(hit.path).ok_or(PathError::Gone)?;
        let copy = self.copy_of(hit.path).ok_or(PathError::Gone)?;
        for _ in 0..TRIES {
            let state = path.live_state().ok_or(PathError::Gone)?;
            if !PathRecord::is_unlocked(state) && copy.read(hit.path, state, from_initiator, out) {
                return self.forward_locked(hit, &mut out.forward);
            }
            // The path was published meanwhile, and may be locked again.
            let done = self.consistent_in(hit, ANSWER_TRIES, |path| {
                path.answer(from_initiator, self.slabs, out);
            });
            if done != Err(PathError::Busy) {
                return done;
            }
        }
        Err(PathError::Busy)
    }
}
