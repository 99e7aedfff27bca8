//! Scopes: a small number for each gateway endpoint, which keeps flow keys short.
//!
//! The table uses open addressing over a power of two of 32-byte cells; a scope is the number of
//! its cell plus one. A cell is allocated in two steps, first its endpoint, then its gateway, each
//! by one compare-and-swap, so that a killed process cannot leave a lock behind. The next lookup of
//! the same endpoint finishes a cell that was left after its first step.
//!
//! ```text
//!  free or released --endpoint--> taken --gateway--> in use --idle timeout--> released
//! ```
//! A cell also stores the second in which its endpoint was last looked up, or in which the sweep
//! found a flow of the scope. Cells that were idle for too long are released
//! ([`Scopes::release_idle`]) and may be reused for any endpoint. Lookups and releases both update
//! that second by compare-and-swap, so that a scope which was just returned is never released. A
//! caller that caches a scope looks it up again within [`CACHE_MAX_S`].

#[cfg(not(target_arch = "bpf"))]
use crate::atomic::Ordering::Release;
use crate::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::layout::Section;
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};

/// A cell of the scope table.
#[repr(C, align(32))]
struct Cell {
    /// Endpoint + 1; 0 for a free cell; [`BUSY`] or [`RELEASED`].
    endpoint: AtomicU64,
    /// `TAKEN | kind << 16 | gateway`; these bits are 0 before the second step. Higher bits count
    /// releases, so that a delayed second step fails if the cell was reused for another endpoint.
    gateway: AtomicU64,
    /// Number of allocated cells, in the first cell only. Zero elsewhere.
    taken: AtomicU64,
    /// `USED | second` of the region's clock in which the scope was last in use; 0 before its first
    /// use; [`RETIRED`].
    last_used: AtomicU64,
}

const _: () = assert!(size_of::<Cell>() == 32);

/// Set in every fully allocated cell, to distinguish kind 0 of gateway 0 from an unfinished cell.
const TAKEN: u64 = 1 << 32;
/// Mask of [`TAKEN`], kind and gateway.
const OWNER_MASK: u64 = (TAKEN << 1) - 1;
/// Increment of the release count.
const RELEASE: u64 = TAKEN << 1;
/// Set in the `last_used` word of every cell that was looked up.
const USED: u64 = 1 << 32;
/// Value of `last_used` while the cell is being released; the cell then belongs to no endpoint.
const RETIRED: u64 = u64::MAX;
/// Value of `endpoint` while the cell is being released.
const BUSY: u64 = u64::MAX;
/// Value of `endpoint` of a released cell. The cell is free, but probing continues past it.
const RELEASED: u64 = u64::MAX - 1;

/// Maximum time for which a scope may be cached without a lookup, in seconds.
pub const CACHE_MAX_S: u32 = 32;
/// Minimum idle time before a scope is released, in seconds: much longer than a scope is cached or
/// a packet is processed.
const MIN_IDLE_S: u32 = 4 * CACHE_MAX_S;
/// Maximum number of cells probed for an endpoint. At least half of the cells are always free, and
/// the region's secret key hashes endpoints, so longer sequences do not occur by chance.
const MAX_PROBES: u32 = 64;

/// The gateway endpoint of a scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The gateway's [`TunnelKind`](crate::record::TunnelKind), as a number.
    pub kind: u8,
    /// The gateway's number.
    pub gateway: u16,
    /// GENEVE endpoint id, or the tunnel's scope key.
    pub endpoint: u64,
}

/// The scope table, which all lcores read and extend concurrently.
#[derive(Clone, Copy)]
pub struct Scopes<'r> {
    cells: Rows<'r, Cell>,
    limit: u64,
    key: [u64; 2],
}

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Cell {}

