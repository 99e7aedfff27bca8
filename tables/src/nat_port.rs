//! NAT ports: a map of 65,536 bits for each pair of backend and NAT address.
//!
//! A mapping is unique over (our address, port, backend address, port), so each backend has all
//! ports of each of our addresses for itself. A set bit is a port in use. Ports below 128 are never
//! given out. The first of the words that they would fill holds the rotation, so that a port that
//! was just given back comes last in line (a peer may still remember its connection). The second
//! says whether the map is used up: then a refusal costs one look and no search through the range.

use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::SeqCst};
use crate::layout::{NAT_MAP_BYTES, Section};
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};
use core::ops::RangeInclusive;

/// Below this port none is given out.
const FIRST: u16 = 128;
/// Which word says that all of a range is in use.
const USED_UP: usize = 1;
const WORDS: usize = NAT_MAP_BYTES / 8;
/// How often a word with free bits is tried: each failure means that another lcore took the bit.
/// The kernel's program goes on to the next word then: of two that want the last port at once, one
/// may be refused although a third gives one back.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 1 } else { u32::MAX };

#[repr(C, align(64))]
struct Map([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Map>() == NAT_MAP_BYTES);

/// All port maps, used by all lcores at once.
#[derive(Clone, Copy)]
pub struct NatPorts<'r> {
    maps: Rows<'r, Map>,
}

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Map {}

impl<'r> NatPorts<'r> {
    /// The maps of a region.
    pub fn new(region: &'r Region) -> NatPorts<'r> {
        NatPorts { maps: region.slice(Section::NatMaps) }
    }

    /// How many maps there are.
    pub fn count(&self) -> u32 {
        self.maps.count()
    }

    /// Takes a free port of `range`; `None` only when all of it is in use (or the map isn't there).
    ///
    /// The search begins in the lcore's own part of the range, so that lcores rarely meet at words,
    /// and goes on through the others' parts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn claim(
        &self,
        map: u32,
        range: RangeInclusive<u16>,
        lcore: u32,
        lcores: u32,
    ) -> Option<u16> {
        // The kernel's program searches in a function of its own, which its verifier sees once.
        #[cfg(target_arch = "bpf")]
        let take = |first, last| crate::parts::take(map, first, last);
        #[cfg(not(target_arch = "bpf"))]
        let take = |first, last| self.take(map, first, last);
        let [rotation, used_up, ..] = &self.maps.row(map)?.0;
        let (first, last) = (u32::from((*range.start()).max(FIRST)), u32::from(*range.end()));
        let all = u64::from(first) << 32 | u64::from(last);
        if used_up.load(SeqCst) == all {
            return None;
        }
        let turn = rotation.load(Relaxed);
        rotation.store(turn.wrapping_add(1), Relaxed);
        let start = start(first, last, lcore, lcores, turn)?;
        let found = take(start, last).or_else(|| take(first, start - 1));
        if let Some(port) = found {
            return Some(port as u16);
        }
        // A port may come back between the search and the note, which whoever gives it back then
        // does not see: so it is looked for once more behind the note.
        used_up.swap(all, SeqCst);
        let found = take(first, last)?;
        used_up.store(0, SeqCst);
        Some(found as u16)
    }

