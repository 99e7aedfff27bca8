//! Recent-flow hints: 4-byte path references that fit in cache where the flow index does not.
//!
//! A hint is a path's number, with bits of its flow's hash in the remaining upper bits. Four hints
//! form a set, the latest first. Hints are not authoritative: a hint that is wrong, torn, or of an
//! ended flow leads to a path of another flow or of none ([`Flows::meet`](super::Flows::meet)), and
//! a flow without a hint is found by the index.

/// The hints of four flows, two per word.
pub type Set = [u64; 2];

/// Number of sets for `flows` flows: a power of two, with one hint per direction of a flow, because
/// replies have keys of their own.
pub const fn sets(flows: u32) -> u32 {
    let sets = flows.next_power_of_two() / 2;
    if sets == 0 { 1 } else { sets }
}

/// Position of a flow's hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the set.
    pub set: u32,
    /// Hash bits of the flow, at their position above the path's number.
    tag: u32,
    /// Mask of a path's number.
    mask: u32,
}

impl Place {
    /// Returns the position for a flow with this hash among `sets` sets.
    #[inline(always)]
    pub const fn new(hash: u64, sets: u32) -> Place {
        // There are at most four paths per set.
        let mask = sets.wrapping_mul(4).wrapping_sub(1);
        Place { set: hash as u32 & sets.wrapping_sub(1), tag: (hash >> 32) as u32 & !mask, mask }
    }

    /// Returns the path of the flow's latest hint in the set.
    #[inline(always)]
    pub const fn find(&self, set: &Set) -> Option<u32> {
        let [a, b] = *set;
        let hint = self.first(self.first(self.first(self.first(0, b >> 32), b), a >> 32), a);
        // An empty place contains 0, which is not a valid hint.
        if hint == 0 { None } else { Some(hint & self.mask) }
    }

    /// Returns the hint in the low half of `word` if it is the flow's, else `other`.
    #[inline(always)]
    const fn first(&self, other: u32, word: u64) -> u32 {
        let hint = word as u32;
        if (hint ^ self.tag) & !self.mask == 0 && hint != 0 { hint } else { other }
    }

    /// Returns the set with the flow's path first and without its oldest hint.
    #[inline(always)]
    pub const fn with(&self, set: &Set, path: u32) -> Set {
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
    fn place(tag: u32) -> Place {
        Place::new(u64::from(tag) << 52 | 5, sets(FLOWS))
    }

    #[test]
    fn a_set_has_the_latest_four_and_the_latest_of_each() {
        let mut set = [0; 2];
        for tag in 1..=5 {
            assert_eq!(place(tag).find(&set), None);
            set = place(tag).with(&set, 1000 * tag);
            assert_eq!((place(tag).set, place(tag).find(&set)), (5, Some(1000 * tag)));
        }
        let found = [1, 2, 3, 4, 5].map(|tag| place(tag).find(&set));
        assert_eq!(found, [None, Some(2000), Some(3000), Some(4000), Some(5000)]);
        set = place(3).with(&set, 77);
        assert_eq!(place(3).find(&set), Some(77));
    }

    #[test]
    fn any_path_is_named_whole_however_many_there_are() {
        for flows in [1, 7, 256, 1024, 65_536, 100_000, 1 << 24] {
            let sets = sets(flows);
            assert!(sets.is_power_of_two() && sets.saturating_mul(4) >= flows, "{flows}");
            for path in [1, flows / 2, flows - 1].into_iter().filter(|path| *path > 0) {
                let place = Place::new(u64::MAX, sets);
                assert!(place.set < sets);
                assert_eq!(place.find(&place.with(&[0; 2], path)), Some(path), "{flows}");
            }
        }
    }
}
