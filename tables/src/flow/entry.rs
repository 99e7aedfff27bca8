//! Entry of the flow index: a key and its target, in one cache line guarded by a seqlock.

use super::step::step;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::layout::BUCKET_ENTRIES;
use crate::rows::Shared;
use packet::addr::Addr;
use packet::flow::{FlowKey, Side};

/// State bit: the entry is being written or cleared.
pub(crate) const WRITING: u32 = 1;
/// State bit: the entry holds a key. The upper bits of the state count how often the
/// entry was filled.
pub(crate) const LIVE: u32 = 2;
const VERSION: u32 = 4;

/// [`Hit::flags`]: the entry has the key of the gateway's side.
pub(super) const FRONT: u32 = 1;
/// [`Hit::flags`]: the initiator is the high end of the key.
pub(super) const INITIATOR_HIGH: u32 = 2;
/// [`Hit::flags`]: the flow is confirmed; packets without SYN, FIN and RST do not change its state.
pub(super) const ESTABLISHED: u32 = 4;

/// Entry of a flow, a fragmented datagram or a client. One cache line.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// Seqlock: [`WRITING`], [`LIVE`], and above them a count.
    pub(super) state: AtomicU32,
    /// Time of last use in seconds of the region's clock. Affinities store the time of expiry.
    pub(crate) last_seen_s: AtomicU32,
    /// Number of the path record. Affinities store the backend's id.
    pub(crate) path: AtomicU32,
    /// The low 8 bits are flags, defined by the table that uses the index. The bits above them are
    /// the low 24 bits of the state's count, so that a delayed update of the flags never affects
    /// the next key in this entry.
    flags: AtomicU32,
    /// See [`Hit::digest`]; fragments and affinities store other values.
    pub(crate) digest: AtomicU32,
    /// Scope of the key.
    scope: AtomicU32,
    /// The key without its scope: see [`KeyWords`].
    rest: [AtomicU64; 5],
}

const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Entry {
    const IN_VALUE: u32 = BUCKET_ENTRIES as u32;
}

impl Entry {
    /// Returns the entry's state if the entry is live and appears to have the key `expected`, else
    /// 0. The caller reads what it needs and then verifies with [`Entry::is_unchanged`].
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(super) fn stamp_of(&self, expected: &KeyWords) -> u32 {
        self.stamp_if(self.state.load(Acquire), expected)
    }

    /// Returns `stamp`, the entry's state, if it denotes a live entry and the key appears to be
    /// `expected`, else 0.
    #[inline(always)]
    fn stamp_if(&self, stamp: u32, expected: &KeyWords) -> u32 {
        let mut differs = u64::from(self.scope.load(Relaxed) ^ expected.0);
        for (word, expected) in self.rest.iter().zip(&expected.1) {
            differs |= word.load(Relaxed) ^ expected;
        }
        if differs != 0 || stamp & (LIVE | WRITING) != LIVE { 0 } else { stamp }
    }

    /// Returns a consistent copy of the entry if it is live and has the key `expected`.
    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn compare(&self, i: u32, expected: &FlowKey) -> Option<Hit> {
        let state = self.state.load(Acquire);
        // The words of the key are read only here, so that they occupy no registers earlier.
        self.copied(i, self.stamp_if(state, &KeyWords::of(expected)))
    }

