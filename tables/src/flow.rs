//! Flow table: both directions of a connection, found by either, preserved across restarts.
//!
//! ```text
//!  packet from the gateway --> front entry --+
//!                                            +--> path record: backend, NAT, gateway leg, options
//!  reply from the backend  --> back entry  --+
//! ```
//! Keys are equal for both directions, so a flow has one entry per *side* of Weir: `front` as the
//! gateway sees it, in the gateway's scope, and `back` as the backend sees it, in the plain scope.
//! There is no back entry if both keys are equal, if replies bypass this appliance, or if they
//! arrive in a tunnel that carries the scope. Both entries are inserted, or neither. All lcores
//! share one table; readers take no locks.
//!
//! In kernel maps, each path has a front record with a copy of its front entry. The XDP programs
//! use it where they have the path's number from a hint, and need no lookup in the index
//! ([`Flows::find_by_path`], [`flow_hints`]).
//!
//! A flow is confirmed once its initiator sends after a reply (`tcp`). A full table rejects new
//! flows and never evicts a confirmed one that was not reset. Unconfirmed flows have a budget of
//! their own and are evicted when space is short (`unconfirmed`). All of this is in the region: a
//! new fastpath calls [`Flows::recover`] and continues with the flows of its predecessor.

mod budget;
mod ends;
mod entry;
pub mod flow_hints;
mod free;
mod front;
mod index;
mod insert;
mod leg_copy;
mod leg_updates;
mod legs;
mod path;
mod path_lookup;
#[cfg(not(target_arch = "bpf"))]
mod recover;
mod ring_positions;
mod step;
#[cfg(not(target_arch = "bpf"))]
mod sweep;
mod tcp;
#[cfg(test)]
mod tests;
mod unconfirmed;
pub(crate) mod words;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::layout::Section;
use crate::nat_port::NatPorts;
use crate::region::Region;
use crate::rows::{Numbered, Rows};
#[cfg(not(target_arch = "bpf"))]
use crate::scope::Scopes;
use free::{FreeList, State};
use front::Front;
#[cfg(not(target_arch = "bpf"))]
use leg_copy::LegCopy;
use packet::addr::Addr;
use packet::flow::FlowKey;

pub use budget::{
    DEFAULT_PERCENT, MAX_PERCENT, MAX_PERCENT_TOGETHER, budget, unconfirmed_ring_slots,
};
pub use entry::Hit;
pub(crate) use entry::{Entry, Filling};
pub use index::IndexError;
#[cfg(target_arch = "bpf")]
pub use index::PendingLookup;
pub use index::prefetch;
pub(crate) use index::{Index, TableKind};
pub use insert::{EndedFlow, InsertError, NewFlow};
pub use legs::LegUpdate;
use path::{ANSWER_TRIES, PathRecord, Slab};
pub use path::{Answer, Forward, GatewayLeg, NO_TUNNEL, NatOrDigest, PathError};
pub use path::{PATH_CROSSES, PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, PATH_RETURN};
pub use path_lookup::{PathCandidate, PathHit, ReplyHit, ReplyPath};
#[cfg(not(target_arch = "bpf"))]
pub use recover::Recovery;
#[cfg(not(target_arch = "bpf"))]
pub use sweep::Snapshot;
pub use tcp::TcpState;
pub use unconfirmed::EVICTION_PORTS;
pub use words::{MAX_OPTIONS, OptionWords, Options};

/// Maximum number of path records that an lcore takes at a time from the shared list or from that
/// of another lcore.
#[cfg(not(target_arch = "bpf"))]
const REFILL: u32 = 32;

/// Both ends of a flow as seen on its gateway's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Address and port of the initiator: the client.
    pub initiator: (Addr, u16),
    /// Address and port of the target: the frontend.
    pub target: (Addr, u16),
    /// Scope of the gateway endpoint.
    pub scope: u32,
    /// IP protocol number.
    pub proto: u8,
}

/// The flow table of a region, shared by all lcores.
#[derive(Clone, Copy)]
pub struct Flows<'r> {
    index: Index<'r>,
    paths: Rows<'r, PathRecord>,
    fronts: Rows<'r, Front>,
    slabs: Rows<'r, Slab>,
    state: Rows<'r, State>,
    /// Index of this lcore's line in `state`; 0, the shared line, if the lcore has none.
    line: u32,
    path_links: Rows<'r, AtomicU32>,
    slab_links: Rows<'r, AtomicU32>,
    /// The BPF program creates this view where it is needed, since its stack is too small for it
    /// here.
    #[cfg(not(target_arch = "bpf"))]
    copies: Rows<'r, LegCopy>,
    unconfirmed: Rows<'r, AtomicU64>,
    nat: NatPorts<'r>,
    #[cfg(not(target_arch = "bpf"))]
    scopes: Scopes<'r>,
}