impl Cell {
    /// Marks the cell as in use in this second, if it belongs to the endpoint `stored` of the
    /// gateway `owner`; performs the second allocation step if that is missing. Returns false if
    /// the cell belongs to another gateway or endpoint, or is being released.
    #[inline(always)]
    fn is_used_by(&self, stored: u64, owner: u64, now_s: u32) -> bool {
        let mut gateway = self.gateway.load(Acquire);
        if gateway & TAKEN == 0 {
            // A release in the meantime would have changed the count.
            if self.endpoint.load(Acquire) != stored {
                return false;
            }
            let taken = self.gateway.compare_exchange(gateway, gateway | owner, AcqRel, Acquire);
            gateway = taken.map_or_else(|other| other, |before| before | owner);
        }
        // Ownership is checked after the cell was marked in use; from then on it is not released.
        gateway & OWNER_MASK == owner && self.touch(now_s) && self.endpoint.load(Acquire) == stored
    }

    /// Marks the cell as in use; returns false if it is being released.
    #[inline(always)]
    fn touch(&self, now_s: u32) -> bool {
        let (last_used, now) = (self.last_used.load(Acquire), USED | u64::from(now_s));
        // `last_used` may be later than `now_s`, because the clock of another lcore may be slightly
        // ahead.
        let since = now_s.wrapping_sub(last_used as u32);
        if last_used & USED != 0 && last_used != RETIRED && (since == 0 || since > u32::MAX / 2) {
            return true;
        }
        // The exchange may fail against another caller in the same second; only a release matters.
        last_used != RETIRED
            && match self.last_used.compare_exchange(last_used, now, AcqRel, Acquire) {
                Ok(_) => true,
                Err(other) => other != RETIRED,
            }
    }
}

