//! What the writer knows of free room; rebuilt from the tables at attach, never stored.

use std::collections::{BTreeMap, BTreeSet};

/// Ids of one table. A removed id is used again only when nothing can refer to it any more.
#[derive(Debug, Default)]
pub(super) struct Ids {
    count: u32,
    /// Ids from here on were never used.
    fresh: u32,
    free: BTreeSet<u32>,
    /// Removed ids and the generation that doesn't see them any more.
    retired: BTreeMap<u32, u32>,
}

impl Ids {
    pub(super) fn new(count: u32) -> Ids {
        Ids { count, ..Ids::default() }
    }

    /// The id that `take` would give.
    pub(super) fn peek(&self) -> Option<u32> {
        let fresh = (self.fresh < self.count).then_some(self.fresh);
        self.free.first().copied().or(fresh)
    }

    /// Takes an id: a free one, or the one that the caller knows to be retired.
    pub(super) fn take(&mut self, id: u32) {
        self.retired.remove(&id);
        if !self.free.remove(&id) {
            self.reach(id);
        }
    }

    /// Says at attach that an id is in use.
    fn reach(&mut self, id: u32) {
        if id >= self.fresh {
            self.free.extend(self.fresh..id);
            self.fresh = id + 1;
        }
    }

    /// Gives an id up; from `generation` on no table refers to it.
    pub(super) fn retire(&mut self, id: u32, generation: u32) {
        self.retired.insert(id, generation);
    }

    /// Says at attach that an id was used, and may be referred to.
    pub(super) fn found_retired(&mut self, id: u32) {
        self.reach(id);
        self.free.remove(&id);
        self.retired.insert(id, 0);
    }

    pub(super) fn retired(&self) -> impl Iterator<Item = u32> {
        self.retired.keys().copied()
    }

    /// Frees retired ids that the committed generation doesn't see and that nobody refers to.
    pub(super) fn reclaim(&mut self, committed: u32, refers: impl Fn(u32) -> bool) -> Vec<u32> {
        let gone = |(id, since): (&u32, &u32)| (*since <= committed && !refers(*id)).then_some(*id);
        let freed: Vec<u32> = self.retired.iter().filter_map(gone).collect();
        for id in &freed {
            self.retired.remove(id);
            self.free.insert(*id);
        }
        freed
    }

    /// (in use, room, retired)
    pub(super) fn fill(&self) -> (u32, u32, u32) {
        let retired = self.retired.len() as u32;
        (self.fresh - self.free.len() as u32 - retired, self.count, retired)
    }
}

/// Free runs of the slot arena. First fit: sizes are few (ten primes), so that holes get reused.
#[derive(Debug, Default)]
pub(super) struct Arena {
    room: u32,
    /// Start and length of each free run; no two of them touch.
    free: BTreeMap<u32, u32>,
    /// Runs that the committed generation may still see.
    ending: Vec<(u32, u32)>,
}

impl Arena {
    pub(super) fn new(room: u32) -> Arena {
        let mut arena = Arena { room, ..Arena::default() };
        arena.give(0, room);
        arena
    }

    /// Takes `count` slots in a row and returns the first one.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().find(|(_, len)| **len >= count)?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        Some(first)
    }

    /// Takes `count` slots in a row from the other end: for runs of any length, so that they don't
    /// lie between those of the few sizes.
    pub(super) fn take_last(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().rev().find(|(_, len)| **len >= count)?;
        self.free.remove(&first);
        self.give(first, len - count);
        Some(first + len - count)
    }

    /// Says at attach that a run is in use; false when it isn't free, or lies outside.
    pub(super) fn take_at(&mut self, first: u32, count: u32) -> bool {
        let Some((&start, &len)) = self.free.range(..=first).next_back() else { return false };
        let Some(end) = first.checked_add(count).filter(|end| *end <= start + len) else {
            return false;
        };
        self.free.remove(&start);
        self.give(start, first - start);
        self.give(end, start + len - end);
        true
    }

    /// Gives a run up that the next generation doesn't see any more.
    pub(super) fn retire(&mut self, first: u32, count: u32) {
        self.ending.push((first, count));
    }

    /// The generation before the committed one is seen by nobody.
    pub(super) fn reuse(&mut self) {
        for (first, count) in std::mem::take(&mut self.ending) {
            self.give(first, count);
        }
    }

    pub(super) fn give(&mut self, mut first: u32, mut count: u32) {
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

    /// (free slots, all slots)
    pub(super) fn fill(&self) -> (u32, u32) {
        (self.free.values().sum(), self.room)
    }
}

/// Entries of the frontend hash on their way from seen to free.
///
/// A walker may stand on an entry while it is unlinked, so that its room is used again only after
/// every live lcore has passed the point between two bursts.
#[derive(Debug, Default)]
pub(super) struct EntryRoom {
    pub(super) free: Vec<u32>,
    /// Linked; the next generation doesn't see them.
    pub(super) ending: Vec<u32>,
    /// In no chain any more.
    pub(super) limbo: Vec<Unlinked>,
}

/// Entries that were unlinked together.
#[derive(Debug)]
pub(super) struct Unlinked {
    pub(super) entries: Vec<u32>,
    /// The turns of the live lcores by then.
    pub(super) turns: Vec<(usize, u64)>,
}

impl Unlinked {
    /// Whether no lcore can still stand on one of them: the turn that was under way is over when
    /// two more have begun. A lcore that is not live any more stands nowhere.
    pub(super) fn is_left(&self, now: &[(usize, u64)]) -> bool {
        self.turns.iter().all(|(lcore, then)| {
            now.iter().all(|(other, turn)| other != lcore || turn.wrapping_sub(*then) >= 2)
        })
    }
}
