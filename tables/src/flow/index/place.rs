//! Where the index may keep a key, and what the word of a bucket says.

/// How many buckets after its home a key may spill into.
pub(super) const WINDOW: u32 = 16;
pub(super) const OWNER: u64 = 0xff;
pub(super) const LOCK: u64 = 0xff_ffff;
pub(super) const SPILLED: u64 = 1 << 24;

/// Where a key may lie.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) home: u32,
    pub(super) second: u32,
    pub(super) slot: u32,
    pub(super) tag: u8,
}

impl Place {
    fn tags(&self) -> u32 {
        u32::from(self.tag) * 0x0101_0101
    }

    /// The slots of a bucket in the order in which a key takes them.
    #[inline(always)]
    pub(super) fn slots(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|i| (self.slot + i) & 3)
    }
}

/// The slots of a bucket whose tag is that of `place`, as the highest bits of their bytes. May name
/// one too many after a match, never one too few.
#[inline(always)]
pub(super) fn equal_tags(word: u64, place: &Place) -> u32 {
    let differs = (word >> 32) as u32 ^ place.tags();
    differs.wrapping_sub(0x0101_0101) & !differs & 0x8080_8080
}

/// Whether a slot has no tag: a tag is set before the entry is live, and cleared before it is free.
#[inline(always)]
pub(super) fn is_free(word: u64, slot: u32) -> bool {
    (word >> (32 + slot * 8)) as u8 == 0
}
