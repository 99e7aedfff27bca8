//! Lookups of the BPF program: one loop over all buckets that may hold a key, since the verifier
//! would check a separate fast path in addition.

use super::super::entry::{Entry, Hit, Words};
use super::place::{Place, SPILLED, WINDOW, equal_tags};
use super::{Index, Which};
use crate::atomic::Ordering::*;
use crate::parts;
use crate::record::NONE;
use packet::flow::FlowKey;

/// Words read by [`Index::ask`].
pub struct Asked<'r> {
    place: Place,
    own: &'r Entry,
    state: u32,
    word: u64,
}

impl<'r> Index<'r> {
    /// Returns the entry of a key, through a search that the verifier checks once: see `parts`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        let (i, stamp) = match self.which {
            Which::Flows => parts::find(hash, key),
            Which::Fragments => parts::find_piece(hash, key),
            Which::Affinities => parts::find_client(hash, key),
        };
        let entry = self.entry(i)?;
        let hit = entry.hit(i, stamp);
        entry.still(stamp).then_some(hit)
    }

    /// Reads the state of the slot that a hash designates and the word of its home bucket, which
    /// locate most keys. Both lines may be in no cache. BPF has no prefetch, but the processor
    /// continues until a value is used.
    #[inline(always)]
    pub(crate) fn ask(&self, hash: u64) -> Option<Asked<'r>> {
        let place = self.place(hash);
        let own = self.entry(place.home * 4 + place.slot)?;
        let state = own.state.load(Acquire);
        let word = self.word(place.home)?.load(Acquire);
        Some(Asked { place, own, state, word })
    }

    /// As [`Index::find`] for the likely positions: the slot designated by the hash, or the first
    /// slot of the home bucket with a matching tag. It has no loop, and reads one line for a key in
    /// its designated slot.
    #[inline(always)]
    pub(crate) fn find_likely(&self, asked: &Asked<'_>, key: &FlowKey) -> Option<Hit> {
        let (place, wanted) = (&asked.place, &Words::of(key));
        let own = place.home * 4 + place.slot;
        let hit = asked.own.compare_since(own, asked.state, wanted);
        if hit.is_some() {
            return hit;
        }
        let equal = equal_tags(asked.word, place);
        if equal == 0 {
            return None;
        }
        let slot = u32::from(equal & 0x80 == 0)
            + u32::from(equal & 0x8080 == 0)
            + u32::from(equal & 0x80_8080 == 0);
        let tagged = place.home * 4 + slot;
        let entry = self.entry(tagged)?;
        entry.compare_since(tagged, entry.state.load(Acquire), wanted)
    }

    /// Returns number and state of the entry that appears to have a key, else [`NONE`].
    #[inline(always)]
    pub(crate) fn seek(&self, hash: u64, key: &FlowKey) -> (u32, u32) {
        let (place, wanted) = (&self.place(hash), &Words::of(key));
        let Some(home) = self.word(place.home) else { return (NONE, 0) };
        let buckets = if home.load(Acquire) / SPILLED & 0xff == 0 { 2 } else { 2 + WINDOW };
        for n in 0..2 + WINDOW {
            if n >= buckets {
                break;
            }
            let bucket = self.bucket(place, n);
            let Some(word) = self.word(bucket) else { break };
            let equal = equal_tags(word.load(Acquire), place);
            for slot in 0..4 {
                if equal >> (slot * 8 + 7) & 1 == 0 {
                    continue;
                }
                let i = bucket * 4 + slot;
                let stamp = self.entry(i).map_or(0, |entry| entry.stamp_of(wanted));
                if stamp != 0 {
                    return (i, stamp);
                }
            }
        }
        (NONE, 0)
    }
}
