//! Positions in the index, and the contents of a bucket's word.

/// Number of buckets after its home bucket into which a key may spill.
pub(super) const WINDOW: u32 = 16;
/// Mask of the lock owner's lcore number + 1 in a bucket's word; 0 if the bucket is not locked.
pub(super) const OWNER: u64 = 0xff;
/// Mask of the whole lock in a bucket's word: owner, and the low 16 bits of the owner's epoch.
pub(super) const LOCK: u64 = 0xff_ffff;
/// Increment of the 8-bit spill count in a bucket's word.
pub(super) const SPILLED: u64 = 1 << 24;

/// Positions at which a key may be stored.
#[derive(Clone, Copy)]
pub(crate) struct KeyPosition {
    /// Number of the home bucket.
    pub(crate) home: u32,
    /// Number of the second bucket.
    pub(super) second: u32,
    /// Slot of a bucket that the key tries first.
    pub(super) slot: u32,
    /// Tag of the key, not 0.
    pub(super) tag: u8,
}

impl KeyPosition {
    /// Returns the tag in each of four bytes.
    fn tags(&self) -> u32 {
        u32::from(self.tag) * 0x0101_0101
    }

    /// Slots of a bucket in the order in which a key tries them.
    #[inline(always)]
    pub(super) fn slots(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|i| (self.slot + i) & 3)
    }
}

/// Returns the slots whose tag equals that of `position`, as the highest bits of their bytes. The
/// result never lacks a match, and may contain a false match in a higher slot than a true one.
#[inline(always)]
pub(super) fn equal_tags(word: u64, position: &KeyPosition) -> u32 {
    let differs = (word >> 32) as u32 ^ position.tags();
    differs.wrapping_sub(0x0101_0101) & !differs & 0x8080_8080
}

/// Returns whether a slot has no tag. A tag is set before the entry is live and cleared before the
/// entry is free.
#[inline(always)]
pub(super) fn is_free(word: u64, slot: u32) -> bool {
    (word >> (32 + slot * 8)) as u8 == 0
}
