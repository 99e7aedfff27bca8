//! Recovery of flows by a new fastpath, whatever its predecessor was doing when it was killed.

use super::entry::FRONT;
use super::free::FreeList;
use super::path::PathRecord;
use super::{Flows, Hit, MAX_OPTIONS};
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::record::NONE;
use packet::flow::FlowKey;

/// Distance in records by which entries and paths are prefetched, because they are scattered in
/// memory.
const AHEAD: usize = 16;

/// Result of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Number of flows taken over.
    pub recovered: u32,
    /// Number of path records cleared: incomplete, partly ended or inconsistent.
    pub cleared_paths: u32,
    /// Number of entries cleared for the same reasons.
    pub cleared_entries: u32,
    /// Number of buckets that a killed lcore had locked.
    pub stale_locks: u32,
}

impl Recovery {
    /// Log message; `None` if no path record was in use.
    pub fn log_message(&self) -> Option<String> {
        let Recovery { recovered, cleared_paths, stale_locks, .. } = self;
        (recovered + cleared_paths > 0).then(|| {
            format!(
                "{recovered} flows taken over, {cleared_paths} incomplete ones cleared, \
                 {stale_locks} stale locks released"
            )
        })
    }
}

impl Flows<'_> {
    /// Keeps every complete flow, clears the rest, and recomputes everything else (locks, tags,
    /// free lists, slabs, NAT port maps) from the flows.
    ///
    /// The process that claimed the role calls it at every start of fastpath, including the first,
    /// before any lcore runs.
    pub fn recover(&self) -> Recovery {
        let mut found = Recovery::default();
        self.clear_rings();
        self.copies.iter().for_each(|copy| copy.clear());
        let mut slabs_used = vec![false; self.slabs.len()];
        self.nat.clear();
        for (id, path) in (0..).zip(self.paths) {
            if let Some(next) = self.paths.get(id as usize + AHEAD) {
                self.index.prefetch_entry(next.forward().front);
                self.index.prefetch_entry(next.back.load(Relaxed));
            }
            if !path.is_touched() {
                continue;
            }
            if path.is_live() && self.check_and_mark_port(id, path) {
                self.repair(path, &mut slabs_used);
                self.add_recovered(id, path);
                if let Some((key, hit)) = self.index.read(path.forward().front) {
                    self.set_front(id, &key, &hit);
                }
                found.recovered += 1;
            } else {
                path.free();
                found.cleared_paths += 1;
            }
        }
        let (entries, locks) = self.index.rebuild(|i, _, hit| {
            let next = self.index.entry(i + AHEAD as u32).map(|next| next.path.load(Relaxed));
            if let Some(next) = next.and_then(|path| self.paths.get(path as usize)) {
                next.prefetch();
            }
            let path = self.paths.get(hit.path as usize).filter(|path| path.is_live());
            path.is_some_and(|p| p.forward().front == i || p.back.load(Relaxed) == i)
        });
        for state in self.state {
            FreeList::new(&state.paths, self.path_links).clear();
            state.live.store(0, Relaxed);
        }
        if let Some(shared) = self.state() {
            let paths = FreeList::new(&shared.paths, self.path_links);
            paths.rebuild(|id| !self.paths[id as usize].is_live());
            shared.live.store(found.recovered, Relaxed);
        }
        self.free_slabs()
            .into_iter()
            .for_each(|free| free.rebuild(|slab| !slabs_used[slab as usize]));
        Recovery { cleared_entries: entries, stale_locks: locks, ..found }
    }

    /// Marks a path's NAT port as in use. Returns whether the path's entries are complete and refer
    /// to it, and no other flow has its NAT port.
    fn check_and_mark_port(&self, id: u32, path: &PathRecord) -> bool {
        let (forward, back) = (path.forward(), path.back.load(Relaxed));
        let refers = |i: u32, front: bool| {
            let (key, hit): (FlowKey, Hit) = self.index.read(i)?;
            let position = self.index.position(self.index.hash(&key));
            let fits = self.index.belongs(i, &position) && hit.path == id;
            (fits && (hit.flags & FRONT != 0) == front).then_some(())
        };
        let map = if forward.is_nat() { path.owns.load(Relaxed) } else { NONE };
        refers(forward.front, true).is_some()
            && (back == NONE || refers(back, false).is_some())
            && (map == NONE || self.nat.mark(map, forward.nat_port))
    }

    /// Repairs a path that a kill during `update_gateway` left locked: the flow is kept, and its
    /// next packet of each direction writes leg and options again. Records the slabs that the path
    /// uses in `slabs_used`, and removes slabs that do not exist or that another path uses.
    fn repair(&self, path: &PathRecord, slabs_used: &mut [bool]) {
        if path.is_locked() {
            if let Some(entry) = self.index.entry(path.forward().front) {
                entry.digest.fetch_xor(u32::MAX, Relaxed);
            }
            self.drop_responder(path);
            path.publish();
        }
        let mut has = |slab: &AtomicU32| {
            let number = slab.load(Relaxed);
            let free = slabs_used.get_mut(number as usize).filter(|used| !**used);
            free.map(|used| *used = true).is_some()
        };
        let has_slab = has(&path.slab);
        if !has_slab {
            path.slab.store(NONE, Relaxed);
        }
        if !path.forward().is_nat() && path.owns.load(Relaxed) != NONE && !has(&path.owns) {
            self.drop_responder(path);
        }
        let len = usize::from(path.gateway().option_len);
        if len > MAX_OPTIONS || (super::path::needs_slab(len) && !has_slab) {
            path.drop_options();
        }
    }

    /// Removes the responder's leg, so that the flow has one leg.
    fn drop_responder(&self, path: &PathRecord) {
        let forward = path.forward();
        if !forward.is_nat() {
            path.owns.store(NONE, Relaxed);
            path.set_forward(&forward.without_responder());
        }
    }
}
