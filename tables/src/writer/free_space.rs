//! Index of free space. It is rebuilt from the tables at attach and never stored.

use std::collections::{BTreeMap, BTreeSet};

/// Id allocator of one table. A removed id is reused only after nothing refers to it any more.
#[derive(Debug, Default)]
pub(super) struct Ids {
    count: u32,
    /// Ids from here on were never used.
    fresh: u32,
    free: BTreeSet<u32>,
    /// Removed ids, each with the first generation that does not see it.
    retired: BTreeMap<u32, u32>,
}

impl Ids {
    pub(super) fn new(count: u32) -> Ids {
        Ids { count, ..Ids::default() }
    }

    /// Returns the id that the next allocation uses.
    pub(super) fn peek(&self) -> Option<u32> {
        let fresh = (self.fresh < self.count).then_some(self.fresh);
        self.free.first().copied().or(fresh)
    }

    /// Allocates an id: the one from `peek`, or a retired one whose object is added again.
    pub(super) fn allocate(&mut self, id: u32) {
        self.retired.remove(&id);
        if !self.free.remove(&id) {
            self.mark_used(id);
        }
    }

    /// Marks ids up to and including `id` as having been used; skipped ones become free.
    fn mark_used(&mut self, id: u32) {
        if id >= self.fresh {
            self.free.extend(self.fresh..id);
            self.fresh = id + 1;
        }
    }

    /// Retires an id that no table refers to from `generation` on.
    pub(super) fn retire(&mut self, id: u32, generation: u32) {
        self.retired.insert(id, generation);
    }

    /// Records at attach that an id was used and that flows may refer to it.
    pub(super) fn add_retired(&mut self, id: u32) {
        self.mark_used(id);
        self.free.remove(&id);
        self.retired.insert(id, 0);
    }

    pub(super) fn retired(&self) -> impl Iterator<Item = u32> {
        self.retired.keys().copied()
    }

    /// Frees retired ids that the committed generation does not see and for which `refers` returns
    /// false.
    pub(super) fn reclaim(&mut self, committed: u32, refers: impl Fn(u32) -> bool) -> Vec<u32> {
        let gone = |(id, since): (&u32, &u32)| (*since <= committed && !refers(*id)).then_some(*id);
        let freed: Vec<u32> = self.retired.iter().filter_map(gone).collect();
        for id in &freed {
            self.retired.remove(id);
            self.free.insert(*id);
        }
        freed
    }

    /// Returns the numbers of ids in use, in total, and retired.
    pub(super) fn usage(&self) -> (u32, u32, u32) {
        let retired = self.retired.len() as u32;
        (self.fresh - self.free.len() as u32 - retired, self.count, retired)
    }
}

/// Allocator of the slot arena. First fit suffices: there are few table sizes (ten primes), so that
/// freed runs fit later tables.
#[derive(Debug, Default)]
pub(super) struct Arena {
    capacity: u32,
    /// Start and length of each free run; no two are adjacent.
    free: BTreeMap<u32, u32>,
    /// Runs that the committed generation may still see.
    ending: Vec<(u32, u32)>,
}

impl Arena {
    pub(super) fn new(capacity: u32) -> Arena {
        let mut arena = Arena { capacity, ..Arena::default() };
        arena.release(0, capacity);
        arena
    }

    /// Allocates `count` consecutive slots and returns the first.
    pub(super) fn allocate(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().find(|(_, len)| **len >= count)?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        Some(first)
    }

    /// Allocates `count` consecutive slots from the end of the arena. Runs of arbitrary length go
    /// there, so that they do not fragment the space of the few table sizes.
    pub(super) fn allocate_last(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().rev().find(|(_, len)| **len >= count)?;
        self.free.remove(&first);
        self.release(first, len - count);
        Some(first + len - count)
    }

    /// Marks a run as in use at attach; returns false if it is not free or lies outside the arena.
    pub(super) fn allocate_at(&mut self, first: u32, count: u32) -> bool {
        let Some((&start, &len)) = self.free.range(..=first).next_back() else { return false };
        let Some(end) = first.checked_add(count).filter(|end| *end <= start + len) else {
            return false;
        };
        self.free.remove(&start);
        self.release(start, first - start);
        self.release(end, start + len - end);
        true
    }

    /// Retires a run that the next generation does not see.
    pub(super) fn retire(&mut self, first: u32, count: u32) {
        self.ending.push((first, count));
    }

    /// Frees retired runs once no reader uses the generation before the committed one.
    pub(super) fn reuse(&mut self) {
        for (first, count) in std::mem::take(&mut self.ending) {
            self.release(first, count);
        }
    }

    /// Frees a run at once, and merges it with adjacent free runs.
    pub(super) fn release(&mut self, mut first: u32, mut count: u32) {
        if count == 0 {
            return;
        }
        if let Some((&before, &len)) = self.free.range(..first).next_back()
            && before + len == first
        {
            self.free.remove(&before);
            (first, count) = (before, count + len);
        }
        if let Some(len) = self.free.remove(&(first + count)) {
            count += len;
        }
        self.free.insert(first, count);
    }

    /// Returns the numbers of free slots and of all slots.
    pub(super) fn usage(&self) -> (u32, u32) {
        (self.free.values().sum(), self.capacity)
    }
}

/// Entries of the frontend hash that are free or about to be freed.
///
/// A reader may be visiting an entry while the entry is unlinked. Therefore an entry is reused only
/// after every live lcore has since been between two bursts, where it visits no entry.
#[derive(Debug, Default)]
pub(super) struct FreeEntries {
    pub(super) free: Vec<u32>,
    /// Still linked; the next generation does not see them.
    pub(super) ending: Vec<u32>,
    /// Unlinked, but a reader may be visiting them.
    pub(super) unlinked: Vec<Unlinked>,
}

/// Entries that were unlinked together.
#[derive(Debug)]
pub(super) struct Unlinked {
    pub(super) entries: Vec<u32>,
    /// Numbers of the lcores that were live at that time, each with its iteration count.
    pub(super) ticks: Vec<(usize, u64)>,
}

impl Unlinked {
    /// Returns whether no lcore can be visiting these entries. Each lcore has counted two more
    /// iterations, so that the iteration in progress at that time is over, or is no longer live.
    pub(super) fn is_unvisited(&self, now: &[(usize, u64)]) -> bool {
        self.ticks.iter().all(|(lcore, then)| {
            now.iter().all(|(other, tick)| other != lcore || tick.wrapping_sub(*then) >= 2)
        })
    }
}