impl<'r> Scopes<'r> {
    /// Returns the scope table of a region.
    pub fn new(region: &'r Region) -> Scopes<'r> {
        let key = region.hash_key().words();
        Scopes::over(region.slice(Section::Scopes), region.max_scopes(), [key[0], key[1]])
    }

    /// Creates a table of at most `limit` endpoints over a power of two of cells.
    fn over(cells: Rows<'r, Cell>, limit: u32, key: [u64; 2]) -> Scopes<'r> {
        Scopes { cells, limit: u64::from(limit.min(cells.count())), key }
    }

    /// Returns the scope of an endpoint, and allocates one if there is none. `None` if the table is
    /// full, and for endpoints from `u64::MAX - 2` on, which have no encoding.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn intern(&self, kind: u8, gateway: u16, endpoint: u64, now_s: u32) -> Option<u32> {
        let (stored, owner) = (stored(endpoint)?, owner(kind, gateway));
        let (first, mask) = self.probe(endpoint);
        // The first released cell. It is used only after the following cells were examined, because
        // one of them may have the endpoint.
        let mut reusable = NO_CELL;
        for step in 0..self.max_probes() {
            let at = first.wrapping_add(step) & mask;
            let cell = self.cells.row(at)?;
            match cell.endpoint.load(Acquire) {
                0 => {
                    // If other lcores took both cells, the next free one is tried.
                    for free in [reusable, at] {
                        match self.allocate(free, stored, owner, now_s) {
                            Err(ClaimError::Taken) => {}
                            found => return found.ok(),
                        }
                    }
                    reusable = NO_CELL;
                }
                RELEASED if reusable == NO_CELL => reusable = at,
                found if found == stored && cell.is_used_by(stored, owner, now_s) => {
                    return Some(at + 1);
                }
                _ => {}
            }
        }
        self.allocate(reusable, stored, owner, now_s).ok()
    }

    /// Allocates a cell that was free when it was examined.
    #[inline(always)]
    fn allocate(&self, at: u32, stored: u64, owner: u64, now_s: u32) -> Result<u32, ClaimError> {
        let (Some(cell), Some(first)) = (self.cells.row(at), self.cells.row(0)) else {
            return Err(ClaimError::Taken);
        };
        let before = cell.endpoint.load(Acquire);
        if before != 0 && before != RELEASED && before != stored {
            return Err(ClaimError::Taken);
        }
        if before != stored {
            if first.taken.fetch_add(1, Relaxed) >= self.limit {
                first.taken.fetch_sub(1, Relaxed);
                return Err(ClaimError::Full);
            }
            let found = cell.endpoint.compare_exchange(before, stored, AcqRel, Acquire);
            if found.is_err() {
                first.taken.fetch_sub(1, Relaxed);
            }
            if found.is_err() && found != Err(stored) {
                return Err(ClaimError::Taken);
            }
        }
        let is_owner = cell.is_used_by(stored, owner, now_s);
        if is_owner { Ok(at + 1) } else { Err(ClaimError::Taken) }
    }

    /// Returns the scope that an endpoint has, or that [`Scopes::intern`] would allocate now.
    #[cfg(not(target_arch = "bpf"))]
    pub fn peek(&self, kind: u8, gateway: u16, endpoint: u64) -> Option<u32> {
        let (stored, owner) = (stored(endpoint)?, owner(kind, gateway));
        let (first, mask) = self.probe(endpoint);
        let mut free = None;
        for at in (0..self.max_probes()).map(|step| first.wrapping_add(step) & mask) {
            let cell = self.cells.row(at)?;
            let is_owner = || {
                let gateway = cell.gateway.load(Acquire) & OWNER_MASK;
                (gateway & TAKEN == 0 || gateway == owner)
                    && cell.last_used.load(Acquire) != RETIRED
            };
            match cell.endpoint.load(Acquire) {
                found if found == stored && is_owner() => return Some(at + 1),
                0 => {
                    free = free.or(Some(at + 1));
                    break;
                }
                RELEASED => free = free.or(Some(at + 1)),
                _ => {}
            }
        }
        free.filter(|_| u64::from(self.taken()) < self.limit)
    }

    /// Returns the endpoint of a scope; `None` for plain traffic (scope 0) and unallocated numbers.
    pub fn endpoint(&self, scope: u32) -> Option<Endpoint> {
        let cell = self.cells.row(scope.checked_sub(1)?)?;
        let found = cell.endpoint.load(Acquire);
        let gateway = cell.gateway.load(Acquire);
        (gateway & TAKEN != 0 && is_endpoint(found)).then(|| Endpoint {
            kind: (gateway >> 16) as u8,
            gateway: gateway as u16,
            endpoint: found - 1,
        })
    }

    /// Number of endpoints that have a scope.
    pub fn taken(&self) -> u32 {
        self.cells.row(0).map_or(0, |cell| cell.taken.load(Relaxed) as u32)
    }

    /// Maximum number of endpoints that can have a scope.
    pub fn capacity(&self) -> u32 {
        self.limit as u32
    }

    /// Number of cells.
    pub fn cells(&self) -> u32 {
        self.cells.count()
    }

    /// Returns a hash of an endpoint, and the mask by which it selects the first cell to probe.
    #[inline(always)]
    fn probe(&self, endpoint: u64) -> (u32, u32) {
        let mask = self.cells.count().wrapping_sub(1);
        let mixed = (endpoint ^ self.key[0]).wrapping_mul(self.key[1] | 1);
        ((mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32, mask)
    }

    #[inline(always)]
    fn max_probes(&self) -> u32 {
        if cfg!(target_arch = "bpf") { MAX_PROBES } else { MAX_PROBES.min(self.cells.count()) }
    }
}

/// Operations that run between packets.
#[cfg(not(target_arch = "bpf"))]
impl Scopes<'_> {
    /// Marks a scope as in use because it has a flow. Stores at most once per [`CACHE_MAX_S`].
    #[inline]
    pub fn keep_alive(&self, scope: u32, now_s: u32) {
        let Some(cell) = scope.checked_sub(1).and_then(|at| self.cells.get(at as usize)) else {
            return;
        };
        if idle_s(cell.last_used.load(Relaxed), now_s) >= CACHE_MAX_S {
            cell.touch(now_s);
        }
    }

    /// Examines the next `n` cells and releases those that were idle for `idle_for_s` seconds, but
    /// at least for `MIN_IDLE_S` (128 s). Returns how many were released. Only one lcore may call
    /// it, with a `cursor` that starts at 0, and only while the sweep of flows marks their scopes
    /// as in use ([`Scopes::keep_alive`]).
    pub fn release_idle(&self, cursor: &mut u32, n: u32, now_s: u32, idle_for_s: u32) -> u32 {
        let mut released = 0;
        for _ in 0..n.min(self.cells.count()) {
            *cursor = if *cursor >= self.cells.count() { 0 } else { *cursor };
            let cell = &self.cells[*cursor as usize];
            *cursor += 1;
            if !is_endpoint(cell.endpoint.load(Acquire)) {
                continue;
            }
            let last_used = cell.last_used.load(Acquire);
            if last_used == 0 {
                // Allocation is in progress, or its process was killed: the idle time begins now.
                cell.touch(now_s);
                continue;
            }
            let idle = idle_s(last_used, now_s) >= idle_for_s.max(MIN_IDLE_S);
            let retire = || cell.last_used.compare_exchange(last_used, RETIRED, AcqRel, Acquire);
            if idle && retire().is_ok() {
                self.release(cell);
                self.cells[0].taken.fetch_sub(1, Relaxed);
                released += 1;
            }
        }
        released
    }

    /// Frees a retired cell. Apart from the release count and [`RELEASED`], it is then like an
    /// unused cell.
    fn release(&self, cell: &Cell) {
        cell.endpoint.store(BUSY, Relaxed);
        let count = (cell.gateway.load(Relaxed) & !OWNER_MASK).wrapping_add(RELEASE);
        cell.gateway.store(count, Release);
        cell.last_used.store(0, Release);
        cell.endpoint.store(RELEASED, Release);
    }

    /// Completes what a killed process left while no lcore runs: cells that were being released,
    /// and the count of allocated cells.
    pub fn recover(&self) {
        let is_half_released = |cell: &Cell| {
            cell.endpoint.load(Acquire) == BUSY || cell.last_used.load(Acquire) == RETIRED
        };
        self.cells.iter().filter(|cell| is_half_released(cell)).for_each(|cell| self.release(cell));
        // A released cell that is followed by an unused one becomes unused itself: no probe
        // sequence needs to continue past it.
        let mut behind = self.cells.first();
        for cell in self.cells.iter().rev() {
            let is_last = behind.is_some_and(|cell| cell.endpoint.load(Acquire) == 0);
            if is_last && cell.endpoint.load(Acquire) == RELEASED {
                cell.endpoint.store(0, Release);
            }
            behind = Some(cell);
        }
        let taken = self.cells.iter().filter(|cell| is_endpoint(cell.endpoint.load(Acquire)));
        self.cells[0].taken.store(taken.count() as u64, Relaxed);
    }
}

/// Reason for which a cell was not allocated.
#[derive(PartialEq, Eq)]
enum ClaimError {
    /// Another endpoint has it.
    Taken,
    /// The table is at its limit.
    Full,
}

/// A number that no cell has.
const NO_CELL: u32 = u32::MAX;

/// Returns the encoding of an endpoint in its cell, or `None` if it has none.
#[inline(always)]
const fn stored(endpoint: u64) -> Option<u64> {
    if endpoint < RELEASED - 1 { Some(endpoint + 1) } else { None }
}

#[inline(always)]
const fn owner(kind: u8, gateway: u16) -> u64 {
    TAKEN | (kind as u64) << 16 | gateway as u64
}

/// Returns whether a cell with this `endpoint` word belongs to an endpoint.
const fn is_endpoint(stored: u64) -> bool {
    stored != 0 && stored < RELEASED
}

/// Seconds since a cell was last in use; 0 if it never was or the clock of its last user is ahead.
#[cfg(not(target_arch = "bpf"))]
fn idle_s(last_used: u64, now_s: u32) -> u32 {
    let idle = now_s.wrapping_sub(last_used as u32);
    if last_used == 0 || last_used == RETIRED || idle > u32::MAX / 2 { 0 } else { idle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const KEY: [u64; 2] = [0x1234_5678, 0x9abc_def1];

    fn cells(count: usize) -> Vec<Cell> {
        let zero = || AtomicU64::new(0);
        let cell = || Cell { endpoint: zero(), gateway: zero(), taken: zero(), last_used: zero() };
        (0..count).map(|_| cell()).collect()
    }

    #[test]
    fn each_endpoint_has_its_own_stable_scope() {
        let memory = cells(64);
        let table = Scopes::over(&memory, 32, KEY);
        let mut observed = HashSet::new();
        for gateway in 0..4 {
            for endpoint in [0, 1, 7, u64::MAX - 3] {
                let peeked = table.peek(1, gateway, endpoint);
                let scope = table.intern(1, gateway, endpoint, 7).unwrap();
                assert!(scope > 0 && observed.insert(scope));
                assert_eq!(table.intern(1, gateway, endpoint, 7), Some(scope));
                assert_eq!(peeked, Some(scope));
                assert_eq!(table.peek(1, gateway, endpoint), Some(scope));
                let back = Endpoint { kind: 1, gateway, endpoint };
                assert_eq!(table.endpoint(scope), Some(back));
            }
        }
        assert_eq!(table.taken(), 16);
        for endpoint in [u64::MAX, u64::MAX - 1, u64::MAX - 2] {
            assert_eq!(table.intern(1, 0, endpoint, 7), None);
            assert_eq!(table.peek(1, 0, endpoint), None);
        }
        assert_eq!((table.endpoint(0), table.endpoint(65)), (None, None));
    }

    #[test]
    fn full_scope_table_rejects_new_endpoints_and_keeps_old_ones() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8, KEY);
        let all: Vec<_> = (0..8).map(|e| table.intern(2, 0, e, 7).unwrap()).collect();
        assert_eq!((table.intern(2, 0, 8, 7), table.taken()), (None, 8));
        assert_eq!((table.peek(2, 0, 8), table.peek(2, 0, 7)), (None, Some(all[7])));
        assert!((0..8).all(|e| table.intern(2, 0, e, 8) == Some(all[e as usize])));
    }