impl<'r> Flows<'r> {
    /// Returns the flow table of a region. Each fastpath calls [`Flows::recover`] before its first
    /// insert.
    #[inline]
    pub fn new(region: &'r Region) -> Flows<'r> {
        let entries = region.slice(Section::FlowIndex);
        let words = region.slice(Section::FlowLocks);
        Flows {
            index: Index::new(TableKind::Flows, entries, words, region),
            paths: region.slice(Section::Paths),
            fronts: fronts(region),
            slabs: region.slice(Section::OptionSlabs),
            state: region.slice(Section::FlowState),
            line: 0,
            path_links: region.slice(Section::PathLinks),
            slab_links: region.slice(Section::SlabLinks),
            #[cfg(not(target_arch = "bpf"))]
            copies: region.slice(Section::LegCopies),
            unconfirmed: region.slice(Section::Unconfirmed),
            nat: NatPorts::new(region),
            #[cfg(not(target_arch = "bpf"))]
            scopes: Scopes::new(region),
        }
    }

    /// Returns the table for an lcore, with its own path records, counts and ring slots if the
    /// region has a line for it. In kernel maps, all programs and their loader share one line,
    /// because programs do not search other lines for freed records.
    #[cfg(not(target_arch = "bpf"))]
    pub fn of_lcore(region: &'r Region, lcore: u8, epoch: u32) -> Flows<'r> {
        let flows = Flows::new(region).as_owner(lcore, epoch);
        let line = u32::from(lcore) + 1;
        let has_own = line < flows.state.count() && !region.is_in_kernel_maps();
        Flows { line: if has_own { line } else { 0 }, ..flows }
    }

    /// The shared state line.
    #[inline(always)]
    fn state(&self) -> Option<&'r State> {
        self.state.row(0)
    }

    /// The state line in which this lcore counts and from which it takes path records.
    #[inline(always)]
    fn own_state(&self) -> Option<&'r State> {
        self.state.row(self.line)
    }

