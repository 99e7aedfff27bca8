//! Scopes: a small number for each gateway endpoint, so that keys stay short.
//!
//! Open addressing over a power of two of 32-byte cells. A cell is taken in two steps, first its
//! endpoint, then its gateway, each by one compare-and-swap; there is no lock that a killed process
//! could leave behind. A cell that was left after its first step is finished by whoever comes with
//! the same endpoint. Nothing is ever removed, so a scope means the same for as long as the region
//! lives.

use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::layout::Section;
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};

#[repr(C, align(32))]
struct Cell {
    /// Endpoint + 1; 0 is a free cell.
    endpoint: AtomicU64,
    /// `TAKEN | kind << 16 | gateway`; 0 while the cell is being taken.
    gateway: AtomicU64,
    /// In the first cell: how many cells are taken. Zero elsewhere.
    taken: AtomicU64,
    spare: AtomicU64,
}

const _: () = assert!(size_of::<Cell>() == 32);

/// Set in every finished cell, so that kind 0 of gateway 0 differs from "not finished".
const TAKEN: u64 = 1 << 32;

/// What a scope stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The gateway's [`TunnelKind`](crate::record::TunnelKind) as a number.
    pub kind: u8,
    /// The gateway's number.
    pub gateway: u16,
    /// GENEVE endpoint id, or the tunnel's scope key.
    pub endpoint: u64,
}

/// The table of scopes, read and extended by all lcores at once.
#[derive(Clone, Copy)]
pub struct Scopes<'r> {
    cells: Rows<'r, Cell>,
    limit: u64,
}

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Cell {}

