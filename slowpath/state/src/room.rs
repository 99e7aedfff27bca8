//! Gives back the capacity of hash maps after most of their entries were removed.
//!
//! A hash map keeps its capacity when entries are removed, and slots of removed entries count as
//! used until the table is rebuilt. A map whose entries are all replaced a few times can thus
//! double its capacity although it never holds more of them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with a capacity below this, in entries, are never shrunk.
const SMALL: usize = 1_024;
/// A map is shrunk when less than one in `FEW` of its capacity is used. Moving the entries that
/// remain then costs at most a seventh of a move for each removed entry.
const FEW: usize = 8;

/// Shrinks the map if few entries are left. Call it after removing an entry.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_wide(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Returns whether a map is large and empty enough to be shrunk to twice its entries.
pub(crate) fn is_wide(entries: usize, capacity: usize) -> bool {
    capacity >= SMALL && entries < capacity / FEW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times the capacity below which a map is never shrunk.
    const MANY: u32 = 10_240;

    #[test]
    fn a_map_whose_entries_come_and_go_needs_no_more_room_than_once() {
        let mut map: foldhash::HashMap<u32, u32> = foldhash::HashMap::default();
        let mut once = 0;
        for round in 0..50 {
            let ids = round * MANY..(round + 1) * MANY;
            map.extend(ids.clone().map(|id| (id, id)));
            // `capacity` leaves out the slots of removed entries: it is more than half of twice as
            // many.
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
