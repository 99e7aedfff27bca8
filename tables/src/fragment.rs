//! Fragment table: maps a datagram's later fragments, which have no ports, to its flow.
//!
//! The first fragment creates an entry under (scope, source, destination, id, protocol) that
//! expires after `Timeouts::fragment_s` (15 s by default); no fragment is buffered.
//!
//! The table is an index like that of flows, with another meaning of an entry's fields: `path` and
//! `digest` contain the flow's path and the stamp of its front entry, so that an entry never leads
//! to another flow that reused the path record.

use crate::atomic::Ordering::Relaxed;
use crate::flow::{Entry, Filling, Index, IndexError, TableKind};
use crate::layout::Section;
use crate::record::{NONE, Timeouts};
use crate::region::Region;
use packet::addr::Addr;
use packet::flow::FlowKey;

/// Lifetime in seconds with which only entries of the current second are live.
pub const EARLIER_S: u32 = 1;

/// Flag of an entry: the flow's initiator sent the datagram.
const FROM_INITIATOR: u32 = 1;

/// Fields that all fragments of a datagram share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FragmentKey {
    /// Scope, as in a [`FlowKey`].
    pub scope: u32,
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Identification (16 bits in IPv4, 32 in IPv6).
    pub id: u32,
    /// IP protocol.
    pub proto: u8,
}

impl FragmentKey {
    /// Encodes the key in the form of a flow key: the ends are not sorted, and the ports are the
    /// identification.
    #[inline]
    fn index_key(&self) -> FlowKey {
        let proto = u32::from(self.proto);
        FlowKey { scope: self.scope, proto, ports: self.id, low: self.src, high: self.dst }
    }
}

/// Destination of a datagram's fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentTarget {
    /// Forward with a flow: `Flows::revisit(path, stamp)`.
    Flow {
        /// Path of the flow.
        path: u32,
        /// [`Hit::stamp`](crate::flow::Hit::stamp) of its front entry.
        stamp: u32,
        /// Whether the flow's initiator sent the datagram.
        from_initiator: bool,
    },
    /// Return to the gateway, like the first fragment.
    Return,
}

/// The fragment table of a region, shared by all lcores.
#[derive(Clone, Copy)]
pub struct Fragments<'r> {
    index: Index<'r>,
    lifetime_s: u32,
}

impl<'r> Fragments<'r> {
    /// Returns the fragment table of a region with the default lifetime.
    #[inline]
    pub fn new(region: &'r Region) -> Fragments<'r> {
        let entries = region.slice(Section::Fragments);
        let words = region.slice(Section::FragmentLocks);
        let index = Index::new(TableKind::Fragments, entries, words, region);
        Fragments { index, lifetime_s: Timeouts::DEFAULT.fragment_s }
    }

    #[cfg(target_arch = "bpf")]
    pub(crate) fn index(&self) -> &Index<'r> {
        &self.index
    }

    /// Returns the table with the identity that this writer stores in lock words.
    pub fn as_owner(self, lcore: u8, epoch: u32) -> Fragments<'r> {
        Fragments { index: self.index.as_owner(lcore, epoch), ..self }
    }

    /// Returns the table with another lifetime in seconds (`Timeouts::fragment_s`).
    pub fn with_lifetime(self, seconds: u32) -> Fragments<'r> {
        Fragments { lifetime_s: seconds, ..self }
    }

    /// Returns the destination of the datagram's first fragment, if its entry has not expired.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn find(&self, key: &FragmentKey, now_s: u32) -> Option<FragmentTarget> {
        let key = key.index_key();
        let hit = self.index.find(self.index.hash(&key), &key)?;
        if is_expired(self.lifetime_s, hit.last_seen_s, now_s) {
            return None;
        }
        Some(match hit.path {
            NONE => FragmentTarget::Return,
            path => FragmentTarget::Flow {
                path,
                stamp: hit.digest,
                from_initiator: hit.flags() & FROM_INITIATOR != 0,
            },
        })
    }

    /// Stores the destination of a datagram's first fragment. Slots of expired entries are reused.
    /// If there is neither such a slot nor a free one, an entry of an earlier second is replaced:
    /// fragments of a datagram follow each other within milliseconds, and a flood must not keep
    /// later datagrams out.
    #[cfg(not(target_arch = "bpf"))]
    pub fn insert(
        &self,
        key: &FragmentKey,
        target: FragmentTarget,
        now_s: u32,
    ) -> Result<(), IndexError> {
        self.insert_over_expired(key, target, now_s).or_else(|why| match why {
            IndexError::Full => {
                self.with_lifetime(EARLIER_S).insert_over_expired(key, target, now_s)
            }
            other => Err(other),
        })
    }

    /// As [`Fragments::insert`], but reuses expired entries only. The BPF program's stack is too
    /// small for both attempts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn insert_over_expired(
        &self,
        key: &FragmentKey,
        target: FragmentTarget,
        now_s: u32,
    ) -> Result<(), IndexError> {
        let (path, digest, flags) = match target {
            FragmentTarget::Return => (NONE, 0, 0),
            FragmentTarget::Flow { path, stamp, from_initiator } => {
                (path, stamp, if from_initiator { FROM_INITIATOR as u8 } else { 0 })
            }
        };
        // A repeated identification is a new datagram.
        let filling = Filling { key: &key.index_key(), path, flags, digest, now_s };
        let evictable =
            |entry: &Entry| is_expired(self.lifetime_s, entry.last_seen_s.load(Relaxed), now_s);
        self.index.put(&filling, evictable)
    }

    /// Releases locks and clears half-written entries of a killed fastpath. Every start of fastpath
    /// calls it before any lcore runs. Returns the number of cleared entries.
    #[cfg(not(target_arch = "bpf"))]
    pub fn recover(&self) -> u32 {
        self.index.rebuild(|_, _, _| true).0
    }
}

