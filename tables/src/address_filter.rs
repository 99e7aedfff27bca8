//! Address filters of frontends and flows with one hashed bit per address. Most packets of a
//! gateway match neither, and the filters detect this without a table lookup.
//!
//! An address whose bit is clear in both filters has no single-address frontend and is the
//! destination of no flow. A set bit proves nothing: other addresses share it, and bits of removed
//! addresses stay set until the filter's owner rebuilds the filter. Such false positives cost time
//! and never change a verdict. Frontends with a network instead of an address are in neither
//! filter; if there are any, [`crate::set::TableSet::address_filter`] returns `None`.

use crate::atomic::{AtomicU64, Ordering::Relaxed};

use packet::addr::Addr;

use crate::layout::{FILTER_BITS, Section};
use crate::region::Region;
#[cfg(not(target_arch = "bpf"))]
use crate::region_writer::RegionWriter;
use crate::rows::{Numbered, Rows};

/// A filter of 65,536 bits over addresses.
#[derive(Clone, Copy)]
pub struct AddressFilter<'r>(Rows<'r, AtomicU64>);

impl<'r> AddressFilter<'r> {
    /// Filter of single-address frontends, written by slowpath.
    pub(crate) fn of_frontends(region: &'r Region) -> AddressFilter<'r> {
        AddressFilter(region.slice(Section::FrontendAddresses))
    }

    /// Filter of flow destinations, written by fastpath. fastpath also adds the addresses of
    /// frontends ([`AddressFilter::merge`]), so that their packets pass before the first flow
    /// begins.
    pub fn of_flows(region: &'r Region) -> AddressFilter<'r> {
        AddressFilter(region.slice(Section::FlowAddresses))
    }

    /// Returns whether the address may have been added; false is certain.
    #[inline(always)]
    pub fn may_contain(&self, addr: &Addr) -> bool {
        let (word, bit) = bit_position(addr);
        self.0.row(word).is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    /// Adds an address. Any lcore may call it, before the address's flow becomes visible.
    #[inline]
    pub fn add(&self, addr: &Addr) {
        let (word, bit) = bit_position(addr);
        let Some(word) = self.0.row(word) else { return };
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }
}

/// Operations of the filters' owners.
#[cfg(not(target_arch = "bpf"))]
impl AddressFilter<'_> {
    /// Adds an address on behalf of the writer, before its frontend becomes visible.
    pub(crate) fn write(&self, writer: &RegionWriter, addr: &Addr) {
        let (word, bit) = bit_position(addr);
        let cell = &self.0[word as usize];
        let before = cell.load(Relaxed);
        if before & bit == 0 {
            writer.store_u64(cell, before | bit);
        }
    }

    /// Adds all addresses of another filter. Any lcore may call it.
    pub fn merge(&self, other: &AddressFilter<'_>) {
        for (word, other) in self.0.iter().zip(other.0) {
            let bits = other.load(Relaxed);
            if bits & !word.load(Relaxed) != 0 {
                word.fetch_or(bits, Relaxed);
            }
        }
    }

    /// Returns whether more than 1/8 of the bits are set, so that false positives become frequent.
    pub fn needs_rebuild(&self) -> bool {
        self.0.iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>()
            > FILTER_BITS as u32 / 8
    }

    /// Rebuilds the filter from `addresses`, while no other thread adds addresses. The bits of
    /// `addresses` that are set stay set throughout.
    pub fn rebuild(&self, addresses: impl Iterator<Item = Addr>) {
        self.rebuild_with(&RegionWriter::default(), addresses);
    }

    /// As [`AddressFilter::rebuild`], on behalf of the writer.
    pub(crate) fn rebuild_with(
        &self,
        writer: &RegionWriter,
        addresses: impl Iterator<Item = Addr>,
    ) {
        let mut words = vec![0; FILTER_BITS / 64];
        for addr in addresses {
            let (word, bit) = bit_position(&addr);
            words[word as usize] |= bit;
        }
        for (word, bits) in self.0.iter().zip(words) {
            if word.load(Relaxed) != bits {
                writer.store_u64(word, bits);
            }
        }
    }
}

/// Returns an unkeyed hash of an address whose high bits depend on all of its bits.
#[inline(always)]
pub(crate) fn mixed(addr: &Addr) -> u64 {
    let [a, b, c, d] = addr.words;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    (pair(d, c) ^ pair(b, a).rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the word index and the bit of an address.
#[inline(always)]
fn bit_position(addr: &Addr) -> (u32, u64) {
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
    fn filter_contains_added_addresses_and_few_others() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let flows = AddressFilter::of_flows(&region);
        (0..1000).for_each(|n| flows.add(&v4(0xcb00_0000 + n)));
        assert!((0..1000).all(|n| flows.may_contain(&v4(0xcb00_0000 + n))));
        let others = (0..100_000).filter(|n| flows.may_contain(&v4(0x0a40_0000 + n))).count();
        assert!(others < 4_000, "{others} of 100,000 unmatched addresses pass the filter");
        assert!(!AddressFilter::of_frontends(&region).may_contain(&v4(0xcb00_0000)));
    }

    #[test]
    fn merge_adds_all_addresses() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let (flows, frontends) =
            (AddressFilter::of_flows(&region), AddressFilter::of_frontends(&region));
        flows.add(&v4(1));
        (2..100).for_each(|n| frontends.write(&RegionWriter::default(), &v4(n)));
        flows.merge(&frontends);
        assert!((1..100).all(|n| flows.may_contain(&v4(n))) && !frontends.may_contain(&v4(1)));
    }

    #[test]
    fn rebuild_keeps_given_addresses() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let flows = AddressFilter::of_flows(&region);
        flows.add(&v4(1));
        flows.add(&v4(2));
        flows.rebuild([v4(2)].into_iter());
        assert!(!flows.may_contain(&v4(1)) && flows.may_contain(&v4(2)));
    }

    #[test]
    fn every_word_of_an_address_changes_the_bit() {
        let base = Addr { words: [1, 2, 3, 4] };
        for i in 0..4 {
            let mut other = base;
            other.words[i] ^= 0x10;
            assert_ne!(bit_position(&base), bit_position(&other), "word {i}");
        }
    }
}
