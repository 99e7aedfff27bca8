//! Hash index of keys. Flows, fragments and affinities use one index each.
//!
//! ```text
//! words    one per bucket: lock owner (epoch, lcore) | spill count | four tags of 8 bits
//! entries  four per bucket, a cache line each: state, last seen, path, flags, digest, key
//! ```
//! A key is stored in its home bucket or in a second bucket near it. If both are full, it spills:
//! it is stored in one of the [`WINDOW`] buckets after the home bucket, whose word counts the
//! spilled keys. A tag is 8 bits of a key's hash, 0 for a free slot.
//!
//! Readers take no lock: they examine the likeliest entry and then the entries with a matching tag,
//! and an entry's state reveals concurrent changes. A writer locks the home bucket, so that a key
//! cannot be inserted twice. It claims a slot by changing the entry's state; only the claimant
//! changes the slot's tag.

mod key_position;
#[cfg(not(target_arch = "bpf"))]
mod rebuild;
#[cfg(target_arch = "bpf")]
mod seek;
mod slots;

pub use slots::IndexError;

#[cfg(target_arch = "bpf")]
pub use seek::PendingLookup;

use super::entry::{Entry, Hit};
use crate::atomic::{AtomicU64, Ordering::*, spin_loop};
#[cfg(not(target_arch = "bpf"))]
use crate::layout::BUCKET_ENTRIES;
use crate::region::Region;
use crate::rows::{Numbered, Rows};
#[cfg(not(target_arch = "bpf"))]
use key_position::WINDOW;
use key_position::{KeyPosition, LOCK, OWNER, SPILLED, equal_tags};
use packet::flow::FlowKey;
#[cfg(not(target_arch = "bpf"))]
use packet::flow::HashKey;

/// Number of attempts to take a lock before the caller gives up; fewer in the BPF program, because
/// the verifier checks each iteration.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 64 } else { 512 };

/// The table that uses an index.
#[derive(Clone, Copy)]
pub(crate) enum TableKind {
    Flows,
    Fragments,
    Affinities,
}

/// A view of entries and bucket words.
#[derive(Clone, Copy)]
pub(crate) struct Index<'r> {
    entries: Rows<'r, Entry>,
    words: Rows<'r, AtomicU64>,
    #[cfg(target_arch = "bpf")]
    table: TableKind,
    // The BPF program reads both where needed, because it has few registers.
    #[cfg(not(target_arch = "bpf"))]
    mask: u32,
    #[cfg(not(target_arch = "bpf"))]
    hash_key: HashKey,
    /// Lock bits of this writer.
    owner: u64,
}

