//! An entry of the index: a key and what it leads to, in one cache line under a seqlock.

use super::step::step;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::layout::BUCKET_ENTRIES;
use crate::rows::Shared;
use packet::addr::Addr;
use packet::flow::{FlowKey, Side};

/// State bit: being written or cleared.
pub(crate) const WRITING: u32 = 1;
/// State bit: holds a key. The rest of the state counts how often the slot was filled.
pub(crate) const LIVE: u32 = 2;
const VERSION: u32 = 4;

/// [`Hit::flags`]: the gateway's side.
pub(super) const FRONT: u32 = 1;
/// [`Hit::flags`]: the initiator is the key's high end.
pub(super) const INITIATOR_HIGH: u32 = 2;
/// [`Hit::flags`]: TCP is established; packets without SYN, FIN, RST change nothing.
pub(super) const ESTABLISHED: u32 = 4;

/// One way to find a flow, or a fragment's datagram. One cache line.
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub(super) state: AtomicU32,
    pub(crate) last_seen_s: AtomicU32,
    pub(crate) path: AtomicU32,
    /// What the user keeps, 8 bits, below 24 bits of the state's count (so that a late change of
    /// the flags never hits the slot's next user).
    flags: AtomicU32,
    pub(crate) digest: AtomicU32,
    scope: AtomicU32,
    rest: [AtomicU64; 5],
}

const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Entry {
    const IN_VALUE: u32 = BUCKET_ENTRIES as u32;
}

impl Entry {
    /// Its state, if it is live and seems to have the key `wanted`; else 0. Whoever reads on asks
    /// [`Entry::still`] in the end.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(super) fn stamp_of(&self, wanted: &Words) -> u32 {
        self.stamp_if(self.state.load(Acquire), wanted)
    }

    /// `stamp`, the state, if by that it is live, and it seems to have the key `wanted`; else 0.
    #[inline(always)]
    fn stamp_if(&self, stamp: u32, wanted: &Words) -> u32 {
        let mut differs = u64::from(self.scope.load(Relaxed) ^ wanted.0);
        for (word, wanted) in self.rest.iter().zip(&wanted.1) {
            differs |= word.load(Relaxed) ^ wanted;
        }
        if differs != 0 || stamp & (LIVE | WRITING) != LIVE { 0 } else { stamp }
    }

    /// A copy of what it says, if it is live, holds still and has the key `wanted`.
    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn compare(&self, i: u32, wanted: &FlowKey) -> Option<Hit> {
        let state = self.state.load(Acquire);
        // The key's words are read here and not before, so that they need no registers meanwhile.
        self.copied(i, self.stamp_if(state, &Words::of(wanted)))
    }

    /// As `compare`, with the key's words at hand, and the state as it was read before.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(super) fn compare_since(&self, i: u32, state: u32, wanted: &Words) -> Option<Hit> {
        self.copied(i, self.stamp_if(state, wanted))
    }

    #[inline(always)]
    fn copied(&self, i: u32, stamp: u32) -> Option<Hit> {
        if stamp == 0 {
            return None;
        }
        let hit = self.hit(i, stamp);
        // A state that changed means that the key left this slot: as good as not found.
        self.still(stamp).then_some(hit)
    }

    /// Its key and what else it says, if it is live and holds still.
    pub(super) fn read(&self, i: u32) -> Option<(FlowKey, Hit)> {
        let stamp = self.state.load(Acquire);
        let found = (self.key(), self.hit(i, stamp));
        (stamp & (LIVE | WRITING) == LIVE && self.still(stamp)).then_some(found)
    }

    #[inline(always)]
    pub(super) fn hit(&self, entry: u32, stamp: u32) -> Hit {
        Hit {
            entry,
            stamp,
            path: self.path.load(Relaxed),
            digest: self.digest.load(Relaxed),
            flags: self.flags.load(Relaxed),
            last_seen_s: self.last_seen_s.load(Relaxed),
        }
    }

    /// The scope of its key.
    #[inline]
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn scope(&self) -> u32 {
        self.scope.load(Relaxed)
    }

    pub(super) fn key(&self) -> FlowKey {
        let rest = core::array::from_fn(|w| self.rest[w].load(Relaxed));
        Words(self.scope.load(Relaxed), rest).key()
    }

    /// Writes all but the state into a claimed entry; returns the state that makes it visible.
    pub(super) fn write(&self, filling: &Filling<'_>) -> u32 {
        let stamp = (self.state.load(Relaxed) & !(LIVE | WRITING)).wrapping_add(VERSION) | LIVE;
        fence(Release);
        let words = Words::of(filling.key);
        self.scope.store(words.0, Relaxed);
        self.last_seen_s.store(filling.now_s, Relaxed);
        self.path.store(filling.path, Relaxed);
        step!();
        self.rest.iter().zip(words.1).for_each(|(to, word)| to.store(word, Relaxed));
        self.flags.store(u32::from(filling.flags) | (stamp >> 2) << 8, Relaxed);
        self.digest.store(filling.digest, Relaxed);
        stamp
    }

    /// Whether it is what it was: everything read before this call is then of one piece.
    #[inline(always)]
    pub(super) fn still(&self, stamp: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == stamp
    }

    /// Sets a flag in the entry that `hit` found; nothing if the entry or its flags changed.
    pub(super) fn set_flag(&self, hit: &Hit, flag: u32) {
        let _ = self.flags.compare_exchange(hit.flags, hit.flags | flag, Relaxed, Relaxed);
    }

    /// Clears a flag.
    pub(super) fn clear_flag(&self, flag: u32) {
        self.flags.fetch_and(!flag, Relaxed);
    }
}

