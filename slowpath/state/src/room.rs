//! Room that a map took for many entries, given back when few are left.
//!
//! A hash map keeps its room when entries leave, and places of those that left count as taken until
//! it is made anew. Where all entries come and go a few times, it doubles for no more of them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with room for fewer entries stay as they are.
const SMALL: usize = 1_024;
/// Less than one in so many is few. What is moved to give room back is a seventh of what left.
const FEW: usize = 8;

/// To be called when an entry left.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_wide(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Whether a map with so many entries is to be shrunk to room for twice as many.
pub(crate) fn is_wide(entries: usize, capacity: usize) -> bool {
    capacity >= SMALL && entries < capacity / FEW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times as many as fit in a map that is small.
    const MANY: u32 = 10_240;

    #[test]
    fn a_map_whose_entries_come_and_go_needs_no_more_room_than_once() {
        let mut map: foldhash::HashMap<u32, u32> = foldhash::HashMap::default();
        let mut once = 0;
        for round in 0..50 {
            let ids = round * MANY..(round + 1) * MANY;
            map.extend(ids.clone().map(|id| (id, id)));
            // Places that count as taken are not counted here: more than half of twice as many.
            once = if round == 0 { map.capacity() } else { once };
            assert!(map.capacity() <= once, "{} in round {round}", map.capacity());
            for id in ids {
                assert_eq!(map.remove(&id), Some(id));
                give_back(&mut map);
                assert!(map.len() * 2 * FEW >= map.capacity().min(SMALL) || map.len() < SMALL);
            }
            assert!(map.is_empty() && map.capacity() < 2 * SMALL, "{}", map.capacity());
        }
    }
}