impl<'r> Index<'r> {
    /// Creates a view; there are four `entries` per word, and the number of words is a power of
    /// two.
    #[inline]
    pub(crate) fn new(
        #[cfg_attr(not(target_arch = "bpf"), expect(unused, reason = "used for BPF only"))]
        table: TableKind,
        entries: Rows<'r, Entry>,
        words: Rows<'r, AtomicU64>,
        #[cfg_attr(target_arch = "bpf", expect(unused, reason = "used by the BPF program"))]
        region: &Region,
    ) -> Index<'r> {
        debug_assert!(words.count().is_power_of_two() && entries.count() == words.count() * 4);
        Index {
            #[cfg(target_arch = "bpf")]
            table,
            entries,
            words,
            #[cfg(not(target_arch = "bpf"))]
            mask: words.count() - 1,
            #[cfg(not(target_arch = "bpf"))]
            hash_key: region.hash_key(),
            owner: 1,
        }
    }

    #[inline(always)]
    fn mask(&self) -> u32 {
        #[cfg(not(target_arch = "bpf"))]
        return self.mask;
        #[cfg(target_arch = "bpf")]
        self.words.count().wrapping_sub(1)
    }

    /// Returns the view with the lock bits of this lcore and epoch.
    #[inline]
    pub(crate) fn as_owner(self, lcore: u8, epoch: u32) -> Index<'r> {
        let owner = u64::from(lcore % 254) + 1;
        Index { owner: owner | u64::from(epoch as u16) << 8, ..self }
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        #[cfg(not(target_arch = "bpf"))]
        return key.hash(&self.hash_key);
        #[cfg(target_arch = "bpf")]
        key.hash(&Region.hash_key())
    }

    /// Returns the positions at which a key with this hash may be stored.
    #[inline(always)]
    pub(crate) fn position(&self, hash: u64) -> KeyPosition {
        let home = hash as u32 & self.mask();
        // From 1 to 7: the words of both buckets are in one cache line, which has eight words.
        let apart = 1 + ((((hash >> 40) & 0xff) * 7) >> 8) as u32;
        KeyPosition {
            home,
            second: (home ^ apart) & self.mask(),
            slot: (hash >> 28) as u32 & 3,
            tag: ((hash >> 48) as u8).max(1),
        }
    }

    #[inline(always)]
    pub(crate) fn entry(&self, i: u32) -> Option<&'r Entry> {
        self.entries.row(i)
    }

    #[inline(always)]
    fn word(&self, bucket: u32) -> Option<&'r AtomicU64> {
        self.words.row(bucket & self.mask())
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        let position = self.position(hash);
        self.word(position.home).into_iter().for_each(prefetch);
        self.entry(position.home * 4 + position.slot).into_iter().for_each(prefetch);
    }

    pub(crate) fn prefetch_entry(&self, i: u32) {
        if let Some(entry) = self.entry(i) {
            prefetch(entry);
        }
    }

    /// Prefetches the entry of the home bucket that a new key most likely takes.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(crate) fn prefetch_claim(&self, hash: u64) {
        let position = self.position(hash);
        let Some(word) = self.word(position.home) else { return };
        let word = word.load(Relaxed);
        if let Some(slot) =
            position.slots().into_iter().find(|slot| key_position::is_free(word, *slot))
        {
            self.prefetch_entry(position.home * 4 + slot);
        }
    }

    /// Prefetches an entry and its bucket's word.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(crate) fn prefetch_slot(&self, i: u32) {
        if let (Some(entry), Some(word)) = (self.entry(i), self.word(i / BUCKET_ENTRIES as u32)) {
            prefetch(entry);
            prefetch(word);
        }
    }

    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        let mut found = None;
        self.find_to(hash, key, &mut found);
        found
    }

    /// As `find`, with the result written to `out`: each branch writes the result directly, instead
    /// of through a common temporary.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(crate) fn find_to(&self, hash: u64, key: &FlowKey, out: &mut Option<Hit>) {
        let position = self.position(hash);
        *out = None;
        let Some(home) = self.word(position.home) else { return };
        let home = home.load(Acquire);
        let equal = equal_tags(home, &position);
        if equal != 0 {
            // The matching slot of the four is unpredictable, so no branch depends on it.
            let likeliest = position.home * 4 + equal.trailing_zeros() / 8;
            if let Some(hit) = self.compare(likeliest, key) {
                *out = Some(hit);
                return;
            }
        } else {
            // Most absent keys are detected by their tags alone, from one cache line.
            let Some(second) = self.word(position.second) else { return };
            if equal_tags(second.load(Acquire), &position) == 0 && (home / SPILLED) & 0xff == 0 {
                return;
            }
        }
        *out = self.find_by_tag(hash, key);
    }

    /// Searches all buckets that may hold the key. Not inlined, and with arguments instead of
    /// shared state, so that the likely path of `find_to` keeps its registers.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(never)]
    fn find_by_tag(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        let position = &self.position(hash);
        let home = self.word(position.home)?.load(Acquire);
        if let Some(hit) = self.compare_tagged(position.home, home, position, key) {
            return Some(hit);
        }
        let second = self.word(position.second)?.load(Acquire);
        let hit = self.compare_tagged(position.second, second, position, key);
        if hit.is_some() || (home / SPILLED) & 0xff == 0 {
            return hit;
        }
        for i in 1..=WINDOW {
            let bucket = (position.home + i) & self.mask();
            let word = self.word(bucket)?.load(Acquire);
            if let Some(hit) = self.compare_tagged(bucket, word, position, key) {
                return Some(hit);
            }
        }
        None
    }

    /// Returns whether no tag matches in either bucket and no key of the home bucket spilled. If
    /// so, a key with this hash is absent, unless it is inserted concurrently.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub(crate) fn lacks(&self, hash: u64) -> bool {
        let position = &self.position(hash);
        let (Some(home), Some(second)) = (self.word(position.home), self.word(position.second))
        else {
            return false;
        };
        let home = home.load(Acquire);
        equal_tags(home, position) | equal_tags(second.load(Acquire), position) == 0
            && (home / SPILLED) & 0xff == 0
    }

    /// Returns bucket `n` of those that may hold a key: the home bucket (0), the second one (1),
    /// then the [`WINDOW`] buckets after the home bucket.
    #[inline(always)]
    fn bucket(&self, position: &KeyPosition, n: u32) -> u32 {
        match n {
            0 => position.home,
            1 => position.second,
            n => (position.home + n - 1) & self.mask(),
        }
    }

    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    fn compare_tagged(
        &self,
        bucket: u32,
        word: u64,
        at: &KeyPosition,
        expected: &FlowKey,
    ) -> Option<Hit> {
        let mut equal = equal_tags(word, at);
        while equal != 0 {
            if let Some(hit) = self.compare(bucket * 4 + equal.trailing_zeros() / 8, expected) {
                return Some(hit);
            }
            equal &= equal - 1;
        }
        None
    }

    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    fn compare(&self, i: u32, expected: &FlowKey) -> Option<Hit> {
        self.entry(i)?.compare(i, expected)
    }

    /// Returns a consistent copy of an entry's key and contents, if it is live.
    pub(crate) fn read(&self, i: u32) -> Option<(FlowKey, Hit)> {
        self.entry(i)?.read(i)
    }

    /// Locks a home bucket; returns false if it stays locked for [`TRIES`] attempts.
    pub(crate) fn lock(&self, home: u32) -> bool {
        #[cfg(target_arch = "bpf")]
        if let TableKind::Flows = self.table {
            return crate::parts::lock(home, self.owner);
        }
        self.lock_as(home, self.owner)
    }

    /// As [`Index::lock`], with the lock bits `owner`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn lock_as(&self, home: u32, owner: u64) -> bool {
        let Some(word) = self.word(home) else { return false };
        let mut current = word.load(Relaxed);
        for _ in 0..TRIES {
            if current & OWNER == 0 {
                let locked = (current & !LOCK) | owner;
                match word.compare_exchange_weak(current, locked, Acquire, Relaxed) {
                    Ok(_) => return true,
                    Err(now) => current = now,
                }
            } else {
                spin_loop();
                current = word.load(Relaxed);
            }
        }
        false
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn unlock(&self, home: u32) {
        if let Some(word) = self.word(home) {
            word.fetch_and(!LOCK, Release);
        }
    }
}

/// Prefetches a cache line that will be read soon.
///
/// BPF has no prefetch instruction; the program reads a word instead. The processor does not wait
/// for a value before it is used, so several lines are fetched in parallel.
#[inline(always)]
pub fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: every table element begins with a word of four bytes.
    #[expect(unsafe_code, reason = "volatile, so that the read is not removed")]
    unsafe {
        const { assert!(size_of::<T>() >= 4 && align_of::<T>() >= 4) };
        core::ptr::from_ref(of).cast::<u32>().read_volatile();
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address changes nothing; SSE is part of x86-64.
    #[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(of).cast());
    }
    #[cfg(not(any(target_arch = "bpf", all(target_arch = "x86_64", not(miri)))))]
    let _ = of;
}
