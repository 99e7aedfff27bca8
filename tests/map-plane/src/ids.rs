//! Allocation of identifiers: numbers that represent addresses in the maps of the map plane.
//!
//! Numbers are allocated in sequence, so that a freed number is not allocated again before the
//! sequence wraps around. Until then a stale reference to it (in a flow, or in a packet under way)
//! is not taken for a new address.

use std::collections::BTreeMap;

/// Identifiers from 1 to a maximum, allocated in sequence.
#[derive(Clone, Debug)]
pub struct Identifiers {
    last: u32,
    highest: u32,
    /// Allocated identifiers, as bitmaps of 64 by index. Most bitmaps are full, because identifiers
    /// are allocated in sequence.
    used: BTreeMap<u32, u64>,
    in_use: usize,
}

/// All identifiers are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {0} identifiers are in use; remove services or backends")]
pub struct Exhausted(pub u32);

impl Default for Identifiers {
    fn default() -> Identifiers {
        Identifiers::up_to(u32::MAX)
    }
}

impl Identifiers {
    /// Creates an allocator of 1 to `highest`.
    pub fn up_to(highest: u32) -> Identifiers {
        Identifiers { last: 0, highest, used: BTreeMap::new(), in_use: 0 }
    }

    /// Allocates the next free identifier after the last allocated one.
    pub fn allocate(&mut self) -> Result<u32, Exhausted> {
        if self.in_use >= self.highest as usize {
            return Err(Exhausted(self.highest));
        }
        loop {
            self.last = if self.last >= self.highest { 1 } else { self.last + 1 };
            if self.insert(self.last) {
                return Ok(self.last);
            }
        }
    }

    /// Marks an identifier of an earlier process as allocated. The next allocation follows the
    /// highest restored identifier.
    pub fn restore(&mut self, id: u32) {
        self.insert(id);
        self.last = self.last.max(id.min(self.highest));
    }

    /// Frees an identifier.
    pub fn release(&mut self, id: u32) {
        let (at, bit) = bitmap_position(id);
        let Some(word) = self.used.get_mut(&at).filter(|word| **word & bit != 0) else { return };
        *word &= !bit;
        self.in_use -= 1;
        if *word == 0 {
            self.used.remove(&at);
        }
    }

    /// Marks an identifier as in use. Returns false if it already was.
    fn insert(&mut self, id: u32) -> bool {
        let (at, bit) = bitmap_position(id);
        let word = self.used.entry(at).or_default();
        let new = *word & bit == 0;
        *word |= bit;
        self.in_use += usize::from(new);
        new
    }

    /// Frees the identifiers for which `claimed` returns false.
    pub fn retain(&mut self, claimed: impl Fn(u32) -> bool) {
        self.used.retain(|at, word| {
            let bits = (0..u64::BITS).filter(|bit| *word >> bit & 1 != 0);
            let unclaimed = bits.filter(|bit| !claimed(at * u64::BITS + bit)).map(|bit| 1 << bit);
            *word &= !unclaimed.fold(0, |all, bit: u64| all | bit);
            *word != 0
        });
        self.in_use = self.used.values().map(|word| word.count_ones() as usize).sum();
    }

    /// Returns the number of identifiers in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }
}

/// Returns the index of an identifier's bitmap, and its bit there.
fn bitmap_position(id: u32) -> (u32, u64) {
    (id / u64::BITS, 1 << (id % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_identifier_is_not_reused_before_wraparound() {
        let mut ids = Identifiers::up_to(3);
        assert_eq!((ids.allocate(), ids.allocate()), (Ok(1), Ok(2)));
        ids.release(1);
        assert_eq!(ids.allocate(), Ok(3));
        assert_eq!(ids.allocate(), Ok(1), "wrapped");
        assert_eq!(ids.allocate(), Err(Exhausted(3)));
        ids.release(2);
        assert_eq!(ids.allocate(), Ok(2));
        assert_eq!(ids.in_use(), 3);
    }

    #[test]
    fn allocation_continues_after_restored_identifiers() {
        let mut ids = Identifiers::up_to(10);
        ids.restore(7);
        ids.restore(3);
        assert_eq!(ids.allocate(), Ok(8));
        ids.retain(|id| id == 7);
        assert_eq!(ids.in_use(), 1);
        assert_eq!((ids.allocate(), ids.allocate(), ids.allocate()), (Ok(9), Ok(10), Ok(1)));
    }

    #[test]
    fn identifiers_are_counted_across_bitmaps() {
        let mut ids = Identifiers::up_to(1_000);
        assert!((1..=200).all(|id| ids.allocate() == Ok(id)));
        ids.release(64);
        ids.release(64);
        ids.restore(65);
        assert_eq!(ids.in_use(), 199);
        ids.retain(|id| id % 2 == 0);
        assert_eq!(ids.in_use(), 99);
        (1..=200).for_each(|id| ids.release(id));
        assert_eq!((ids.in_use(), ids.used.len()), (0, 0));
        assert_eq!(ids.allocate(), Ok(201));
    }
}
