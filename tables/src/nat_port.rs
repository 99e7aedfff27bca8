//! NAT ports: a bitmap of 65,536 ports for each pair of backend and NAT address.
//!
//! A NAT flow is identified by local address and port and by the backend's address and port, so
//! each backend can use all ports of each NAT address. A set bit is a port in use.
//!
//! Ports below 128 are never allocated, and the two words of their bits have another use:
//!
//! - The first word holds the rotation, the number of allocations so far. The search starts behind
//!   earlier allocations, so that a port just released is reused last: a peer may still remember
//!   its connection.
//! - The second word records an exhausted range: an allocation from that range then fails after one
//!   load, without a search.

use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::SeqCst};
use crate::layout::{NAT_MAP_BYTES, Section};
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};
use core::ops::RangeInclusive;

/// Lowest port that is allocated.
const FIRST: u16 = 128;
/// Index of the word that records an exhausted range.
const EXHAUSTED: usize = 1;
const WORDS: usize = NAT_MAP_BYTES / 8;
/// Number of attempts at a word with free bits. An attempt fails if another lcore took the bit. The
/// BPF program then continues with the next word. If two CPUs compete for the last port, one may
/// therefore fail even though another port of the word was released meanwhile.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 1 } else { u32::MAX };

/// Port map of one backend and NAT address: one bit per port.
#[repr(C, align(64))]
struct Map([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Map>() == NAT_MAP_BYTES);

/// Port maps of all backends, used by all lcores concurrently.
#[derive(Clone, Copy)]
pub struct NatPorts<'r> {
    maps: Rows<'r, Map>,
}

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Map {}

impl<'r> NatPorts<'r> {
    /// Returns the port maps of a region.
    pub fn new(region: &'r Region) -> NatPorts<'r> {
        NatPorts { maps: region.slice(Section::NatMaps) }
    }

    /// Number of port maps.
    pub fn count(&self) -> u32 {
        self.maps.count()
    }

    /// Allocates a free port of `range`; `None` if all of its ports are in use or the map does not
    /// exist.
    ///
    /// The search begins in the lcore's own part of the range, so that lcores rarely contend for a
    /// word, and continues through the other parts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn claim(
        &self,
        map: u32,
        range: RangeInclusive<u16>,
        lcore: u32,
        lcores: u32,
    ) -> Option<u16> {
        // A separate function in the BPF program, which the verifier checks once.
        #[cfg(target_arch = "bpf")]
        let take = |first, last| crate::parts::take(map, first, last);
        #[cfg(not(target_arch = "bpf"))]
        let take = |first, last| self.take(map, first, last);
        let [rotation, exhausted, ..] = &self.maps.row(map)?.0;
        let (first, last) = (u32::from((*range.start()).max(FIRST)), u32::from(*range.end()));
        let all = u64::from(first) << 32 | u64::from(last);
        if exhausted.load(SeqCst) == all {
            return None;
        }
        let count = rotation.load(Relaxed);
        rotation.store(count.wrapping_add(1), Relaxed);
        let start = start(first, last, lcore, lcores, count)?;
        let found = take(start, last).or_else(|| take(first, start - 1));
        if let Some(port) = found {
            return Some(port as u16);
        }
        // An lcore that released a port between the search and this mark did not see the mark, and
        // did not clear it. Therefore the range is searched again after the mark is written.
        exhausted.swap(all, SeqCst);
        let found = take(first, last)?;
        exhausted.store(0, SeqCst);
        Some(found as u16)
    }

