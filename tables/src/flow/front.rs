//! What a flow is recognised by where its path is known: what its front entry says, once more,
//! beside the path.
//!
//! Entries lie where a hash says, anywhere: among many flows the one of a packet is in no cache,
//! and only it names the path. Whoever remembers by which path a flow goes (see
//! [`lately`](super::lately)) needs no entry, and paths and fronts lie in the order in which flows
//! began. A front belongs to its path, and the path's seqlock guards it: a path is live before its
//! entries can be found, and ends before they go, so that a live one whose front has a key is that
//! key's flow.

use super::entry::Words;
use super::path::{Forward, PATH_ONE_WAY, Stored};
use super::{Flows, Hit, tcp};
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::rows::{Numbered, Shared};
use packet::flow::{FlowKey, Side};

/// A path's front. One cache line.
#[repr(C, align(64))]
pub(crate) struct Front {
    scope: AtomicU32,
    /// 1 where the key's high end began, else 0.
    high: AtomicU32,
    rest: [AtomicU64; 5],
    /// [`Hit::digest`] of the front entry.
    pub(super) digest: AtomicU32,
    /// Second of the region's clock when the front entry was last touched by way of the path.
    seen_s: AtomicU32,
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

    /// 0 where it has this key.
    #[inline(always)]
    fn differs(&self, wanted: &Words) -> u64 {
        let mut differs = u64::from(self.scope.load(Relaxed) ^ wanted.0);
        for (word, wanted) in self.rest.iter().zip(&wanted.1) {
            differs |= word.load(Relaxed) ^ wanted;
        }
        differs
    }
}

/// A path that a packet's flow may go by, asked for.
pub struct Likely<'r> {
    path: Option<&'r Stored>,
    front: Option<&'r Front>,
}

impl Likely<'_> {
    /// Whether there is such a path at all.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.path.is_some() && self.front.is_some()
    }
}

/// A flow met on its path: a consistent copy of what was said there.
pub struct Met<'r> {
    front: &'r Front,
    /// What becomes of packets from the initiator.
    pub forward: Forward,
    /// As [`Hit::digest`] of the front entry.
    pub digest: u32,
    /// The end of the front key that began the flow.
    pub initiator: Side,
    tcp: u32,
}

impl Met<'_> {
    /// Whether a TCP segment with these flags (the byte of RFC 9293 3.1), or a packet of another
    /// protocol, which has none, changes nothing of what is known of the flow, and does not reopen
    /// a connection.
    #[inline(always)]
    pub fn stays(&self, flags: u8, from_initiator: bool) -> bool {
        let one_way = self.forward.flags & PATH_ONE_WAY != 0;
        tcp::stays(self.tcp, flags, from_initiator, one_way)
    }
}

impl<'r> Flows<'r> {
    /// Begins [`Flows::meet`] by reading a word of each line: both may be in no cache, and a
    /// processor goes on until somebody wants to know what was read. [`NONE`](crate::record::NONE)
    /// is no path.
    #[inline(always)]
    pub fn likely(&self, path: u32) -> Likely<'r> {
        let (path, front) = (self.paths.row(path), self.fronts.row(path));
        if let (Some(path), Some(front)) = (path, front) {
            let _ = (path.tcp.load(Relaxed), front.scope.load(Relaxed));
        }
        Likely { path, front }
    }

    /// The flow whose front key is `key`, if it goes by this path now.
    #[inline(always)]
    pub fn meet(&self, likely: &Likely<'r>, key: &FlowKey) -> Option<Met<'r>> {
        let (path, front, wanted) = (likely.path?, likely.front?, &Words::of(key));
        let copy = |path: &Stored| {
            let (digest, high) = (front.digest.load(Relaxed), front.high.load(Relaxed));
            (front.differs(wanted), path.forward(), digest, high, path.tcp.load(Relaxed))
        };
        let (differs, forward, digest, high, tcp) = path.consistent(copy).ok()?;
        if differs != 0 {
            return None;
        }
        let initiator = if high == 1 { Side::High } else { Side::Low };
        Some(Met { front, forward, digest, initiator, tcp })
    }

    /// As [`Flows::touch`]: the front entry is told once a second.
    #[inline(always)]
    pub fn touch_met(&self, met: &Met<'_>, now_s: u32) {
        if met.front.seen_s.load(Relaxed) != now_s {
            met.front.seen_s.store(now_s, Relaxed);
            if let Some(entry) = self.index.entry(met.forward.front) {
                entry.last_seen_s.store(now_s, Relaxed);
            }
        }
    }

    /// Writes a path's front anew from its front entry, for recovery.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn face(&self, id: u32, key: &FlowKey, hit: &Hit) {
        if let Some(front) = self.fronts.row(id) {
            front.set(key, hit.initiator(), hit.digest, hit.last_seen_s);
        }
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
