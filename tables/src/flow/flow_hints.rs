//! Recent-flow hints: 4-byte path references that fit in cache where the flow index does not.
//!
//! A hint is a path's number, with bits of its flow's hash in the remaining upper bits. Four hints
//! form a set, the latest first. Hints are not authoritative. A hint that is wrong, torn, or of an
//! ended flow leads to a path of another flow or of none, which
//! [`Flows::find_by_path`](super::Flows::find_by_path) detects. A flow without a hint is found by
//! the index.

/// The hints of four flows, two per word.
pub type HintSet = [u64; 2];

/// Returns the number of sets for `flows` flows: a power of two, with space for two hints per flow,
/// because replies have keys of their own.
pub const fn set_count(flows: u32) -> u32 {
    let sets = flows.next_power_of_two() / 2;
    if sets == 0 { 1 } else { sets }
}

/// Position of a flow's hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HintIndex {
    /// Number of the set.
    pub set: u32,
    /// Hash bits of the flow, at their position above the path's number.
    tag: u32,
    /// Mask of a path's number.
    mask: u32,
}

impl HintIndex {
    /// Returns the position for a flow with this hash among `sets` sets.
    #[inline(always)]
    pub const fn new(hash: u64, sets: u32) -> HintIndex {
        // There are at most two paths per set (`set_count`), so the mask covers every path number.
        let mask = sets.wrapping_mul(4).wrapping_sub(1);
        HintIndex {
            set: hash as u32 & sets.wrapping_sub(1),
            tag: (hash >> 32) as u32 & !mask,
            mask,
        }
    }

    /// Returns the path of the flow's latest hint in the set.
    #[inline(always)]
    pub const fn find(&self, set: &HintSet) -> Option<u32> {
        let [a, b] = *set;
        let hint = self.first(self.first(self.first(self.first(0, b >> 32), b), a >> 32), a);
        // An empty slot contains 0. A hint to path 0 whose hash bits are 0 as well is lost.
        if hint == 0 { None } else { Some(hint & self.mask) }
    }

    /// Returns the hint in the low half of `word` if it is the flow's, else `other`.
    #[inline(always)]
    const fn first(&self, other: u32, word: u64) -> u32 {
        let hint = word as u32;
        if (hint ^ self.tag) & !self.mask == 0 && hint != 0 { hint } else { other }
    }

    /// Returns the set with a hint to `path` first, and without the set's oldest hint.
    #[inline(always)]
    pub const fn with(&self, set: &HintSet, path: u32) -> HintSet {
        let [a, b] = *set;
        let hint = self.tag | path & self.mask;
        [a << 32 | hint as u64, b << 32 | a >> 32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOWS: u32 = 131_072;

    /// Returns a position in set 5 with different upper bits per tag.
    fn index(tag: u32) -> HintIndex {
        HintIndex::new(u64::from(tag) << 52 | 5, set_count(FLOWS))
    }

    #[test]
    fn hint_set_keeps_latest_four_paths() {
        let mut set = [0; 2];
        for tag in 1..=5 {
            assert_eq!(index(tag).find(&set), None);
            set = index(tag).with(&set, 1000 * tag);
            assert_eq!((index(tag).set, index(tag).find(&set)), (5, Some(1000 * tag)));
        }
        let found = [1, 2, 3, 4, 5].map(|tag| index(tag).find(&set));
        assert_eq!(found, [None, Some(2000), Some(3000), Some(4000), Some(5000)]);
        set = index(3).with(&set, 77);
        assert_eq!(index(3).find(&set), Some(77));
    }

    #[test]
    fn hint_encodes_any_path_number_for_any_table_size() {
        for flows in [1, 7, 256, 1024, 65_536, 100_000, 1 << 24] {
            let sets = set_count(flows);
            assert!(sets.is_power_of_two() && sets.saturating_mul(4) >= flows, "{flows}");
            for path in [1, flows / 2, flows - 1].into_iter().filter(|path| *path > 0) {
                let index = HintIndex::new(u64::MAX, sets);
                assert!(index.set < sets);
                assert_eq!(index.find(&index.with(&[0; 2], path)), Some(path), "{flows}");
            }
        }
    }
}
