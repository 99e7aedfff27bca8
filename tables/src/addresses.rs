//! Which addresses matter: two filters of one bit per address's hash, so that a packet between
//! strangers, most of what a gateway sends, is known as one without any look-up.
//!
//! An address whose bit is clear in both has no single-address frontend and is the target of no
//! flow. A set bit says nothing: other addresses share it, and bits of what is gone stay set until
//! whoever owns the filter starts anew; that costs time, never a verdict. Networks are in neither;
//! where there are any, [`crate::set::TableSet::acquaintances`] gives no filter.

use crate::atomic::{AtomicU64, Ordering::Relaxed};

use packet::addr::Addr;

use crate::layout::{FILTER_BITS, Section};
#[cfg(not(target_arch = "bpf"))]
use crate::pen::Pen;
use crate::region::Region;
use crate::rows::{Numbered, Rows};

/// One filter.
#[derive(Clone, Copy)]
pub struct Addresses<'r>(Rows<'r, AtomicU64>);

impl<'r> Addresses<'r> {
    /// Those of single-address frontends, written by slowpath.
    pub(crate) fn of_frontends(region: &'r Region) -> Addresses<'r> {
        Addresses(region.slice(Section::FrontendAddresses))
    }

    /// Those that flows were begun to, written by the fastpath. It adds those of frontends as well,
    /// so that they are known before the first flow begins.
    pub fn of_flows(region: &'r Region) -> Addresses<'r> {
        Addresses(region.slice(Section::FlowAddresses))
    }

    /// Whether it may be there.
    #[inline(always)]
    pub fn may_have(&self, addr: &Addr) -> bool {
        let (word, bit) = place(addr);
        self.0.row(word).is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    /// Notes an address, by any lcore, before its flow can be found.
    #[inline]
    pub fn add(&self, addr: &Addr) {
        let (word, bit) = place(addr);
        let Some(word) = self.0.row(word) else { return };
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }
}

/// What its owners do.
#[cfg(not(target_arch = "bpf"))]
impl Addresses<'_> {
    /// Notes an address, by the writer, before its frontend can be found.
    pub(crate) fn write(&self, pen: &Pen, addr: &Addr) {
        let (word, bit) = place(addr);
        let cell = &self.0[word as usize];
        let before = cell.load(Relaxed);
        if before & bit == 0 {
            pen.long(cell, before | bit);
        }
    }

    /// Notes all addresses of another filter, by any lcore.
    pub fn add_all(&self, other: &Addresses<'_>) {
        for (word, other) in self.0.iter().zip(other.0) {
            let bits = other.load(Relaxed);
            if bits & !word.load(Relaxed) != 0 {
                word.fetch_or(bits, Relaxed);
            }
        }
    }

    /// Whether so many bits are set that most strangers would be taken for known.
    pub fn is_crowded(&self) -> bool {
        self.0.iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>()
            > FILTER_BITS as u32 / 8
    }

    /// Forgets all but `kept`, for an owner that starts while nobody else writes. Bits that stay
    /// are never clear in between.
    pub fn renew(&self, kept: impl Iterator<Item = Addr>) {
        self.renew_by(&Pen::default(), kept);
    }

    /// As [`Addresses::renew`], by the writer.
    pub(crate) fn renew_by(&self, pen: &Pen, kept: impl Iterator<Item = Addr>) {
        let mut words = vec![0; FILTER_BITS / 64];
        for addr in kept {
            let (word, bit) = place(&addr);
            words[word as usize] |= bit;
        }
        for (word, bits) in self.0.iter().zip(words) {
            if word.load(Relaxed) != bits {
                pen.long(word, bits);
            }
        }
    }
}

/// A hash of an address without a key, whose high bits depend on all of it.
#[inline(always)]
pub(crate) fn mixed(addr: &Addr) -> u64 {
    let [a, b, c, d] = addr.words;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    (pair(d, c) ^ pair(b, a).rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Word and bit of an address.
#[inline(always)]
fn place(addr: &Addr) -> (u32, u64) {
    let mixed = mixed(addr);
    let bit = ((mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 48) as u32
        % FILTER_BITS as u32;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;

    fn v4(n: u32) -> Addr {
        Addr::v4(n.to_be())
    }

    #[test]
    fn what_was_added_is_there_and_few_others_are() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let flows = Addresses::of_flows(&region);
        (0..1000).for_each(|n| flows.add(&v4(0xcb00_0000 + n)));
        assert!((0..1000).all(|n| flows.may_have(&v4(0xcb00_0000 + n))));
        let others = (0..100_000).filter(|n| flows.may_have(&v4(0x0a40_0000 + n))).count();
        assert!(others < 4_000, "{others} of 100,000 strangers are taken for known");
        assert!(!Addresses::of_frontends(&region).may_have(&v4(0xcb00_0000)));
    }

    #[test]
    fn a_filter_takes_over_all_of_another() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let (flows, frontends) = (Addresses::of_flows(&region), Addresses::of_frontends(&region));
        flows.add(&v4(1));
        (2..100).for_each(|n| frontends.write(&Pen::default(), &v4(n)));
        flows.add_all(&frontends);
        assert!((1..100).all(|n| flows.may_have(&v4(n))) && !frontends.may_have(&v4(1)));
    }

    #[test]
    fn a_new_owner_keeps_what_it_names() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let flows = Addresses::of_flows(&region);
        flows.add(&v4(1));
        flows.add(&v4(2));
        flows.renew([v4(2)].into_iter());
        assert!(!flows.may_have(&v4(1)) && flows.may_have(&v4(2)));
    }

    #[test]
    fn every_part_of_an_address_counts() {
        let base = Addr { words: [1, 2, 3, 4] };
        for i in 0..4 {
            let mut other = base;
            other.words[i] ^= 0x10;
            assert_ne!(place(&base), place(&other), "word {i}");
        }
    }
}
