//! A slot of the index: taken, filled and made findable, or cleared. Whoever has set its state to
//! [`WRITING`] has it.

use super::super::entry::{Entry, Filling, LIVE, WRITING};
use super::super::step::step;
use super::Index;
use super::place::{Place, SPILLED, WINDOW, is_free};
use crate::atomic::Ordering::*;
use crate::record::NONE;

/// Why a key was not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotKept {
    /// No room: raise the table's `region.max_...`.
    Full,
    /// Others held the bucket for too long.
    Contended,
}

impl Index<'_> {
    /// Keeps what `filling` says, in place of what its key said before. `over` tells which live
    /// entries of others may be thrown out.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn keep(
        &self,
        filling: &Filling<'_>,
        over: impl Fn(&Entry) -> bool,
    ) -> Result<(), NotKept> {
        let hash = self.hash(filling.key);
        let place = self.place(hash);
        if !self.lock(place.home) {
            return Err(NotKept::Contended);
        }
        if let Some(old) = self.find(hash, filling.key) {
            self.clear(old.entry, old.stamp);
        }
        let done = match self.claim_over(&place, over) {
            NONE => Err(NotKept::Full),
            i => {
                self.fill(i, &place, filling);
                Ok(())
            }
        };
        self.unlock(place.home);
        done
    }

    /// Takes a free slot for a key whose home bucket the caller has locked. The entry is
    /// [`WRITING`] and the caller's until it is filled or abandoned. [`NONE`] where all are taken.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn claim(&self, place: &Place) -> u32 {
        for n in 0..2 + WINDOW {
            let bucket = self.bucket(place, n);
            let Some(word) = self.word(bucket) else { return NONE };
            let word = word.load(Relaxed);
            for slot in place.slots().into_iter().filter(|slot| is_free(word, *slot)) {
                let at = bucket * 4 + slot;
                if self.take(at) {
                    return at;
                }
            }
        }
        NONE
    }

    /// As [`Index::claim`]. `stale` tells whether a live entry may be thrown out.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn claim_over(&self, place: &Place, stale: impl Fn(&Entry) -> bool) -> u32 {
        for n in 0..2 + WINDOW {
            let bucket = self.bucket(place, n);
            for slot in place.slots() {
                let at = bucket * 4 + slot;
                let Some(entry) = self.entry(at) else { return NONE };
                let state = entry.state.load(Relaxed);
                if state & LIVE != 0 && state & WRITING == 0 && stale(entry) {
                    self.clear(at, state);
                }
                if self.take(at) {
                    return at;
                }
            }
        }
        NONE
    }

    /// Takes a slot, if it is free.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn take(&self, at: u32) -> bool {
        let Some(entry) = self.entry(at) else { return false };
        let state = entry.state.load(Relaxed);
        let free = state & (WRITING | LIVE) == 0;
        step!();
        free && entry.state.compare_exchange(state, state | WRITING, AcqRel, Relaxed).is_ok()
    }

    /// Gives a claimed slot back unused.
    pub(crate) fn abandon(&self, i: u32) {
        if let Some(entry) = self.entry(i) {
            entry.state.store(entry.state.load(Relaxed) & !WRITING, Release);
        }
    }

    /// Fills a claimed slot and makes it visible; its state then.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn fill(&self, i: u32, place: &Place, filling: &Filling<'_>) -> u32 {
        let Some(entry) = self.entry(i) else { return 0 };
        let stamp = entry.write(filling);
        step!();
        self.enter(i, place);
        step!();
        entry.state.store(stamp, Release);
        stamp
    }

    /// Ends an entry; false when it was not (any more) in the state `stamp`.
    pub(crate) fn clear(&self, i: u32, stamp: u32) -> bool {
        self.clear_here(i, stamp)
    }

    /// As [`Index::clear`]. In the kernel's program a part of its caller: for a call, all of the
    /// index would have to lie on the caller's stack.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn clear_here(&self, i: u32, stamp: u32) -> bool {
        let Some(entry) = self.entry(i) else { return false };
        if entry.state.compare_exchange(stamp, stamp | WRITING, AcqRel, Relaxed).is_err() {
            return false;
        }
        let place = self.place(self.hash(&entry.key()));
        step!();
        self.set_tag(i, 0);
        if self.is_spilled(i, &place)
            && let Some(word) = self.word(place.home)
        {
            word.fetch_sub(SPILLED, Relaxed);
        }
        step!();
        entry.state.store(stamp & !(LIVE | WRITING), Release);
        true
    }

    /// Makes a filled slot findable: its tag, and the home bucket's count if it lies elsewhere.
    pub(super) fn enter(&self, i: u32, place: &Place) {
        if self.is_spilled(i, place)
            && let Some(word) = self.word(place.home)
        {
            word.fetch_add(SPILLED, Relaxed);
        }
        self.set_tag(i, place.tag);
    }

    fn is_spilled(&self, i: u32, place: &Place) -> bool {
        i / 4 != place.home && i / 4 != place.second
    }

    /// Only who has the slot changes its tag, so the difference can be added without looking twice.
    fn set_tag(&self, i: u32, tag: u8) {
        let (Some(word), shift) = (self.word(i / 4), 32 + i % 4 * 8) else { return };
        let old = (word.load(Relaxed) >> shift) as u8;
        word.fetch_xor(u64::from(old ^ tag) << shift, Release);
    }
}
