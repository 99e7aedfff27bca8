//! Ownership of a path record: free, live, or locked by a writer.

use super::super::entry::{LIVE, WRITING};
use super::{PathRecord, TRIES};
use crate::atomic::{Ordering::*, fence, spin_loop};
use crate::flow::step::step;

impl PathRecord {
    pub(in crate::flow) fn is_live(&self) -> bool {
        self.seq.load(Acquire) & LIVE != 0
    }

    /// Returns whether the record is in any state other than free.
    pub(in crate::flow) fn is_touched(&self) -> bool {
        self.seq.load(Relaxed) & (LIVE | WRITING) != 0
    }

    /// Returns whether a writer has locked the record, or was killed while it held the lock.
    pub(in crate::flow) fn is_locked(&self) -> bool {
        self.seq.load(Relaxed) & WRITING != 0
    }

    /// Prefetches all three lines.
    #[inline(always)]
    pub(in crate::flow) fn prefetch(&self) {
        crate::flow::index::prefetch(self);
        crate::flow::index::prefetch(&self.gateway);
        crate::flow::index::prefetch(&self.options);
    }

    /// Begins a new path in a free record that the caller has allocated.
    pub(in crate::flow) fn begin(&self) {
        let seq = self.seq.load(Relaxed) & !(LIVE | WRITING);
        self.seq.store(seq | WRITING, Relaxed);
        fence(Release);
        // The count of flows above the state bits makes updates for the previous flow fail.
        self.tcp.store((self.tcp.load(Relaxed) & !0xff).wrapping_add(0x100), Relaxed);
    }

    /// Makes a begun path visible, or unlocks a locked one.
    pub(in crate::flow) fn publish(&self) {
        self.seq.store((self.seq.load(Relaxed) & !3).wrapping_add(4) | LIVE, Release);
    }

    /// Returns the state of a live record with acquire ordering.
    #[inline(always)]
    pub(in crate::flow) fn live_state(&self) -> Option<u32> {
        let seq = self.seq.load(Acquire);
        (seq & LIVE != 0).then_some(seq)
    }

    /// Returns whether no writer has locked a record in this state.
    #[inline(always)]
    pub(in crate::flow) const fn is_unlocked(state: u32) -> bool {
        state & WRITING == 0
    }

    /// Returns the state of a record that was locked in this state.
    #[inline(always)]
    pub(in crate::flow) const fn locked(state: u32) -> u32 {
        state | WRITING
    }

    /// Locks a live record for an update, if its state is unchanged.
    #[inline(always)]
    pub(in crate::flow) fn lock(&self, state: u32) -> bool {
        let locked = PathRecord::locked(state);
        let done = self.seq.compare_exchange(state, locked, AcqRel, Relaxed).is_ok();
        fence(Release);
        done
    }

    /// Ends a live record if `is_intended` returns true and no writer has locked the record.
    /// Afterwards readers reject the record, and it belongs to the caller. This call never leaves
    /// the record both live and locked: a packet that interrupts the calling process on its CPU
    /// would wait in vain for the release of the lock.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(in crate::flow) fn end(&self, is_intended: impl Fn() -> bool) -> bool {
        for _ in 0..TRIES {
            let seq = self.seq.load(Acquire);
            if seq & LIVE == 0 {
                return false;
            }
            if seq & WRITING == 0 {
                if !is_intended() {
                    return false;
                }
                step!();
                // `is_intended` remains valid if the record did not change in between.
                let ended = (seq & !LIVE) | WRITING;
                if self.seq.compare_exchange(seq, ended, AcqRel, Relaxed).is_ok() {
                    fence(Release);
                    return true;
                }
            }
            spin_loop();
        }
        false
    }

    /// Frees an ended record.
    pub(in crate::flow) fn free(&self) {
        self.seq.store((self.seq.load(Relaxed) & !3).wrapping_add(4), Release);
    }
}
