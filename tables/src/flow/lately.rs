//! By which paths flows went lately: hints, of 4 bytes each, so that those of many flows stay in a
//! cache that their index entries don't fit in.
//!
//! A hint is a path's number, with as many bits of its flow's hash above it as there is room for.
//! Four lie in a set, the latest in front. Nothing depends on them: a hint that is wrong, mixed
//! from two or of a flow that has ended leads to a path that is another's or nobody's
//! ([`Flows::meet`](super::Flows::meet)), and a flow without one is found by the index.

/// The hints of four flows, two in a word.
pub type Set = [u64; 2];

/// How many sets there are for so many flows: a power of two, with a hint for each direction of a
/// flow, since answers have keys of their own.
pub const fn sets(flows: u32) -> u32 {
    let sets = flows.next_power_of_two() / 2;
    if sets == 0 { 1 } else { sets }
}

/// A flow's place among the hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The set.
    pub set: u32,
    /// Its hash, above the path's number.
    tag: u32,
    /// Bits of a path's number.
    mask: u32,
}

impl Place {
    /// Of a flow with this hash, where there are so many sets.
    #[inline(always)]
    pub const fn new(hash: u64, sets: u32) -> Place {
        // There are at most four paths for each set.
        let mask = sets.wrapping_mul(4).wrapping_sub(1);
        Place { set: hash as u32 & sets.wrapping_sub(1), tag: (hash >> 32) as u32 & !mask, mask }
    }

    /// The path that the set names first for the flow.
    #[inline(always)]
    pub const fn find(&self, set: &Set) -> Option<u32> {
        let [a, b] = *set;
        let hint = self.first(self.first(self.first(self.first(0, b >> 32), b), a >> 32), a);
        // An empty place names nobody's path.
        if hint == 0 { None } else { Some(hint & self.mask) }
    }

    /// The hint in the low half of `word`, if it is the flow's; else `other`.
    #[inline(always)]
    const fn first(&self, other: u32, word: u64) -> u32 {
        let hint = word as u32;
        if (hint ^ self.tag) & !self.mask == 0 && hint != 0 { hint } else { other }
    }

    /// The set with the flow's path in front; the one longest there has gone.
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

    /// Of set 5, told apart by what lies above.
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
