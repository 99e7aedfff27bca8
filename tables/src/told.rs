//! `Told`: what the kernel's program is told of the region before it is loaded.
//!
//! It lies in the program's read-only memory, so that the verifier knows each number and a loop up
//! to one of them has an end.

use packet::flow::HashKey;

use crate::layout::{SECTIONS, Sizes};

/// Which word of 4 bytes of the header is the committed generation: the first line after what never
/// changes, which has 96 bytes and two offsets for each section.
pub const GENERATION_WORD: usize = (96 + 16 * SECTIONS.len()).next_multiple_of(64) / 4;

/// What never changes while a program is loaded. Integers without padding.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The seed of all hashes, made ready.
    pub(crate) by: [u64; 7],
    /// Elements of each section.
    pub(crate) counts: [u32; SECTIONS.len()],
    /// How many scopes there may be.
    pub(crate) scopes: u32,
    /// The fastpath's epoch, for lock words.
    pub(crate) epoch: u32,
    /// Sets of hints by which paths flows went: see [`crate::flow::lately`].
    pub(crate) lately: u32,
    /// Services and backends that have counters of their own.
    pub(crate) counted: [u32; 2],
    /// Zero: nothing that is handed over may be padding.
    pub(crate) spare: u32,
}

const _: () = assert!(size_of::<Told>() == 56 + 4 * SECTIONS.len() + 24);

impl Told {
    /// Of no region: what the object holds until it is loaded.
    pub const NOTHING: Told = Told {
        by: [0; 7],
        counts: [0; SECTIONS.len()],
        scopes: 0,
        epoch: 0,
        lately: 0,
        counted: [0; 2],
        spare: 0,
    };

    /// What a program is told of a region with these sizes and this seed. Its lock words carry
    /// `epoch`, the fastpath's.
    pub fn new(sizes: &Sizes, seed: u64, epoch: u32) -> Told {
        let counts = crate::layout::Layout::new(sizes).terms().map(|term| term.count as u32);
        let (by, lately) = (HashKey::new(seed).words(), crate::flow::lately::sets(sizes.flows));
        let counted = sizes.counted().into();
        Told { by, counts, scopes: sizes.scopes, epoch, lately, counted, spare: 0 }
    }

    /// Its bytes, for the loader.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) integers without padding (asserted above).
        #[expect(unsafe_code, reason = "the record's own bytes")]
        unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Told>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Section;
    use crate::region::Region;

    #[test]
    fn the_generation_is_where_the_kernel_reads_it() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let generation = &raw const region.header().slow.generation;
        let words = region.section_ptr(Section::Header).0.cast::<u32>();
        assert_eq!(words.wrapping_add(GENERATION_WORD).cast_const(), generation.cast());
    }

    #[test]
    fn a_program_is_told_the_seed_and_how_much_there_is() {
        let told = Told::new(&Sizes::SMALL, 7, 3);
        assert_eq!(HashKey::of_words(told.by), HashKey::new(7));
        assert_eq!(told.counts[Section::FlowIndex as usize], 1024);
        assert_eq!((told.scopes, told.epoch, told.lately), (Sizes::SMALL.scopes, 3, 128));
        assert_eq!(told.counted, [16, 32]);
        assert_eq!(told.bytes().len(), size_of::<Told>());
    }
}