    /// Returns the port of a used-up map that was allocated longest ago, as far as the rotation
    /// tells, and advances the rotation: the next call returns another one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn oldest(
        &self,
        map: u32,
        range: RangeInclusive<u16>,
        (lcore, lcores): (u32, u32),
    ) -> Option<u16> {
        let rotation = self.maps.row(map)?.0.first()?;
        let turn = rotation.load(Relaxed);
        rotation.store(turn.wrapping_add(1), Relaxed);
        let (first, last) = (u32::from((*range.start()).max(FIRST)), u32::from(*range.end()));
        Some(start(first, last, lcore, lcores, turn)? as u16)
    }

    /// Takes this port of a map; false when it is in use, or never given out.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn take_port(&self, map: u32, port: u16) -> bool {
        let bit = 1 << (port % 64);
        let took = |map: &Map| map.0[usize::from(port / 64)].fetch_or(bit, AcqRel) & bit == 0;
        port >= FIRST && self.maps.row(map).is_some_and(took)
    }

    /// Takes the first free port of a map from `first` to `last`, both included.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn take(&self, map: u32, first: u32, last: u32) -> Option<u32> {
        let words = &self.maps.row(map)?.0;
        // A `first` behind `last` is no range; it may lie in the same word.
        if first > last {
            return None;
        }
        for turn in 0..WORDS as u32 {
            let number = first / 64 + turn;
            if number > last / 64 {
                break;
            }
            let mut usable = u64::MAX;
            if turn == 0 {
                usable <<= first % 64;
            }
            if number == last / 64 {
                usable &= u64::MAX >> (63 - last % 64);
            }
            let word = &words[number as usize % WORDS];
            for _ in 0..TRIES {
                let free = !word.load(Relaxed) & usable;
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                if word.fetch_or(bit, AcqRel) & bit == 0 {
                    return Some(number * 64 + number_of(bit));
                }
            }
        }
        None
    }

    /// Gives a port back. False when it wasn't in use.
    pub fn release(&self, map: u32, port: u16) -> bool {
        let Some(Map(words)) = self.maps.row(map) else { return false };
        if port < FIRST {
            return false;
        }
        let bit = 1 << (port % 64);
        let freed = words[usize::from(port / 64)].fetch_and(!bit, SeqCst) & bit != 0;
        if words[USED_UP].load(SeqCst) != 0 {
            words[USED_UP].store(0, SeqCst);
        }
        freed
    }
}

