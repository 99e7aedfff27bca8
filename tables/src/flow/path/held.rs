//! Who has a path record: free, live, or held by the one who changes it.

use super::super::entry::{LIVE, WRITING};
use super::{Stored, TRIES};
use crate::atomic::{Ordering::*, fence, spin_loop};
use crate::flow::step;

impl Stored {
    pub(in crate::flow) fn is_live(&self) -> bool {
        self.seq.load(Acquire) & LIVE != 0
    }

    /// Whether anything but "free" stands here.
    pub(in crate::flow) fn is_touched(&self) -> bool {
        self.seq.load(Relaxed) & (LIVE | WRITING) != 0
    }

    /// Whether somebody is changing it, or was killed at that.
    pub(in crate::flow) fn is_held(&self) -> bool {
        self.seq.load(Relaxed) & WRITING != 0
    }

    /// Asks for all three lines.
    #[inline(always)]
    pub(in crate::flow) fn prefetch(&self) {
        crate::flow::index::prefetch(self);
        crate::flow::index::prefetch(&self.gateway);
        crate::flow::index::prefetch(&self.options);
    }

    /// Begins a new path in a free record.
    pub(in crate::flow) fn begin(&self) {
        let seq = self.seq.load(Relaxed) & !(LIVE | WRITING);
        self.seq.store(seq | WRITING, Relaxed);
        fence(Release);
        // The count above the state's bits tells late writers that this is another flow.
        self.tcp.store((self.tcp.load(Relaxed) & !0xff).wrapping_add(0x100), Relaxed);
    }

    /// Makes a begun path visible.
    pub(in crate::flow) fn publish(&self) {
        self.seq.store((self.seq.load(Relaxed) & !3).wrapping_add(4) | LIVE, Release);
    }

    /// Takes a live record in order to change it; false when it is gone or stays busy.
    pub(in crate::flow) fn lock(&self) -> bool {
        for _ in 0..TRIES {
            let seq = self.seq.load(Relaxed);
            if seq & LIVE == 0 {
                return false;
            }
            let free = seq & WRITING == 0;
            let taken = seq | WRITING;
            if free && self.seq.compare_exchange(seq, taken, Acquire, Relaxed).is_ok() {
                fence(Release);
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Ends a live record, if it is `meant` and nobody changes it: nobody reads it from here on,
    /// and it is the caller's. At no moment is it live and held: a packet that interrupts a process
    /// on its CPU would wait in vain for that to pass.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(in crate::flow) fn end(&self, meant: impl Fn() -> bool) -> bool {
        for _ in 0..TRIES {
            let seq = self.seq.load(Acquire);
            if seq & LIVE == 0 {
                return false;
            }
            if seq & WRITING == 0 {
                if !meant() {
                    return false;
                }
                step!();
                // It is still what `meant` read, if nothing changed it meanwhile.
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