    /// Free list of the path records that this lcore took or freed.
    #[inline(always)]
    fn free_paths(&self) -> Option<FreeList<'r>> {
        Some(FreeList::new(&self.own_state()?.paths, self.path_links))
    }

    /// Allocates a path record; returns [`NONE`](crate::record::NONE) if all are in use.
    #[inline(always)]
    fn take_path(&self) -> u32 {
        let Some(own) = self.free_paths() else { return crate::record::NONE };
        let id = own.pop();
        #[cfg(not(target_arch = "bpf"))]
        if id == crate::record::NONE {
            return self.take_from_others(own);
        }
        id
    }

    /// As [`Flows::take_path`] if the lcore's list is empty: takes records from the shared list, or
    /// else from another lcore's.
    #[cold]
    #[cfg(not(target_arch = "bpf"))]
    fn take_from_others(&self, own: FreeList<'r>) -> u32 {
        for (line, state) in (0..).zip(self.state) {
            let other = FreeList::new(&state.paths, self.path_links);
            if line != self.line && own.refill(&other, REFILL) {
                // Another lcore may have taken them in the meantime.
                let id = own.pop();
                if id != crate::record::NONE {
                    return id;
                }
            }
        }
        crate::record::NONE
    }

    #[inline(always)]
    fn free_slabs(&self) -> Option<FreeList<'r>> {
        Some(FreeList::new(&self.state()?.slabs, self.slab_links))
    }

    /// Returns the table with the identity that this writer stores in lock words.
    #[inline]
    pub fn as_owner(self, lcore: u8, epoch: u32) -> Flows<'r> {
        Flows { index: self.index.as_owner(lcore, epoch), ..self }
    }

    #[cfg(target_arch = "bpf")]
    pub(crate) fn index(&self) -> &Index<'r> {
        &self.index
    }

    /// Hash of a key, for [`Flows::prefetch`] and [`Flows::find`].
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.index.hash(key)
    }

    /// Prefetches the cache lines that [`Flows::find`] most likely reads.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the entry that [`Flows::insert`] most likely fills for a key that is not in the
    /// table. Reads the line that [`Flows::prefetch`] fetched.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn prefetch_claim(&self, hash: u64) {
        self.index.prefetch_claim(hash);
    }

    /// Prefetches the line that [`Flows::forward`] reads.
    #[inline(always)]
    pub fn prefetch_path(&self, hit: &Hit) {
        if let Some(path) = self.paths.row(hit.path) {
            index::prefetch(path);
        }
    }

    /// Prefetches what a reply needs: three lines of the path, and the front entry for
    /// [`Flows::ends`] (a back entry stores its number as digest).
    #[inline(always)]
    pub fn prefetch_answer(&self, hit: &Hit) {
        if let Some(path) = self.paths.row(hit.path) {
            path.prefetch();
        }
        if let Some(front) = self.index.entry(hit.digest).filter(|_| !hit.is_front()) {
            index::prefetch(front);
        }
    }

    /// Returns the entry of a key. `hash` is its [`Flows::hash`].
    #[inline(always)]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        self.index.find(hash, key)
    }

    /// As [`Flows::find`], with the result written to `out`.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn find_to(&self, hash: u64, key: &FlowKey, out: &mut Option<Hit>) {
        self.index.find_to(hash, key, out);
    }

    /// Begins [`Flows::find_likely`]; callers do other work in between to hide the latency.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn begin_lookup(&self, hash: u64) -> Option<PendingLookup<'r>> {
        self.index.begin_lookup(hash)
    }

    /// As [`Flows::find`], limited to the likely slots: if it returns `None`, the key may still be
    /// in the table.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn find_likely(&self, pending: &PendingLookup<'_>, key: &FlowKey) -> Option<Hit> {
        self.index.find_likely(pending, key)
    }

    /// Returns true if certainly no flow has a key with this hash, except one that begins
    /// concurrently. A false result proves nothing.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn lacks(&self, hash: u64) -> bool {
        self.index.lacks(hash)
    }

    /// Sets the flow's time of last use, unless that is the current second already.
    #[inline(always)]
    pub fn touch(&self, hit: &Hit, now_s: u32) {
        if hit.last_seen_s != now_s
            && let Some(entry) = self.index.entry(hit.entry)
        {
            entry.last_seen_s.store(now_s, Relaxed);
        }
    }

    /// Returns how packets from the initiator are forwarded. Reads line 0 only.
    #[inline(always)]
    pub fn forward(&self, hit: &Hit) -> Result<Forward, PathError> {
        self.consistent(hit, PathRecord::forward)
    }

    /// As [`Flows::forward`], with the result written to `out`, which is unspecified after an
    /// error.
    #[inline(always)]
    pub fn forward_to(&self, hit: &Hit, out: &mut Forward) -> Result<(), PathError> {
        match self.consistent(hit, |path| *out = path.forward()) {
            Err(PathError::Busy) => self.forward_locked(hit, out),
            done => done,
        }
    }

    /// As [`Flows::forward_to`], for a path whose gateway leg is being updated by a writer that
    /// makes no progress: an lcore that the kernel preempted. Except for the leg's own words, line
    /// 0 is constant for the lifetime of the flow.
    #[cold]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn forward_locked(&self, hit: &Hit, out: &mut Forward) -> Result<(), PathError> {
        let path = self.paths.row(hit.path).ok_or(PathError::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(PathError::Gone)?;
        *out = path.forward();
        out.flags &= !PATH_RESPONDER_LEG;
        if !out.is_nat() {
            // These words contain the digest of the responder's leg.
            out.nat_or_digest = NatOrDigest::NONE;
        }
        if path.is_live() && entry.is_unchanged(hit.stamp) { Ok(()) } else { Err(PathError::Gone) }
    }

    /// Writes the whole path, including the gateway leg and its options, to `out`, for packets to
    /// the gateway. The leg is that of the gateway's latest packet in the same direction, or in the
    /// other direction if the gateway sends only that one. Reads all three lines, and a slab if
    /// options are long or the responder's leg differs.
    ///
    /// While the leg is being updated, the result is the previous leg. The BPF program returns
    /// [`PathError::Busy`] then, and calls [`Flows::answer_locked`] in a separate function.
    #[inline(always)]
    pub fn answer(
        &self,
        hit: &Hit,
        from_initiator: bool,
        out: &mut Answer,
    ) -> Result<(), PathError> {
        let copy = |path: &PathRecord| path.answer(from_initiator, self.slabs, out);
        match self.consistent_in(hit, ANSWER_TRIES, copy) {
            #[cfg(not(target_arch = "bpf"))]
            Err(PathError::Busy) => self.answer_locked(hit, from_initiator, out),
            done => done,
        }
    }

    /// Returns initiator and target of the flow as seen on its gateway's side, to which replies are
    /// rewritten.
    #[inline(always)]
    pub fn ends(&self, hit: &Hit) -> Result<Ends, PathError> {
        let front = if hit.is_front() { hit.entry } else { hit.digest };
        let (key, front) = self.index.read(front).ok_or(PathError::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(PathError::Gone)?;
        if front.path != hit.path || !front.is_front() || !entry.is_unchanged(hit.stamp) {
            return Err(PathError::Gone);
        }
        let side = front.initiator();
        Ok(Ends {
            initiator: key.end(side),
            target: key.end(side.other()),
            scope: key.scope,
            proto: key.proto as u8,
        })
    }

    /// Runs `copy` until it read a consistent path, and verifies that the entry of `hit` still
    /// refers to that path. A path record is reused only after its entries were cleared.
    #[inline(always)]
    fn consistent<T>(&self, hit: &Hit, copy: impl FnMut(&PathRecord) -> T) -> Result<T, PathError> {
        self.consistent_in(hit, path::TRIES, copy)
    }

    /// As [`Flows::consistent`], with a limit of `tries`.
    #[inline(always)]
    fn consistent_in<T>(
        &self,
        hit: &Hit,
        tries: u64,
        copy: impl FnMut(&PathRecord) -> T,
    ) -> Result<T, PathError> {
        let path = self.paths.row(hit.path).ok_or(PathError::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(PathError::Gone)?;
        let copied = path.consistent_in(tries, copy)?;
        if entry.is_unchanged(hit.stamp) { Ok(copied) } else { Err(PathError::Gone) }
    }

    /// Returns the [`Hit::stamp`] of the flow's front entry, by which [`Flows::revisit`] finds the
    /// flow again.
    pub fn front_stamp(&self, hit: &Hit) -> Option<u32> {
        let front = if hit.is_front() { hit.entry } else { hit.digest };
        let (_, front) = self.index.read(front)?;
        (front.path == hit.path && front.is_front()).then_some(front.stamp)
    }

    /// Returns the front entry of a flow stored as path and [`Hit::stamp`], if it is still the same
    /// flow.
    pub fn revisit(&self, path: u32, stamp: u32) -> Option<Hit> {
        let record = self.paths.row(path)?;
        let front = record.consistent(PathRecord::forward).ok()?.front;
        let (_, hit) = self.index.read(front)?;
        (hit.path == path && hit.stamp == stamp && hit.is_front()).then_some(hit)
    }

    /// Returns the number of live flows; approximate while lcores begin and end flows.
    #[cfg(not(target_arch = "bpf"))]
    pub fn live(&self) -> u32 {
        let live = self.state.iter().map(|state| state.live.load(Relaxed));
        let sum = live.fold(0, u32::wrapping_add);
        // The decrement at a flow's end may be visible before the increment at its beginning.
        if sum > u32::MAX / 2 { 0 } else { sum }
    }

    /// Maximum number of flows.
    pub fn capacity(&self) -> u32 {
        self.paths.count()
    }
}

/// Returns the front records; none for a region in a file. Only BPF programs read these records,
/// and they use kernel maps, where [`Flows::recover`] rebuilds the records at a takeover. In a
/// file, the records would cost one written cache line per new flow.
#[inline(always)]
fn fronts(region: &Region) -> Rows<'_, Front> {
    #[cfg(not(target_arch = "bpf"))]
    if region.is_in_file() {
        return &[];
    }
    region.slice(Section::PathFronts)
}

/// Access to the locks for tests that kill an lcore while it holds one.
#[cfg(not(target_arch = "bpf"))]
impl<'r> Flows<'r> {
    /// Number of locked buckets.
    pub fn locked(&self) -> u32 {
        self.index.locked()
    }

    /// Lock words, one per bucket, for tests that wait for a lock.
    pub fn lock_words(&self) -> &'r [crate::atomic::AtomicU64] {
        self.index.lock_words()
    }
}
