//! Lookups of the BPF program: one loop over all buckets that may hold a key. A separate fast path
//! as in `Index::find_to` would add paths for the verifier to check.

use super::super::entry::{Entry, Hit, KeyWords};
use super::key_position::{KeyPosition, SPILLED, WINDOW, equal_tags};
use super::{Index, TableKind};
use crate::atomic::Ordering::*;
use crate::parts;
use crate::record::NONE;
use packet::flow::FlowKey;

/// A lookup that was begun: what [`Index::begin_lookup`] has read.
pub struct PendingLookup<'r> {
    position: KeyPosition,
    own: &'r Entry,
    state: u32,
    word: u64,
}

impl<'r> Index<'r> {
    /// Returns the entry of a key, through a search that the verifier checks once: see `parts`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        let (i, stamp) = match self.table {
            TableKind::Flows => parts::find(hash, key),
            TableKind::Fragments => parts::find_fragment(hash, key),
            TableKind::Affinities => parts::find_client(hash, key),
        };
        let entry = self.entry(i)?;
        let hit = entry.hit(i, stamp);
        entry.is_unchanged(stamp).then_some(hit)
    }

    /// Reads the state of the slot that a hash designates and the word of its home bucket, which
    /// suffice to locate most keys. Both lines may be in no cache. BPF has no prefetch, but the
    /// processor does not wait for a value before it is used.
    #[inline(always)]
    pub(crate) fn begin_lookup(&self, hash: u64) -> Option<PendingLookup<'r>> {
        let position = self.position(hash);
        let own = self.entry(position.home * 4 + position.slot)?;
        let state = own.state.load(Acquire);
        let word = self.word(position.home)?.load(Acquire);
        Some(PendingLookup { position, own, state, word })
    }

    /// As [`Index::find`] for the likely positions: the slot designated by the hash, or the first
    /// slot of the home bucket with a matching tag. It has no loop, and reads one line for a key in
    /// its designated slot.
    #[inline(always)]
    pub(crate) fn find_likely(&self, pending: &PendingLookup<'_>, key: &FlowKey) -> Option<Hit> {
        let (position, expected) = (&pending.position, &KeyWords::of(key));
        let own = position.home * 4 + position.slot;
        let hit = pending.own.compare_since(own, pending.state, expected);
        if hit.is_some() {
            return hit;
        }
        let equal = equal_tags(pending.word, position);
        if equal == 0 {
            return None;
        }
        let slot = u32::from(equal & 0x80 == 0)
            + u32::from(equal & 0x8080 == 0)
            + u32::from(equal & 0x80_8080 == 0);
        let tagged = position.home * 4 + slot;
        let entry = self.entry(tagged)?;
        entry.compare_since(tagged, entry.state.load(Acquire), expected)
    }

    /// Returns number and state of the entry that appears to have a key, else [`NONE`].
    #[inline(always)]
    pub(crate) fn seek(&self, hash: u64, key: &FlowKey) -> (u32, u32) {
        let (position, expected) = (&self.position(hash), &KeyWords::of(key));
        let Some(home) = self.word(position.home) else { return (NONE, 0) };
        let buckets = if home.load(Acquire) / SPILLED & 0xff == 0 { 2 } else { 2 + WINDOW };
        for n in 0..2 + WINDOW {
            if n >= buckets {
                break;
            }
            let bucket = self.bucket(position, n);
            let Some(word) = self.word(bucket) else { break };
            let equal = equal_tags(word.load(Acquire), position);
            for slot in 0..4 {
                if equal >> (slot * 8 + 7) & 1 == 0 {
                    continue;
                }
                let i = bucket * 4 + slot;
                let stamp = self.entry(i).map_or(0, |entry| entry.stamp_of(expected));
                if stamp != 0 {
                    return (i, stamp);
                }
            }
        }
        (NONE, 0)
    }
}
