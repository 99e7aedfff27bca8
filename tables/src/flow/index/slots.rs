//! Changes of slots of the index. A slot is claimed, filled and published, and later cleared. While
//! its state has the bit [`WRITING`], it belongs to the lcore that set the bit.

use super::super::entry::{Entry, Filling, LIVE, WRITING};
use super::super::step::step;
use super::Index;
use super::key_position::{KeyPosition, SPILLED, WINDOW, is_free};
use crate::atomic::Ordering::*;
use crate::record::NONE;

/// Error of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexError {
    /// All slots for the key are in use: raise the table's `region.max_...`.
    Full,
    /// The bucket stayed locked by others for too long.
    Contended,
}

impl Index<'_> {
    /// Inserts an entry, replacing one with the same key. `evictable` returns whether a live entry
    /// of another key may be evicted.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn put(
        &self,
        filling: &Filling<'_>,
        evictable: impl Fn(&Entry) -> bool,
    ) -> Result<(), IndexError> {
        let hash = self.hash(filling.key);
        let position = self.position(hash);
        if !self.lock(position.home) {
            return Err(IndexError::Contended);
        }
        if let Some(old) = self.find(hash, filling.key) {
            self.clear(old.entry, old.stamp);
        }
        let done = match self.claim_over(&position, evictable) {
            NONE => Err(IndexError::Full),
            i => {
                self.fill(i, &position, filling);
                Ok(())
            }
        };
        self.unlock(position.home);
        done
    }

    /// Claims a free slot for a key whose home bucket the caller has locked. The entry is
    /// [`WRITING`] and belongs to the caller until it is filled or abandoned. Returns [`NONE`] if
    /// all slots are taken.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn claim(&self, position: &KeyPosition) -> u32 {
        for n in 0..2 + WINDOW {
            let bucket = self.bucket(position, n);
            let Some(word) = self.word(bucket) else { return NONE };
            let word = word.load(Relaxed);
            for slot in position.slots().into_iter().filter(|slot| is_free(word, *slot)) {
                let at = bucket * 4 + slot;
                if self.take(at) {
                    return at;
                }
            }
        }
        NONE
    }

    /// As [`Index::claim`], but also clears and claims a live entry for which `stale` returns true.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn claim_over(&self, position: &KeyPosition, stale: impl Fn(&Entry) -> bool) -> u32 {
        for n in 0..2 + WINDOW {
            let bucket = self.bucket(position, n);
            for slot in position.slots() {
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

    /// Claims a slot if it is free.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn take(&self, at: u32) -> bool {
        let Some(entry) = self.entry(at) else { return false };
        let state = entry.state.load(Relaxed);
        let free = state & (WRITING | LIVE) == 0;
        step!();
        free && entry.state.compare_exchange(state, state | WRITING, AcqRel, Relaxed).is_ok()
    }

    /// Releases a claimed slot unused.
    pub(crate) fn abandon(&self, i: u32) {
        if let Some(entry) = self.entry(i) {
            entry.state.store(entry.state.load(Relaxed) & !WRITING, Release);
        }
    }

    /// Fills a claimed slot and makes it visible; returns its new state.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn fill(&self, i: u32, position: &KeyPosition, filling: &Filling<'_>) -> u32 {
        let Some(entry) = self.entry(i) else { return 0 };
        let stamp = entry.write(filling);
        step!();
        self.enter(i, position);
        step!();
        entry.state.store(stamp, Release);
        stamp
    }

    /// Clears an entry; returns false if its state is not `stamp`.
    pub(crate) fn clear(&self, i: u32, stamp: u32) -> bool {
        self.clear_inline(i, stamp)
    }

    /// As [`Index::clear`], inlined in the BPF program: a call would require the whole index on the
    /// caller's stack.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn clear_inline(&self, i: u32, stamp: u32) -> bool {
        let Some(entry) = self.entry(i) else { return false };
        if entry.state.compare_exchange(stamp, stamp | WRITING, AcqRel, Relaxed).is_err() {
            return false;
        }
        let position = self.position(self.hash(&entry.key()));
        step!();
        self.set_tag(i, 0);
        if self.is_spilled(i, &position)
            && let Some(word) = self.word(position.home)
        {
            word.fetch_sub(SPILLED, Relaxed);
        }
        step!();
        entry.state.store(stamp & !(LIVE | WRITING), Release);
        true
    }

    /// Makes a filled slot findable: sets its tag, and increments the home bucket's spill count if
    /// the slot is elsewhere.
    pub(super) fn enter(&self, i: u32, position: &KeyPosition) {
        if self.is_spilled(i, position)
            && let Some(word) = self.word(position.home)
        {
            word.fetch_add(SPILLED, Relaxed);
        }
        self.set_tag(i, position.tag);
    }

    fn is_spilled(&self, i: u32, position: &KeyPosition) -> bool {
        i / 4 != position.home && i / 4 != position.second
    }

    /// Sets the tag of slot `i`. Only the owner of a slot changes its tag, so the difference can be
    /// applied without a retry.
    fn set_tag(&self, i: u32, tag: u8) {
        let (Some(word), shift) = (self.word(i / 4), 32 + i % 4 * 8) else { return };
        let old = (word.load(Relaxed) >> shift) as u8;
        word.fetch_xor(u64::from(old ^ tag) << shift, Release);
    }
}
