//! Releases the capacity of hash maps after most of their entries were removed.
//!
//! A hash map keeps its capacity when entries are removed, and slots of removed entries count as
//! used until the table is rebuilt. A map whose entries are all replaced a few times can thus
//! double its capacity although its number of entries never grows.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with a capacity below this, in entries, are never shrunk.
const MIN_CAPACITY: usize = 1_024;
/// A map is shrunk when less than 1/`SPARSE_DIVISOR` of its capacity is used, to a capacity of at
/// least twice its entries. A shrink therefore moves fewer entries than were removed since the last
/// one.
const SPARSE_DIVISOR: usize = 8;

/// Shrinks a large map if few entries are left. Callers call it after each removal.
pub fn shrink_if_sparse<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_sparse(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Returns whether a map is large and empty enough to be shrunk to twice its entries.
pub(crate) fn is_sparse(entries: usize, capacity: usize) -> bool {
    capacity >= MIN_CAPACITY && entries < capacity / SPARSE_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of entries of the map, large enough for it to be shrunk several times.
    const ENTRIES: u32 = 10_240;

    #[test]
    fn replacing_all_entries_does_not_grow_the_map() {
        let mut map: foldhash::HashMap<u32, u32> = foldhash::HashMap::default();
        let mut first_capacity = 0;
        for round in 0..50 {
            let ids = round * ENTRIES..(round + 1) * ENTRIES;
            map.extend(ids.clone().map(|id| (id, id)));
            // `capacity` does not count the slots of removed entries, so it may be lower in later
            // rounds, but not higher.
            first_capacity = if round == 0 { map.capacity() } else { first_capacity };
            assert!(map.capacity() <= first_capacity, "{} in round {round}", map.capacity());
            for id in ids {
                assert_eq!(map.remove(&id), Some(id));
                shrink_if_sparse(&mut map);
                assert!(
                    map.len() * 2 * SPARSE_DIVISOR >= map.capacity().min(MIN_CAPACITY)
                        || map.len() < MIN_CAPACITY
                );
            }
            assert!(map.is_empty() && map.capacity() < 2 * MIN_CAPACITY, "{}", map.capacity());
        }
    }
}
