//! Front record of a path: a copy of the flow's front entry, stored by path id.
//!
//! Entries are at hashed positions: with many flows, a packet's entry is in no cache, and only the
//! entry contains the path's number. A caller that has the number from a hint (see
//! [`flow_hints`](super::flow_hints)) does not need the entry, and the paths and fronts of flows
//! that began together are mostly adjacent.
//!
//! A front belongs to its path and is guarded by the path's seqlock. A path is live before its
//! entries are visible and ends before they are cleared. Therefore a live path whose front has a
//! key belongs to the flow of that key.

#[cfg(test)]
use super::Hit;
use super::entry::KeyWords;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::rows::Shared;
use packet::flow::{FlowKey, Side};

/// Front record of a path. One cache line.
#[repr(C, align(64))]
pub(crate) struct Front {
    /// Scope of the front key.
    pub(super) scope: AtomicU32,
    /// 1 if the initiator is the key's high end, else 0.
    pub(super) high: AtomicU32,
    /// The front key without its scope: see [`KeyWords`].
    rest: [AtomicU64; 5],
    /// `Hit::digest` of the front entry.
    pub(super) digest: AtomicU32,
    /// Time at which the front entry was last touched through the path, in seconds of the region's
    /// clock.
    pub(super) last_seen_s: AtomicU32,
    spare: AtomicU64,
}

const _: () = assert!(size_of::<Front>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Front {}

impl Front {
    /// Writes the front for a flow whose path the caller has locked.
    #[inline(always)]
    pub(super) fn set(&self, key: &FlowKey, initiator: Side, digest: u32, last_seen_s: u32) {
        let words = KeyWords::of(key);
        self.scope.store(words.0, Relaxed);
        self.high.store(u32::from(initiator == Side::High), Relaxed);
        self.rest.iter().zip(words.1).for_each(|(to, word)| to.store(word, Relaxed));
        self.digest.store(digest, Relaxed);
        self.last_seen_s.store(last_seen_s, Relaxed);
    }

    /// Returns a copy of the key, which is consistent only within `PathRecord::consistent`.
    #[inline(always)]
    pub(super) fn key(&self) -> FlowKey {
        let rest = core::array::from_fn(|i| self.rest[i].load(Relaxed));
        KeyWords(self.scope.load(Relaxed), rest).key()
    }

    /// Returns 0 if the front has the key `expected`, else another number.
    #[inline(always)]
    pub(super) fn differs(&self, expected: &KeyWords) -> u64 {
        let mut differs = u64::from(self.scope.load(Relaxed) ^ expected.0);
        for (word, expected) in self.rest.iter().zip(&expected.1) {
            differs |= word.load(Relaxed) ^ expected;
        }
        differs
    }
}

/// Comparison of fronts and entries in tests.
#[cfg(test)]
impl Front {
    pub(super) fn matches_entry(&self, key: &FlowKey, hit: &Hit) -> bool {
        let high = hit.initiator() == Side::High;
        self.differs(&KeyWords::of(key)) == 0
            && self.high.load(Relaxed) == u32::from(high)
            && self.digest.load(Relaxed) == hit.digest
    }
}
