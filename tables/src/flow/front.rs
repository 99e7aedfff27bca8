//! What a flow is recognised by where its path is known: what its front entry says, once more,
//! beside the path.
//!
//! Entries lie where a hash says, anywhere: among many flows the one of a packet is in no cache,
//! and only it names the path. Whoever remembers by which path a flow goes (see
//! [`lately`](super::lately)) needs no entry, and paths and fronts lie in the order in which flows
//! began. A front belongs to its path, and the path's seqlock guards it: a path is live before its
//! entries can be found, and ends before they go, so that a live one whose front has a key is that
//! key's flow.

#[cfg(test)]
use super::Hit;
use super::entry::Words;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::rows::Shared;
use packet::flow::{FlowKey, Side};

/// A path's front. One cache line.
#[repr(C, align(64))]
pub(crate) struct Front {
    pub(super) scope: AtomicU32,
    /// 1 where the key's high end began, else 0.
    pub(super) high: AtomicU32,
    rest: [AtomicU64; 5],
    /// [`Hit::digest`] of the front entry.
    pub(super) digest: AtomicU32,
    /// Second of the region's clock when the front entry was last touched by way of the path.
    pub(super) seen_s: AtomicU32,
    spare: AtomicU64,
}

const _: () = assert!(size_of::<Front>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Front {}

impl Front {
    /// Writes it for a flow whose path the caller holds.
    #[inline(always)]
    pub(super) fn set(&self, key: &FlowKey, initiator: Side, digest: u32, seen_s: u32) {
        let words = Words::of(key);
        self.scope.store(words.0, Relaxed);
        self.high.store(u32::from(initiator == Side::High), Relaxed);
        self.rest.iter().zip(words.1).for_each(|(to, word)| to.store(word, Relaxed));
        self.digest.store(digest, Relaxed);
        self.seen_s.store(seen_s, Relaxed);
    }

    /// A copy of its key, of one piece only within [`Stored::consistent`].
    #[inline(always)]
    pub(super) fn key(&self) -> FlowKey {
        let rest = core::array::from_fn(|i| self.rest[i].load(Relaxed));
        Words(self.scope.load(Relaxed), rest).key()
    }

    /// 0 where it has this key.
    #[inline(always)]
    pub(super) fn differs(&self, wanted: &Words) -> u64 {
        let mut differs = u64::from(self.scope.load(Relaxed) ^ wanted.0);
        for (word, wanted) in self.rest.iter().zip(&wanted.1) {
            differs |= word.load(Relaxed) ^ wanted;
        }
        differs
    }
}

/// For tests of what fronts and entries say.
#[cfg(test)]
impl Front {
    pub(super) fn says(&self, key: &FlowKey, hit: &Hit) -> bool {
        let high = hit.initiator() == Side::High;
        self.differs(&Words::of(key)) == 0
            && self.high.load(Relaxed) == u32::from(high)
            && self.digest.load(Relaxed) == hit.digest
    }
}