/// Returns whether an entry written at `then_s` has reached the end of its lifetime.
#[inline(always)]
fn is_expired(lifetime_s: u32, then_s: u32, now_s: u32) -> bool {
    let age = now_s.wrapping_sub(then_s);
    // An entry of an lcore whose clock is one second ahead is not expired.
    age >= lifetime_s && age <= u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;
    use packet::flow::SCOPE_PLAIN;

    fn key(n: u32) -> FragmentKey {
        let (src, dst) = (Addr::v4(7), Addr::v4(9));
        FragmentKey { scope: SCOPE_PLAIN, src, dst, id: n, proto: 17 }
    }

    fn flow(n: u32) -> FragmentTarget {
        FragmentTarget::Flow { path: n, stamp: n + 1, from_initiator: n.is_multiple_of(2) }
    }

    #[test]
    fn fragment_entry_is_valid_for_its_lifetime_and_direction() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Fragments::new(&region);
        assert_eq!(table.find(&key(1), 100), None);
        table.insert(&key(1), flow(4), 100).unwrap();
        table.insert(&key(2), FragmentTarget::Return, 100).unwrap();
        for now_s in [99, 100, 114] {
            assert_eq!(table.find(&key(1), now_s), Some(flow(4)));
            assert_eq!(table.find(&key(2), now_s), Some(FragmentTarget::Return));
        }
        assert_eq!((table.find(&key(1), 115), table.find(&key(2), 115)), (None, None));
        let forward = key(1);
        let back = FragmentKey { src: forward.dst, dst: forward.src, ..forward };
        assert_eq!(table.find(&back, 100), None);
        for other in [FragmentKey { scope: 1, ..forward }, FragmentKey { proto: 6, ..forward }] {
            assert_eq!(table.find(&other, 100), None);
        }
    }

    #[test]
    fn repeated_identification_is_a_new_datagram() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Fragments::new(&region);
        table.insert(&key(1), flow(4), 100).unwrap();
        table.insert(&key(1), flow(5), 110).unwrap();
        assert_eq!(table.find(&key(1), 124), Some(flow(5)));
    }

    #[test]
    fn full_fragment_table_reuses_entries_of_earlier_seconds() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Fragments::new(&region);
        let entries = region.layout().term(Section::Fragments).count as u32;
        let mut inserted = 0;
        for n in 0..4 * entries {
            match table.insert(&key(n), flow(n), 100) {
                Ok(()) => inserted += 1,
                Err(error) => assert_eq!(error, IndexError::Full),
            }
        }
        assert!(
            inserted >= Sizes::SMALL.fragments && inserted <= entries,
            "{inserted} of {entries}"
        );
        let found = (0..4 * entries).filter(|n| table.find(&key(*n), 100) == Some(flow(*n)));
        assert_eq!(found.count() as u32, inserted);
        // In the next second, as many entries fit again.
        let (first, mut later) = (8 * entries, 0);
        for n in first..first + Sizes::SMALL.fragments {
            later += u32::from(table.insert(&key(n), flow(n + 1), 101).is_ok());
        }
        assert_eq!(later, Sizes::SMALL.fragments);
        let found = |n: &u32| table.find(&key(*n), 101) == Some(flow(n + 1));
        assert_eq!((first..first + later).filter(found).count() as u32, later);
    }

    #[test]
    fn fragment_entries_survive_restart() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Fragments::new(&region);
        (0..20).for_each(|n| table.insert(&key(n), flow(n), 100).unwrap());
        assert!(table.index.lock(table.index.position(table.index.hash(&key(3).index_key())).home));
        assert_eq!(table.recover(), 0);
        assert!((0..20).all(|n| table.find(&key(n), 101) == Some(flow(n))));
        table.insert(&key(3), flow(9), 101).unwrap();
    }
}