    #[test]
    fn half_allocated_cell_is_completed_later() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8, KEY);
        let (first, mask) = table.probe(5);
        let at = (first & mask) as usize;
        table.cells[0].taken.fetch_add(2, Relaxed);
        table.cells[at].endpoint.store(6, Relaxed);
        table.recover();
        assert_eq!(table.taken(), 1);
        assert_eq!(table.endpoint(at as u32 + 1), None);
        assert_eq!(table.peek(1, 2, 5), Some(at as u32 + 1));
        assert_eq!(table.intern(1, 2, 5, 7), Some(at as u32 + 1));
        assert_eq!(table.taken(), 1);
    }

    #[test]
    fn threads_that_intern_the_same_endpoints_agree() {
        // Fewer endpoints than the table's limit: a thread counts its cell before it finds that
        // another thread was first, so that the table may seem full for a moment.
        let count = if cfg!(miri) { 12 } else { 120 };
        let memory = cells(256);
        let table = Scopes::over(&memory, 128, KEY);
        let intern = || (0..count).map(|e| table.intern(1, 1, e, 7).unwrap()).collect::<Vec<_>>();
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(intern)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|scopes| *scopes == all[0]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), count as usize);
        assert_eq!(u64::from(table.taken()), count);
    }

    /// Releases all idle scopes.
    fn release(table: &Scopes<'_>, now_s: u32) -> u32 {
        table.release_idle(&mut 0, table.cells.count(), now_s, 350)
    }

    #[test]
    fn idle_scope_is_released_and_reused() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8, KEY);
        let all: Vec<_> = (0..8).map(|e| table.intern(1, 0, e, 100).unwrap()).collect();
        assert_eq!(table.intern(1, 0, 8, 100), None);
        // Two are looked up again, and a flow keeps a third.
        for (endpoint, now_s) in [(2, 300), (5, 400)] {
            assert_eq!(table.intern(1, 0, endpoint, now_s), Some(all[endpoint as usize]));
        }
        table.keep_alive(all[7], 430);
        assert_eq!((release(&table, 449), release(&table, 450), release(&table, 450)), (0, 5, 0));
        let retained = [2, 5, 7];
        assert_eq!(table.taken(), 3);
        for (endpoint, scope) in all.iter().enumerate() {
            let known = table.endpoint(*scope).is_some();
            assert_eq!(known, retained.contains(&endpoint), "{endpoint}");
        }
        let new: Vec<_> = (20..25).map(|e| table.intern(1, 0, e, 450).unwrap()).collect();
        assert!(new.iter().all(|scope| !retained.iter().any(|e| all[*e] == *scope)));
        assert!(retained.iter().all(|e| table.intern(1, 0, *e as u64, 451) == Some(all[*e])));
        assert_eq!((table.taken(), table.intern(1, 0, 99, 451)), (8, None));
    }

    #[test]
    fn released_scopes_are_reused_indefinitely() {
        let memory = cells(64);
        let table = Scopes::over(&memory, 32, KEY);
        let scope = table.intern(1, 0, 7, 0).unwrap();
        for round in 0..200_u32 {
            let now_s = round * 400;
            for n in 0..31 {
                let endpoint = u64::from(1000 + round * 31 + n);
                assert!(table.intern(1, 0, endpoint, now_s).is_some(), "{round} {n}");
            }
            assert_eq!(table.intern(1, 0, 5, now_s), None);
            assert_eq!(table.intern(1, 0, 7, now_s + 60), Some(scope));
            assert_eq!(release(&table, now_s + 399), 31);
        }
        table.recover();
        assert_eq!(table.taken(), 1);
    }

    #[test]
    fn recovery_completes_killed_release() {
        let memory = cells(16);
        let table = Scopes::over(&memory, 8, KEY);
        let all: Vec<_> = (0..3).map(|e| table.intern(1, 0, e, 100).unwrap()).collect();
        let cell = |n: usize| &memory[all[n] as usize - 1];
        cell(0).last_used.store(RETIRED, Relaxed);
        cell(1).last_used.store(RETIRED, Relaxed);
        cell(1).endpoint.store(BUSY, Relaxed);
        // Until recovery, neither of them is allocated again.
        assert!(!all.contains(&table.intern(1, 0, 0, 101).unwrap()));
        assert_eq!(table.endpoint(all[1]), None);
        table.recover();
        assert_eq!(table.taken(), 2);
        assert_eq!((table.endpoint(all[0]), table.endpoint(all[1])), (None, None));
        assert_eq!(table.intern(1, 0, 2, 101), Some(all[2]));
    }

    /// Lookups race with releases: a scope that was just returned is not given to another endpoint
    /// before the idle time has passed.
    #[test]
    fn concurrent_intern_and_release_never_share_a_scope() {
        let memory = cells(64);
        let table = Scopes::over(&memory, 32, KEY);
        let clock = crate::atomic::AtomicU32::new(1_000);
        let rounds = if cfg!(miri) { 20 } else { 5_000 };
        let intern = |first: u64| {
            for n in 0..rounds {
                let (endpoint, now_s) = (first + n % 24, clock.load(Relaxed));
                let Some(scope) = table.intern(1, 0, endpoint, now_s) else { continue };
                let found = table.endpoint(scope);
                // The clock advances; only then may the scope belong to another endpoint.
                if clock.load(Relaxed).wrapping_sub(now_s) < 350 {
                    assert_eq!(found.map(|e| e.endpoint), Some(endpoint));
                }
            }
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(|| intern(0)), scope.spawn(|| intern(12))];
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                release(&table, clock.fetch_add(50, Relaxed) + 50);
            }
        });
        table.recover();
        assert!(table.taken() <= 32);
    }
}