    /// As `compare`, for key words and a state that were read before.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(super) fn compare_since(&self, i: u32, state: u32, expected: &KeyWords) -> Option<Hit> {
        self.copied(i, self.stamp_if(state, expected))
    }

    #[inline(always)]
    fn copied(&self, i: u32, stamp: u32) -> Option<Hit> {
        if stamp == 0 {
            return None;
        }
        let hit = self.hit(i, stamp);
        // A changed state means that the key left this entry meanwhile, which counts as a miss.
        self.is_unchanged(stamp).then_some(hit)
    }

    /// Returns a consistent copy of key and contents if the entry is live.
    pub(super) fn read(&self, i: u32) -> Option<(FlowKey, Hit)> {
        let stamp = self.state.load(Acquire);
        let found = (self.key(), self.hit(i, stamp));
        (stamp & (LIVE | WRITING) == LIVE && self.is_unchanged(stamp)).then_some(found)
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

    /// Scope of the key.
    #[inline]
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn scope(&self) -> u32 {
        self.scope.load(Relaxed)
    }

    pub(super) fn key(&self) -> FlowKey {
        let rest = core::array::from_fn(|w| self.rest[w].load(Relaxed));
        KeyWords(self.scope.load(Relaxed), rest).key()
    }

    /// Writes a claimed entry except its state, and returns the state that makes it visible.
    pub(super) fn write(&self, filling: &Filling<'_>) -> u32 {
        let stamp = (self.state.load(Relaxed) & !(LIVE | WRITING)).wrapping_add(VERSION) | LIVE;
        fence(Release);
        let words = KeyWords::of(filling.key);
        self.scope.store(words.0, Relaxed);
        self.last_seen_s.store(filling.now_s, Relaxed);
        self.path.store(filling.path, Relaxed);
        step!();
        self.rest.iter().zip(words.1).for_each(|(to, word)| to.store(word, Relaxed));
        self.flags.store(u32::from(filling.flags) | (stamp >> 2) << 8, Relaxed);
        self.digest.store(filling.digest, Relaxed);
        stamp
    }

    /// Returns whether the state is unchanged, so that everything read before this call is
    /// consistent.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, stamp: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == stamp
    }

    /// Sets a flag in the entry of `hit`; does nothing if the entry's key or flags changed since.
    pub(super) fn set_flag(&self, hit: &Hit, flag: u32) {
        let _ = self.flags.compare_exchange(hit.flags, hit.flags | flag, Relaxed, Relaxed);
    }

    /// Clears a flag.
    pub(super) fn clear_flag(&self, flag: u32) {
        self.flags.fetch_and(!flag, Relaxed);
    }
}

/// A key in the form in which entries store it: its scope, and the rest as words.
pub(super) struct KeyWords(pub(super) u32, pub(super) [u64; 5]);

impl KeyWords {
    #[inline(always)]
    pub(super) fn of(key: &FlowKey) -> KeyWords {
        let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
        let (l, h) = (&key.low.words, &key.high.words);
        let ends = [pair(l[0], l[1]), pair(l[2], l[3]), pair(h[0], h[1]), pair(h[2], h[3])];
        KeyWords(key.scope, [pair(key.proto, key.ports), ends[0], ends[1], ends[2], ends[3]])
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

/// Result of a lookup: a consistent copy of an entry, which may end at any later time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// Number of the entry.
    pub entry: u32,
    /// State of the entry when it was found; while the state is unchanged, so are key and path.
    pub stamp: u32,
    /// Number of the path record.
    pub path: u32,
    /// Digest by which the caller detects an unchanged gateway leg. In a back entry: number of the
    /// front entry.
    pub digest: u32,
    pub(crate) flags: u32,
    /// Time of last use, in seconds of the region's clock.
    pub last_seen_s: u32,
}

impl Hit {
    /// Flags of the table that uses the index (8 bits).
    pub(crate) fn flags(&self) -> u32 {
        self.flags & 0xff
    }

    /// Returns whether the entry has the key of the gateway's side.
    #[inline(always)]
    pub const fn is_front(&self) -> bool {
        self.flags & FRONT != 0
    }

    /// Returns the end of the key that began the flow. In the back entry of a NAT flow, this is the
    /// local address, which replaces the initiator.
    #[inline(always)]
    pub const fn initiator(&self) -> Side {
        if self.flags & INITIATOR_HIGH != 0 { Side::High } else { Side::Low }
    }

    /// Returns whether a packet sent by end `side` of the key comes from the initiator.
    #[inline(always)]
    pub fn from_initiator(&self, side: Side) -> bool {
        self.initiator() == side
    }

    /// Returns whether the entry is marked as that of a confirmed flow, whose state packets without
    /// SYN, FIN and RST do not change.
    #[inline(always)]
    pub const fn is_established(&self) -> bool {
        self.flags & ESTABLISHED != 0
    }
}

/// Contents of a new entry.
pub(crate) struct Filling<'a> {
    pub(crate) key: &'a FlowKey,
    pub(crate) path: u32,
    pub(crate) flags: u8,
    pub(crate) digest: u32,
    /// Value of [`Entry::last_seen_s`].
    pub(crate) now_s: u32,
}
