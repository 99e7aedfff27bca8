//! Counts of NAT ports in use by backend, of which each scrape renews a part.

use std::collections::BTreeMap;
use std::ops::Range;

/// Numbers of NAT ports in use by id of the backend.
#[derive(Debug, Default)]
pub struct NatPortCounts {
    used: BTreeMap<u32, u32>,
    /// The backend with which the next pass begins to read.
    next: u32,
}

/// A pass over all backends by ascending id.
pub struct Pass<'c> {
    counts: &'c mut NatPortCounts,
    before: BTreeMap<u32, u32>,
    /// The backend with which this pass begins to read.
    begin: u32,
    /// Number of maps that it may still read.
    left: u32,
    /// The first backend whose maps it did not read, because `left` did not suffice.
    unread: Option<u32>,
}

impl NatPortCounts {
    /// Begins a pass that reads at most `limit` port maps, from where the last pass ended.
    pub fn begin(&mut self, limit: u32) -> Pass<'_> {
        let (before, begin) = (std::mem::take(&mut self.used), std::mem::take(&mut self.next));
        Pass { counts: self, before, begin, left: limit, unread: None }
    }
}

impl Pass<'_> {
    /// Returns the number of ports in use of a backend with these port maps: the sum of what `read`
    /// returns for each map, or the number of an earlier pass. To be called by ascending id.
    pub fn used(&mut self, id: u32, maps: Range<u32>, read: impl Fn(u32) -> u32) -> u32 {
        let is_due = id >= self.begin && self.unread.is_none();
        let used = if is_due && maps.len() <= self.left as usize {
            self.left -= maps.len() as u32;
            maps.map(read).sum()
        } else {
            if is_due {
                self.unread = Some(id);
            }
            self.before.get(&id).copied().unwrap_or_default()
        };
        self.counts.used.insert(id, used);
        used
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.counts.next = self.unread.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_pass_reads_a_part_and_all_are_read_in_turn() {
        let (mut counts, reads) = (NatPortCounts::default(), Cell::new(0));
        // Ten backends with two maps each, of which every map has `now` ports in use.
        let mut pass = |limit, now: u32| {
            reads.set(0);
            let mut pass = counts.begin(limit);
            let read = |_| {
                reads.set(reads.get() + 1);
                now
            };
            let all: Vec<u32> = (0..10).map(|id| pass.used(id, 2 * id..2 * id + 2, read)).collect();
            (all, reads.get())
        };
        assert_eq!(pass(20, 1), (vec![2; 10], 20));
        assert_eq!(pass(20, 2), (vec![4; 10], 20), "all fit into each pass");
        let parts = [(8, 4), (8, 8), (4, 10)].map(|(read, until)| {
            let expected: Vec<u32> = (0..10).map(|id| if id < until { 6 } else { 4 }).collect();
            (expected, read)
        });
        for part in parts {
            assert_eq!(pass(9, 3), part);
        }
        assert_eq!(pass(9, 4).0[..5], [8, 8, 8, 8, 6], "from the beginning again");
    }

    #[test]
    fn a_removed_backend_is_forgotten() {
        let mut counts = NatPortCounts::default();
        assert_eq!(counts.begin(1).used(7, 0..1, |_| 5), 5);
        drop(counts.begin(1));
        assert_eq!(counts.begin(0).used(7, 0..1, |_| 5), 0);
    }
}