    /// Returns the port of an exhausted map that was allocated longest ago according to the
    /// rotation, and advances the rotation: the next call returns another port.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn oldest(
        &self,
        map: u32,
        range: RangeInclusive<u16>,
        (lcore, lcores): (u32, u32),
    ) -> Option<u16> {
        let rotation = self.maps.row(map)?.0.first()?;
        let count = rotation.load(Relaxed);
        rotation.store(count.wrapping_add(1), Relaxed);
        let (first, last) = (u32::from((*range.start()).max(FIRST)), u32::from(*range.end()));
        Some(start(first, last, lcore, lcores, count)? as u16)
    }

    /// Allocates a given port of a map; returns false if it is in use or below 128.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn take_port(&self, map: u32, port: u16) -> bool {
        let bit = 1 << (port % 64);
        let took = |map: &Map| map.0[usize::from(port / 64)].fetch_or(bit, AcqRel) & bit == 0;
        port >= FIRST && self.maps.row(map).is_some_and(took)
    }

    /// Allocates the first free port of a map in `first..=last`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn take(&self, map: u32, first: u32, last: u32) -> Option<u32> {
        let words = &self.maps.row(map)?.0;
        // An empty range must be excluded here: both bounds may lie in the same word.
        if first > last {
            return None;
        }
        for step in 0..WORDS as u32 {
            let number = first / 64 + step;
            if number > last / 64 {
                break;
            }
            let mut usable = u64::MAX;
            if step == 0 {
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

    /// Releases a port; returns false if it was not in use.
    pub fn release(&self, map: u32, port: u16) -> bool {
        let Some(Map(words)) = self.maps.row(map) else { return false };
        if port < FIRST {
            return false;
        }
        let bit = 1 << (port % 64);
        let freed = words[usize::from(port / 64)].fetch_and(!bit, SeqCst) & bit != 0;
        if words[EXHAUSTED].load(SeqCst) != 0 {
            words[EXHAUSTED].store(0, SeqCst);
        }
        freed
    }
}

/// Operations of fastpath, which allocates ports in advance.
#[cfg(not(target_arch = "bpf"))]
impl NatPorts<'_> {
    /// Reverts the last [`NatPorts::claim`] of a map: the next call returns the same port, unless
    /// one that the search had passed over as in use was released in between.
    pub fn unclaim(&self, map: u32, port: u16) {
        if self.release(map, port)
            && let Some(Map([rotation, ..])) = self.maps.row(map)
        {
            rotation.store(rotation.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }
}

/// Returns the protocol, besides `proto`, among whose flows the owner of a NAT port is searched:
/// UDP for TCP, and TCP for any other. A port map is shared by all protocols.
#[inline(always)]
pub const fn other_proto(proto: u8) -> u8 {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    if proto == TCP { UDP } else { TCP }
}

/// Returns the port at which an lcore's search begins for this rotation. The port lies in the
/// lcore's own part of the range. `None` for an empty range.
#[inline(always)]
fn start(first: u32, last: u32, lcore: u32, lcores: u32, rotation: u64) -> Option<u32> {
    let count = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
    let lcores = lcores.max(1).min(count);
    let part = count.checked_div(lcores)?;
    let within = rotation.checked_rem(u64::from(part))? as u32;
    Some(first + part * lcore.checked_rem(lcores)? + within)
}

/// Operations for recovery and for status output.
#[cfg(not(target_arch = "bpf"))]
impl NatPorts<'_> {
    /// Marks a port as in use during recovery; returns false if it is marked already, is below 128,
    /// or has no map.
    pub(crate) fn mark(&self, map: u32, port: u16) -> bool {
        self.take_port(map, port)
    }

    /// Number of times that a map's rotation advanced: by allocations, and by searches for a port
    /// to evict.
    pub fn rotation(&self, map: u32) -> u64 {
        let rotation = self.maps.get(map as usize).and_then(|map| map.0.first());
        rotation.map_or(0, |rotation| rotation.load(Relaxed))
    }

    /// Number of ports of a map that are in use.
    pub fn used(&self, map: u32) -> u32 {
        let first = usize::from(FIRST / 64);
        let words = self.maps.get(map as usize).map(|map| &map.0[first..]).unwrap_or_default();
        words.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }

    /// Releases all ports of all maps during recovery, while no lcore runs.
    pub(crate) fn clear(&self) {
        // The rotation is kept.
        for word in self.maps.iter().flat_map(|map| &map.0[1..]) {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }
}

/// Returns the index of the only set bit.
#[inline(always)]
const fn number_of(bit: u64) -> u32 {
    // The BPF compiler implements `trailing_zeros` by a table.
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
    fn revoked_claim_is_repeated_with_same_port() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        let claim = || maps.claim(0, 1000..=1999, 0, 1).unwrap();
        let (first, second, third) = (claim(), claim(), claim());
        maps.unclaim(0, third);
        assert_eq!(claim(), third);
        maps.unclaim(0, third);
        assert!(maps.release(0, second));
        // The search starts behind the released port.
        assert_eq!((claim(), maps.used(0)), (third, 2));
        assert!(first < second && second < third);
    }

    #[test]
    fn a_range_is_used_up_to_its_last_port_and_not_beyond() {
        let memory = maps(2);
        let maps = NatPorts { maps: &memory };
        for (first, last) in [(1024, 1024), (1000, 1300), (200, 227), (65_500, 65_535)] {
            for lcores in [1, 3, 64] {
                let mut claimed = HashSet::new();
                while let Some(port) = maps.claim(1, first..=last, lcores / 2, lcores) {
                    assert!((first..=last).contains(&port) && claimed.insert(port));
                }
                assert_eq!(claimed.len(), usize::from(last - first) + 1);
                assert_eq!(maps.used(1) as usize, claimed.len());
                assert!(claimed.iter().all(|port| maps.release(1, *port)));
                assert!(claimed.iter().all(|port| !maps.release(1, *port)));
            }
        }
        assert_eq!((maps.used(0), maps.used(1)), (0, 0));
    }

    #[test]
    fn released_port_is_reused_last() {
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
    fn invalid_ranges_and_maps_allocate_nothing() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        let backwards = RangeInclusive::new(2000, 1999);
        assert_eq!(maps.claim(1, 1024..=2000, 0, 1), None);
        assert_eq!(maps.claim(0, backwards, 0, 1), None);
        assert_eq!(maps.claim(0, 0..=127, 0, 1), None);
        assert!(!maps.release(0, 5) && !maps.release(9, 5000) && !maps.mark(0, 5));
    }

    #[test]
    fn exhausted_map_is_not_searched_until_a_release() {
        let memory = maps(1);
        let maps = NatPorts { maps: &memory };
        while maps.claim(0, 2000..=2999, 0, 1).is_some() {}
        assert!((0..9).all(|_| maps.claim(0, 2000..=2999, 0, 1).is_none()));
        // A bit that is cleared without `release` does not end the exhausted state.
        memory[0].0[2000 / 64].fetch_and(!(1 << (2000 % 64)), Relaxed);
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), None);
        assert!(maps.mark(0, 2000));
        // The exhausted state applies to one range only.
        assert_eq!(maps.claim(0, 2000..=3000, 0, 1), Some(3000));
        assert!(maps.release(0, 2500));
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), Some(2500));
        assert_eq!(maps.claim(0, 2000..=2999, 0, 1), None);
        maps.clear();
        assert!(maps.claim(0, 2000..=2999, 0, 1).is_some());
    }

    /// Ports are released while other threads find the map exhausted: none is lost.
    #[test]
    fn released_port_is_found_despite_exhausted_flag() {
        let rounds = if cfg!(miri) { 10 } else { 20_000 };
        let (memory, range) = (maps(1), 1024..=1031);
        let maps = NatPorts { maps: &memory };
        let work = |lcore| {
            for _ in 0..rounds {
                let claimed: Vec<u16> =
                    (0..6).filter_map(|_| maps.claim(0, range.clone(), lcore, 3)).collect();
                claimed.iter().for_each(|port| assert!(maps.release(0, *port)));
                assert!(claimed.iter().all(|port| range.contains(port)));
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
        // Each thread in its own part of the range, then all in the same.
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
