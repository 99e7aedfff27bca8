//! `BpfConfig`: constants of a region that the loader stores in the BPF program.
//!
//! The constants are in the program's read-only data, so the verifier knows their values and can
//! bound loops by them.

use packet::flow::HashKey;

use crate::layout::{SECTIONS, Sizes};

/// Index of the committed generation among the header's 4-byte words: the start of the first cache
/// line after the header's immutable part. That part has 96 bytes, and for each section an offset
/// and a size of 8 bytes each.
pub const GENERATION_WORD: usize = (96 + 16 * SECTIONS.len()).next_multiple_of(64) / 4;

/// Values that are constant while a program is loaded. Integers without padding.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfConfig {
    /// Words of the hash key derived from the region's seed.
    pub(crate) hash_key: [u64; 7],
    /// Number of elements of each section.
    pub(crate) counts: [u32; SECTIONS.len()],
    /// Maximum number of scopes.
    pub(crate) scopes: u32,
    /// Epoch of fastpath, stored in lock words.
    pub(crate) epoch: u32,
    /// Number of sets of recent-flow hints: see [`crate::flow::flow_hints`].
    pub(crate) hint_sets: u32,
    /// Numbers of services and backends that have counters of their own.
    pub(crate) counted: [u32; 2],
}

const _: () = assert!(size_of::<BpfConfig>() == 56 + 4 * SECTIONS.len() + 20);

impl BpfConfig {
    /// Placeholder in the object file before loading.
    pub const UNSET: BpfConfig = BpfConfig {
        hash_key: [0; 7],
        counts: [0; SECTIONS.len()],
        scopes: 0,
        epoch: 0,
        hint_sets: 0,
        counted: [0; 2],
    };

    /// Returns the constants for a region with these sizes, seed and fastpath epoch.
    pub fn new(sizes: &Sizes, seed: u64, epoch: u32) -> BpfConfig {
        let counts = crate::layout::Layout::new(sizes).terms().map(|term| term.count as u32);
        let (hash_key, hint_sets) =
            (HashKey::new(seed).words(), crate::flow::flow_hints::set_count(sizes.flows));
        let counted = sizes.counted().into();
        BpfConfig { hash_key, counts, scopes: sizes.scopes, epoch, hint_sets, counted }
    }

    /// The bytes that the loader stores.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) integers without padding (asserted above).
        #[expect(unsafe_code, reason = "the record's own bytes")]
        unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<BpfConfig>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Section;
    use crate::region::Region;

    #[test]
    fn generation_word_is_the_offset_of_the_generation_in_the_header() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let generation = &raw const region.header().slow.generation;
        let words = region.section_ptr(Section::Header).0.cast::<u32>();
        assert_eq!(words.wrapping_add(GENERATION_WORD).cast_const(), generation.cast());
    }

    #[test]
    fn bpf_config_contains_seed_and_element_counts() {
        let config = BpfConfig::new(&Sizes::SMALL, 7, 3);
        assert_eq!(HashKey::of_words(config.hash_key), HashKey::new(7));
        assert_eq!(config.counts[Section::FlowIndex as usize], 1024);
        assert_eq!((config.scopes, config.epoch, config.hint_sets), (Sizes::SMALL.scopes, 3, 128));
        assert_eq!(config.counted, [16, 32]);
        assert_eq!(config.bytes().len(), size_of::<BpfConfig>());
    }
}