/// What the fastpath does, which claims ports ahead.
#[cfg(not(target_arch = "bpf"))]
impl NatPorts<'_> {
    /// Takes the last [`NatPorts::claim`] of a map back: the next one finds what that found, unless
    /// another port came back before it.
    pub fn unclaim(&self, map: u32, port: u16) {
        if self.release(map, port)
            && let Some(Map([rotation, ..])) = self.maps.row(map)
        {
            rotation.store(rotation.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }
}

/// The other protocol whose flows may have a port that a flow of `proto` wants.
#[inline(always)]
pub const fn other_proto(proto: u8) -> u8 {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    if proto == TCP { UDP } else { TCP }
}

/// Where an lcore's search begins at this turn of the rotation: in its own part of the range.
#[inline(always)]
fn start(first: u32, last: u32, lcore: u32, lcores: u32, turn: u64) -> Option<u32> {
    let count = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
    let lcores = lcores.max(1).min(count);
    let part = count.checked_div(lcores)?;
    let within = turn.checked_rem(u64::from(part))? as u32;
    Some(first + part * lcore.checked_rem(lcores)? + within)
}

/// What a new fastpath does, and what people ask.
#[cfg(not(target_arch = "bpf"))]
impl NatPorts<'_> {
    /// Marks one port as used; false when it is already, or can't be. For recovery.
    pub(crate) fn mark(&self, map: u32, port: u16) -> bool {
        self.take_port(map, port)
    }

    /// How often the rotation of a map was advanced: ports searched for, or examined for eviction.
    pub fn rotation(&self, map: u32) -> u64 {
        let rotation = self.maps.get(map as usize).and_then(|map| map.0.first());
        rotation.map_or(0, |rotation| rotation.load(Relaxed))
    }

    /// How many ports of a map are in use.
    pub fn used(&self, map: u32) -> u32 {
        let first = usize::from(FIRST / 64);
        let words = self.maps.get(map as usize).map(|map| &map.0[first..]).unwrap_or_default();
        words.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }

    /// Frees all ports of all maps. For recovery, while no lcore runs.
    pub(crate) fn clear(&self) {
        // The rotation goes on.
        for word in self.maps.iter().flat_map(|map| &map.0[1..]) {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }
}

/// Which bit of a word the only one is.
#[inline(always)]
const fn number_of(bit: u64) -> u32 {
    // Of trailing zeros the kernel's compiler would make a table.
    63 - bit.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn maps(count: usize) -> Vec<Map> {
        (0..count).map(|_| Map([const { AtomicU64::new(0) }; WORDS])).collect()
    }

    #[test]
    fn a_claim_that_is_taken_back_is_made_again_alike() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        let claim = || maps.claim(0, 1000..=1999, 0, 1).unwrap();
        let (first, second, third) = (claim(), claim(), claim());
        maps.unclaim(0, third);
        assert_eq!(claim(), third);
        maps.unclaim(0, third);
        assert!(maps.release(0, second));
        // The rotation is behind the one that came back.
        assert_eq!((claim(), maps.used(0)), (third, 2));
        assert!(first < second && second < third);
    }

    #[test]
    fn a_range_is_used_up_to_its_last_port_and_not_beyond() {
        let memory = maps(2);
        let maps = NatPorts { maps: &memory };
        for (first, last) in [(1024, 1024), (1000, 1300), (200, 227), (65_500, 65_535)] {
            for lcores in [1, 3, 64] {
                let mut seen = HashSet::new();
                while let Some(port) = maps.claim(1, first..=last, lcores / 2, lcores) {
                    assert!((first..=last).contains(&port) && seen.insert(port));
                }
                assert_eq!(seen.len(), usize::from(last - first) + 1);
                assert_eq!(maps.used(1) as usize, seen.len());
                assert!(seen.iter().all(|port| maps.release(1, *port)));
                assert!(seen.iter().all(|port| !maps.release(1, *port)));
            }
        }
        assert_eq!((maps.used(0), maps.used(1)), (0, 0));
    }

    #[test]
    fn a_port_just_given_back_is_the_last_to_come_again() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        let first = maps.claim(0, 1024..=1123, 0, 1).unwrap();
        assert!(maps.release(0, first));
        for _ in 0..99 {
            let port = maps.claim(0, 1024..=1123, 0, 1).unwrap();
            assert_ne!(port, first);
            assert!(maps.release(0, port));
        }
    }

    #[test]
    fn impossible_ranges_and_maps_give_nothing() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        let backwards = RangeInclusive::new(2000, 1999);
        assert_eq!(maps.claim(1, 1024..=2000, 0, 1), None);
        assert_eq!(maps.claim(0, backwards, 0, 1), None);
        assert_eq!(maps.claim(0, 0..=127, 0, 1), None);
        assert!(!maps.release(0, 5) && !maps.release(9, 5000) && !maps.mark(0, 5));
    }

    #[test]
    fn a_used_up_map_is_not_searched_until_a_port_comes_back() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        while maps.claim(0, 2000..=2999, 0, 1).is_some() {}
        assert!((0..9).all(|_| maps.claim(0, 2000..=2999, 0, 1).is_none()));
        // A bit that was cleared behind its back is not seen.
        memory[0].0[2000 / 64].fetch_and(!(1 << (2000 % 64)), Relaxed);
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), None);
        assert!(maps.mark(0, 2000));
        // Of another range nothing is known.
        assert_eq!(maps.claim(0, 2000..=3000, 0, 1), Some(3000));
        assert!(maps.release(0, 2500));
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), Some(2500));
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), None);
        maps.clear();
        assert!(maps.claim(0, 2000..=2999, 0, 1).is_some());
    }

    /// Ports that come back while others find the map used up: none is forgotten.
    #[test]
    fn a_port_that_comes_back_is_found_whatever_was_noted_meanwhile() {
        let rounds = if cfg!(miri) { 10 } else { 20_000 };
        let (memory, range) = (maps(1), 1024..=1031);
        let maps = NatPorts { maps: &memory };
        let work = |lcore| {
            for _ in 0..rounds {
                let held: Vec<u16> =
                    (0..6).filter_map(|_| maps.claim(0, range.clone(), lcore, 3)).collect();
                held.iter().for_each(|port| assert!(maps.release(0, *port)));
                assert!(held.iter().all(|port| range.contains(port)));
            }
        };
        for _ in 0..rounds.min(20) {
            std::thread::scope(|scope| (0..3).for_each(|n| drop(scope.spawn(move || work(n)))));
            let all = std::iter::from_fn(|| maps.claim(0, range.clone(), 0, 1));
            assert_eq!(all.count(), 8);
            assert!(range.clone().all(|port| maps.release(0, port)));
        }
    }

    #[test]
    fn threads_share_a_range_without_sharing_a_port() {
        let last = if cfg!(miri) { 1223 } else { 33_023 };
        // Each in its part of the range, then all in the same.
        for lcores in [4, 1] {
            let memory = maps(1);
            let maps = NatPorts { maps: &memory };
            let claim_all = |lcore| {
                std::iter::from_fn(|| maps.claim(0, 1024..=last, lcore, lcores)).collect::<Vec<_>>()
            };
            let mut all: Vec<u16> = std::thread::scope(|scope| {
                let claim_all = &claim_all;
                let threads: Vec<_> =
                    (0..4).map(|lcore| scope.spawn(move || claim_all(lcore))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            all.sort_unstable();
            assert_eq!(all, (1024..=last).collect::<Vec<_>>());
        }
    }
}