/// A key as an entry keeps it.
pub(super) struct Words(pub(super) u32, pub(super) [u64; 5]);

impl Words {
    #[inline(always)]
    pub(super) fn of(key: &FlowKey) -> Words {
        let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
        let (l, h) = (&key.low.words, &key.high.words);
        let ends = [pair(l[0], l[1]), pair(l[2], l[3]), pair(h[0], h[1]), pair(h[2], h[3])];
        Words(key.scope, [pair(key.proto, key.ports), ends[0], ends[1], ends[2], ends[3]])
    }

    pub(super) fn key(&self) -> FlowKey {
        let (lo, hi) = (|w: u64| w as u32, |w: u64| (w >> 32) as u32);
        let end = |a: u64, b: u64| Addr { words: [lo(a), hi(a), lo(b), hi(b)] };
        let [first, a, b, c, d] = self.1;
        FlowKey {
            scope: self.0,
            proto: lo(first),
            ports: hi(first),
            low: end(a, b),
            high: end(c, d),
        }
    }
}

/// A key found: a consistent copy of what its entry said. The entry may end at any time after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The entry.
    pub entry: u32,
    /// The entry's state; while it is the same, the entry is the same.
    pub stamp: u32,
    /// The path record.
    pub path: u32,
    /// What the caller stored to recognise an unchanged gateway leg; of no meaning in answers.
    pub digest: u32,
    pub(crate) flags: u32,
    /// Second of the region's clock when it was last touched.
    pub last_seen_s: u32,
}

impl Hit {
    /// The user's 8 bits.
    pub(crate) fn flags(&self) -> u32 {
        self.flags & 0xff
    }

    /// Whether it is the entry of the gateway's side.
    #[inline(always)]
    pub const fn is_front(&self) -> bool {
        self.flags & FRONT != 0
    }

    /// The end of the key that began the flow. For a back entry with NAT: our end.
    #[inline(always)]
    pub const fn initiator(&self) -> Side {
        if self.flags & INITIATOR_HIGH != 0 { Side::High } else { Side::Low }
    }

    /// Whether a packet whose sender is `side` of the key comes from the initiator.
    #[inline(always)]
    pub fn from_initiator(&self, side: Side) -> bool {
        self.initiator() == side
    }

    /// Whether the entry knows that its TCP connection is established.
    #[inline(always)]
    pub const fn is_established(&self) -> bool {
        self.flags & ESTABLISHED != 0
    }
}

/// What an entry is filled with.
pub(crate) struct Filling<'a> {
    pub(crate) key: &'a FlowKey,
    pub(crate) path: u32,
    pub(crate) flags: u8,
    pub(crate) digest: u32,
    pub(crate) now_s: u32,
}
