//! Changes of the region's format, one [`Step`] each: how a region of the version before becomes
//! one of the version after, and the reverse.
//!
//! A change of the format adds a step here in the same commit that increments
//! [`crate::layout::VERSION`]. A version reads and writes all earlier formats that its steps reach,
//! so that an upgrade keeps the flows, and so does the return to the version before.
//!
//! A step names sections by their map names ([`crate::layout::Section::map_name`]), because numbers
//! and order of the sections may change with the format.

use crate::layout::{SECTIONS, VERSION};

/// Parts of the first page whose layout depends on the format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// Version of the format.
    pub version: u32,
    /// Number of sizes.
    pub sizes: usize,
    /// Map names of the sections in memory order.
    pub sections: Vec<&'static str>,
}

impl Format {
    /// The format of this program.
    pub fn own() -> Format {
        let sizes = size_of::<crate::layout::Sizes>() / 4;
        let sections = SECTIONS.map(|section| section.map_name()).to_vec();
        Format { version: VERSION, sizes, sections }
    }
}

/// A count or length that depends on the sizes in the header, in the order of
/// [`crate::layout::Sizes`].
pub type OfSizes = fn(&[u32]) -> usize;

/// Converts one element of a section. The target is zero at first. The error names what the target
/// format cannot express.
pub type Convert = fn(&[u8], &mut [u8]) -> Result<(), &'static str>;

/// A section whose elements differ between the formats.
#[derive(Debug)]
pub struct Change {
    /// Map name.
    pub section: &'static str,
    /// Number of elements.
    pub count: OfSizes,
    /// Size of an element in bytes before and after the step.
    pub bytes: [OfSizes; 2],
    /// Conversion to the later and to the earlier format.
    pub convert: [Convert; 2],
}

/// A section that only one of the formats has, with its length in bytes. It is zero at first; the
/// program that opens the region fills it.
pub type OneSidedSection = (&'static str, OfSizes);

/// A change of the format.
#[derive(Debug)]
pub struct Step {
    /// The format before the step.
    pub before: fn() -> Format,
    /// Sizes that the later format appends, with their values for a region that has none.
    pub appended_sizes: &'static [u32],
    /// Sections that only the later format has.
    pub added: &'static [OneSidedSection],
    /// Sections that only the earlier format has.
    pub removed: &'static [OneSidedSection],
    /// Sections with other elements.
    pub changed: &'static [Change],
}

/// All steps, the latest last. Before format 13 an upgrade began with an empty region.
#[cfg(not(feature = "next-format"))]
pub const STEPS: &[Step] = &[];

/// The step to the format of the tests, in which a path record has one more cache line.
#[cfg(feature = "next-format")]
pub const STEPS: &[Step] = &[Step {
    before: || Format { version: 13, ..Format::own() },
    appended_sizes: &[],
    added: &[],
    removed: &[],
    changed: &[Change {
        section: "PATHS",
        count: |sizes| sizes[8] as usize,
        bytes: [|_| 192, |_| crate::layout::PATH_BYTES],
        convert: [
            |before, after| {
                after[..before.len()].copy_from_slice(before);
                Ok(())
            },
            |after, before| {
                before.copy_from_slice(&after[..before.len()]);
                Ok(())
            },
        ],
    }],
}];