impl<'r> Scopes<'r> {
    /// The table of a region.
    pub fn new(region: &'r Region) -> Scopes<'r> {
        Scopes::over(region.slice(Section::Scopes), region.max_scopes())
    }

    /// At most `limit` of a power of two of cells.
    fn over(cells: Rows<'r, Cell>, limit: u32) -> Scopes<'r> {
        Scopes { cells, limit: u64::from(limit.min(cells.count())) }
    }

    /// The scope of an endpoint, made if there is none yet. `None` when the table is full, and for
    /// endpoint `u64::MAX`, which has no number here.
    pub fn intern(&self, kind: u8, gateway: u16, endpoint: u64) -> Option<u32> {
        let stored = endpoint.checked_add(1)?;
        let wanted = TAKEN | u64::from(kind) << 16 | u64::from(gateway);
        let (first, mask) = self.probe(endpoint);
        for turn in 0..self.turns() {
            let at = first.wrapping_add(turn) & mask;
            let cell = self.cells.row(at)?;
            let mut found = cell.endpoint.load(Acquire);
            if found == 0 {
                let taken = &self.cells.row(0)?.taken;
                if taken.fetch_add(1, Relaxed) >= self.limit {
                    taken.fetch_sub(1, Relaxed);
                    return None;
                }
                match cell.endpoint.compare_exchange(0, stored, AcqRel, Acquire) {
                    Ok(_) => found = stored,
                    Err(other) => {
                        taken.fetch_sub(1, Relaxed);
                        found = other;
                    }
                }
            }
            if found != stored {
                continue;
            }
            // The kernel asks only here, for every packet: the line of a known scope stays shared.
            if cell.gateway.load(Acquire) == wanted {
                return Some(at + 1);
            }
            match cell.gateway.compare_exchange(0, wanted, AcqRel, Acquire) {
                Ok(_) => return Some(at + 1),
                Err(other) if other == wanted => return Some(at + 1),
                Err(_) => {}
            }
        }
        None
    }

    /// The scope of an endpoint that has one. What the hot path asks first.
    #[inline]
    pub fn find(&self, kind: u8, gateway: u16, endpoint: u64) -> Option<u32> {
        let stored = endpoint.checked_add(1)?;
        let wanted = TAKEN | u64::from(kind) << 16 | u64::from(gateway);
        let (first, mask) = self.probe(endpoint);
        for turn in 0..self.turns() {
            let at = first.wrapping_add(turn) & mask;
            let cell = self.cells.row(at)?;
            let found = cell.endpoint.load(Acquire);
            if found == 0 {
                return None;
            }
            if found == stored && cell.gateway.load(Acquire) == wanted {
                return Some(at + 1);
            }
        }
        None
    }

    /// The scope that an endpoint has, or would get if it came now; else as [`Scopes::intern`].
    #[cfg(not(target_arch = "bpf"))]
    pub fn foresee(&self, kind: u8, gateway: u16, endpoint: u64) -> Option<u32> {
        let stored = endpoint.checked_add(1)?;
        let wanted = TAKEN | u64::from(kind) << 16 | u64::from(gateway);
        let (first, mask) = self.probe(endpoint);
        for at in (0..self.turns()).map(|turn| first.wrapping_add(turn) & mask) {
            let cell = self.cells.row(at)?;
            match cell.endpoint.load(Acquire) {
                0 => return (u64::from(self.taken()) < self.limit).then_some(at + 1),
                found if found != stored => {}
                _ if [0, wanted].contains(&cell.gateway.load(Acquire)) => return Some(at + 1),
                _ => {}
            }
        }
        None
    }

    /// What a scope stands for; `None` for plain traffic and for numbers that were never given out.
    pub fn endpoint(&self, scope: u32) -> Option<Endpoint> {
        let cell = self.cells.row(scope.checked_sub(1)?)?;
        let endpoint = cell.endpoint.load(Acquire).checked_sub(1)?;
        let gateway = cell.gateway.load(Acquire);
        (gateway & TAKEN != 0).then_some(Endpoint {
            kind: (gateway >> 16) as u8,
            gateway: gateway as u16,
            endpoint,
        })
    }

    /// How many endpoints have a scope.
    pub fn taken(&self) -> u32 {
        self.cells.row(0).map_or(0, |cell| cell.taken.load(Relaxed) as u32)
    }

    /// How many may have one.
    pub fn capacity(&self) -> u32 {
        self.limit as u32
    }

    /// Where this endpoint belongs, and what the cells' number is masked with.
    #[inline(always)]
    fn probe(&self, endpoint: u64) -> (u32, u32) {
        let mask = self.cells.count().wrapping_sub(1);
        ((endpoint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32, mask)
    }

    /// How many cells are looked at: all. The kernel's program takes a table, of which never more
    /// than half is taken, for full where it finds none of so many free.
    #[inline(always)]
    fn turns(&self) -> u32 {
        if cfg!(target_arch = "bpf") { 64 } else { self.cells.count() }
    }

    /// Counts the taken cells anew: a killed process may have counted one that it never took.
    #[cfg(not(target_arch = "bpf"))]
    pub fn recover(&self) {
        let taken = self.cells.iter().filter(|cell| cell.endpoint.load(Acquire) != 0).count();
        self.cells[0].taken.store(taken as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn cells(count: usize) -> Vec<Cell> {
        let zero = || AtomicU64::new(0);
        let cell = || Cell { endpoint: zero(), gateway: zero(), taken: zero(), spare: zero() };
        (0..count).map(|_| cell()).collect()
    }

    #[test]
    fn an_endpoint_keeps_its_scope_and_shares_it_with_nobody() {
        let memory = cells(64);
        let table = Scopes::over(&memory, 32);
        let mut seen = HashSet::new();
        for gateway in 0..4 {
            for endpoint in [0, 1, 7, u64::MAX - 1] {
                assert_eq!(table.find(1, gateway, endpoint), None);
                let foreseen = table.foresee(1, gateway, endpoint);
                let scope = table.intern(1, gateway, endpoint).unwrap();
                assert!(scope > 0 && seen.insert(scope));
                assert_eq!(table.intern(1, gateway, endpoint), Some(scope));
                assert_eq!(table.find(1, gateway, endpoint), Some(scope));
                assert_eq!(foreseen, Some(scope));
                assert_eq!(table.foresee(1, gateway, endpoint), Some(scope));
                let back = Endpoint { kind: 1, gateway, endpoint };
                assert_eq!(table.endpoint(scope), Some(back));
            }
        }
        assert_eq!(table.taken(), 16);
        assert_eq!(table.intern(1, 0, u64::MAX), None);
        assert_eq!((table.endpoint(0), table.endpoint(65)), (None, None));
    }

    #[test]
    fn a_full_table_refuses_new_endpoints_and_knows_the_old_ones() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8);
        let all: Vec<_> = (0..8).map(|e| table.intern(2, 0, e).unwrap()).collect();
        assert_eq!((table.intern(2, 0, 8), table.taken()), (None, 8));
        assert_eq!((table.foresee(2, 0, 8), table.foresee(2, 0, 7)), (None, Some(all[7])));
        assert!((0..8).all(|e| table.find(2, 0, e) == Some(all[e as usize])));
    }

    #[test]
    fn a_cell_that_a_killed_process_left_is_finished_by_the_next() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8);
        let (first, mask) = table.probe(5);
        let at = (first & mask) as usize;
        table.cells[0].taken.fetch_add(2, Relaxed);
        table.cells[at].endpoint.store(6, Relaxed);
        table.recover();
        assert_eq!((table.taken(), table.find(1, 2, 5)), (1, None));
        assert_eq!(table.endpoint(at as u32 + 1), None);
        assert_eq!(table.foresee(1, 2, 5), Some(at as u32 + 1));
        assert_eq!(table.intern(1, 2, 5), Some(at as u32 + 1));
        assert_eq!(table.taken(), 1);
    }

    #[test]
    fn threads_that_intern_the_same_endpoints_agree() {
        // Not as many as there is room for: a thread counts its cell before it learns that another
        // was first, so that for a moment the table may seem full.
        let count = if cfg!(miri) { 12 } else { 120 };
        let memory = cells(256);
        let table = Scopes::over(&memory, 128);
        let intern = || (0..count).map(|e| table.intern(1, 1, e).unwrap()).collect::<Vec<_>>();
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(intern)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|seen| *seen == all[0]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), count as usize);
        assert_eq!(u64::from(table.taken()), count);
    }
}
