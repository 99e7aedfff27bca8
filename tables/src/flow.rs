//! Flows: both directions of a connection, found by either, kept across a restart.
//!
//! ```text
//!  packet from the gateway --> front entry --+
//!                                            +--> path record: backend, NAT, gateway leg, options
//!  answer from the backend --> back entry  --+
//! ```
//! Keys are the same in both directions, so a flow has one entry per *side* of Weir: `front` as the
//! gateway sees it, in the gateway's scope, and `back` as the backend sees it, in the plain scope.
//! Where both would be the same key, or answers come back in a tunnel that carries the scope, there
//! is no back entry. Both are inserted or neither. All lcores share one table; readers lock none.
//!
//! Beside a path stands what its front entry says, for those who know the path and need no look-up
//! ([`Flows::meet`], [`lately`]).
//!
//! A full table refuses new flows and never throws out a confirmed one; flows that nobody has
//! confirmed yet have a budget of their own and end where room is short (`unconfirmed`). All of it
//! is in the region: a new fastpath calls [`Flows::recover`] and goes on with the flows of the last
//! one.

mod budget;
mod copies;
mod ends;
mod entry;
mod free;
mod front;
mod hands;
mod index;
mod insert;
pub mod lately;
mod leg_copy;
mod legs;
mod meet;
mod path;
#[cfg(not(target_arch = "bpf"))]
mod recover;
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

pub use budget::{DEFAULT_PERCENT, MAX_PERCENT, MAX_PERCENT_TOGETHER, budget, places};
pub use entry::Hit;
pub(crate) use entry::{Entry, Filling};
#[cfg(target_arch = "bpf")]
pub use index::Asked;
pub use index::NotKept;
pub use index::prefetch;
pub(crate) use index::{Index, Which};
pub use insert::{Ended, InsertError, NewFlow};
pub use legs::LegUpdate;
pub use meet::{Answered, Likely, Met, Usual};
use path::{ANSWER_TRIES, Slab, Stored};
pub use path::{Answer, Forward, GatewayLeg, Missed, NO_TUNNEL, NatOrDigest};
pub use path::{PATH_CROSSES, PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, PATH_RETURN};
#[cfg(not(target_arch = "bpf"))]
pub use recover::Recovery;
#[cfg(not(target_arch = "bpf"))]
pub use sweep::Snapshot;
pub use tcp::TcpState;
pub use unconfirmed::PORTS;
pub use words::{MAX_OPTIONS, OptionRoom, Options};

/// How many path records an lcore takes at a time.
#[cfg(not(target_arch = "bpf"))]
const REFILL: u32 = 32;

/// The two ends of a flow as its gateway's side sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Who began: the client.
    pub initiator: (Addr, u16),
    /// Whom it asked for: the frontend.
    pub target: (Addr, u16),
    /// The gateway's scope.
    pub scope: u32,
    /// IP protocol.
    pub proto: u8,
}

/// The flow table of a region, shared by all lcores.
#[derive(Clone, Copy)]
pub struct Flows<'r> {
    index: Index<'r>,
    paths: Rows<'r, Stored>,
    fronts: Rows<'r, Front>,
    slabs: Rows<'r, Slab>,
    state: Rows<'r, State>,
    /// Which line of `state` is this lcore's own; 0, the shared one, without
    /// [`Flows::of_lcore`].
    line: u32,
    path_links: Rows<'r, AtomicU32>,
    slab_links: Rows<'r, AtomicU32>,
    /// The kernel's program takes them where it needs them: its stack has no room for one more.
    #[cfg(not(target_arch = "bpf"))]
    copies: Rows<'r, LegCopy>,
    unconfirmed: Rows<'r, AtomicU64>,
    nat: NatPorts<'r>,
    #[cfg(not(target_arch = "bpf"))]
    scopes: Scopes<'r>,
}

impl<'r> Flows<'r> {
    /// The table of a region. Before the first insert of a process: [`Flows::recover`].
    #[inline]
    pub fn new(region: &'r Region) -> Flows<'r> {
        let entries = region.slice(Section::FlowIndex);
        let words = region.slice(Section::FlowLocks);
        Flows {
            index: Index::new(Which::Flows, entries, words, region),
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

    /// The table for an lcore, with path records, counts and ring slots of its own where the region
    /// has a line for it. In kernel maps programs and their loader share one line: what one of them
    /// gave back, the other would not find elsewhere.
    #[cfg(not(target_arch = "bpf"))]
    pub fn of_lcore(region: &'r Region, lcore: u8, epoch: u32) -> Flows<'r> {
        let flows = Flows::new(region).as_owner(lcore, epoch);
        let line = u32::from(lcore) + 1;
        let has_own = line < flows.state.count() && !region.is_in_kernel_maps();
        Flows { line: if has_own { line } else { 0 }, ..flows }
    }

    /// The line that all share.
    #[inline(always)]
    fn state(&self) -> Option<&'r State> {
        self.state.row(0)
    }

    /// The line that this lcore counts in and takes path records from.
    #[inline(always)]
    fn own_state(&self) -> Option<&'r State> {
        self.state.row(self.line)
    }

    /// The path records that this lcore took or gave back.
    #[inline(always)]
    fn free_paths(&self) -> Option<FreeList<'r>> {
        Some(FreeList::new(&self.own_state()?.paths, self.path_links))
    }

    /// Takes a path record; [`NONE`](crate::record::NONE) when all are in use.
    #[inline(always)]
    fn take_path(&self) -> u32 {
        let Some(own) = self.free_paths() else { return crate::record::NONE };
        let id = own.pop();
        #[cfg(not(target_arch = "bpf"))]
        if id == crate::record::NONE {
            return self.take_elsewhere(own);
        }
        id
    }

    /// As [`Flows::take_path`], where the lcore has none of its own: some of those that all share,
    /// else some of another lcore's.
    #[cold]
    #[cfg(not(target_arch = "bpf"))]
    fn take_elsewhere(&self, own: FreeList<'r>) -> u32 {
        for (line, state) in (0..).zip(self.state) {
            let other = FreeList::new(&state.paths, self.path_links);
            if line != self.line && own.refill(&other, REFILL) {
                // Another lcore may have taken all of them again.
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

    /// The same table for one writer: what its lock words say.
    #[inline]
    pub fn as_owner(self, lcore: u8, epoch: u32) -> Flows<'r> {
        Flows { index: self.index.as_owner(lcore, epoch), ..self }
    }

    #[cfg(target_arch = "bpf")]
    pub(crate) fn index(&self) -> &Index<'r> {
        &self.index
    }

    /// The hash that `prefetch` and `find` want.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.index.hash(key)
    }

    /// Asks for the cache lines that [`Flows::find`] will most likely read.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Asks for the entry that [`Flows::insert`] will most likely fill for a key that is not there;
    /// reads the line that [`Flows::prefetch`] asked for.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn prefetch_claim(&self, hash: u64) {
        self.index.prefetch_claim(hash);
    }

    /// Asks for the line that [`Flows::forward`] reads.
    #[inline(always)]
    pub fn prefetch_path(&self, hit: &Hit) {
        if let Some(path) = self.paths.row(hit.path) {
            index::prefetch(path);
        }
    }

    /// Asks for what an answer reads: three lines of the path, and the front entry for
    /// [`Flows::ends`] (which the digest of a back entry names).
    #[inline(always)]
    pub fn prefetch_answer(&self, hit: &Hit) {
        if let Some(path) = self.paths.row(hit.path) {
            path.prefetch();
        }
        if let Some(front) = self.index.entry(hit.digest).filter(|_| !hit.is_front()) {
            index::prefetch(front);
        }
    }

    /// The entry of a key. `hash` is [`Flows::hash`] of it.
    #[inline(always)]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<Hit> {
        self.index.find(hash, key)
    }

    /// As [`Flows::find`], written where it shall stand.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn find_to(&self, hash: u64, key: &FlowKey, out: &mut Option<Hit>) {
        self.index.find_to(hash, key, out);
    }

    /// Begins [`Flows::find_likely`]; as much as possible should be done in between.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn ask(&self, hash: u64) -> Option<Asked<'r>> {
        self.index.ask(hash)
    }

    /// As [`Flows::find`], if it is found at once: what is not may still be there.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn find_likely(&self, asked: &Asked<'_>, key: &FlowKey) -> Option<Hit> {
        self.index.find_likely(asked, key)
    }

    /// Whether no flow has a key with this hash, but for one that begins at this moment.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn lacks(&self, hash: u64) -> bool {
        self.index.lacks(hash)
    }

    /// The flow is in use. Writes only when the second changed since.
    #[inline(always)]
    pub fn touch(&self, hit: &Hit, now_s: u32) {
        if hit.last_seen_s != now_s
            && let Some(entry) = self.index.entry(hit.entry)
        {
            entry.last_seen_s.store(now_s, Relaxed);
        }
    }

    /// What becomes of packets from the initiator. Reads line 0 only.
    #[inline(always)]
    pub fn forward(&self, hit: &Hit) -> Result<Forward, Missed> {
        self.consistent(hit, Stored::forward)
    }

    /// As [`Flows::forward`], written where it shall stand; after an error it says nothing of use.
    #[inline(always)]
    pub fn forward_to(&self, hit: &Hit, out: &mut Forward) -> Result<(), Missed> {
        match self.consistent(hit, |path| *out = path.forward()) {
            Err(Missed::Busy) => self.forward_held(hit, out),
            done => done,
        }
    }

    /// As [`Flows::forward_to`], of a path whose gateway leg somebody is changing and does not get
    /// on with: an lcore that the kernel took off its CPU. But for the leg's own words, line 0
    /// stays as it is from the flow's begin to its end.
    #[cold]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn forward_held(&self, hit: &Hit, out: &mut Forward) -> Result<(), Missed> {
        let path = self.paths.row(hit.path).ok_or(Missed::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(Missed::Gone)?;
        *out = path.forward();
        out.flags &= !PATH_RESPONDER_LEG;
        if !out.is_nat() {
            // The words of its digest.
            out.nat_or_digest = NatOrDigest::NONE;
        }
        if path.is_live() && entry.still(hit.stamp) { Ok(()) } else { Err(Missed::Gone) }
    }

    /// Also where the flow came from and the gateway's options, for what goes to the gateway: as
    /// the latest packet of the same direction had them, if the gateway brings that direction, and
    /// else the other. Reads all three lines, and a slab where the options are long or the
    /// responder's leg is another. While the leg is being changed, it is the one of before; the
    /// kernel's program asks
    /// [`Flows::answer_held`] for that, in a function of its own.
    #[inline(always)]
    pub fn answer(&self, hit: &Hit, from_initiator: bool, out: &mut Answer) -> Result<(), Missed> {
        let copy = |path: &Stored| path.answer(from_initiator, self.slabs, out);
        match self.consistent_in(hit, ANSWER_TRIES, copy) {
            #[cfg(not(target_arch = "bpf"))]
            Err(Missed::Busy) => self.answer_held(hit, from_initiator, out),
            done => done,
        }
    }

    /// Who began the flow and whom it asked for, as its gateway's side sees it: what an answer is
    /// rewritten to.
    #[inline(always)]
    pub fn ends(&self, hit: &Hit) -> Result<Ends, Missed> {
        let front = if hit.is_front() { hit.entry } else { hit.digest };
        let (key, front) = self.index.read(front).ok_or(Missed::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(Missed::Gone)?;
        if front.path != hit.path || !front.is_front() || !entry.still(hit.stamp) {
            return Err(Missed::Gone);
        }
        let side = front.initiator();
        Ok(Ends {
            initiator: key.end(side),
            target: key.end(side.other()),
            scope: key.scope,
            proto: key.proto as u8,
        })
    }

    /// Runs `copy` until it saw one state of the path, and makes sure that the entry found still
    /// refers to it: a path is given to another flow only after its entries ended.
    #[inline(always)]
    fn consistent<T>(&self, hit: &Hit, copy: impl FnMut(&Stored) -> T) -> Result<T, Missed> {
        self.consistent_in(hit, path::TRIES, copy)
    }

    /// As [`Flows::consistent`], in so many tries.
    #[inline(always)]
    fn consistent_in<T>(
        &self,
        hit: &Hit,
        tries: u64,
        copy: impl FnMut(&Stored) -> T,
    ) -> Result<T, Missed> {
        let path = self.paths.row(hit.path).ok_or(Missed::Gone)?;
        let entry = self.index.entry(hit.entry).ok_or(Missed::Gone)?;
        let copied = path.consistent_in(tries, copy)?;
        if entry.still(hit.stamp) { Ok(copied) } else { Err(Missed::Gone) }
    }

    /// The [`Hit::stamp`] of the flow's front entry, by which [`Flows::revisit`] finds it again.
    pub fn front_stamp(&self, hit: &Hit) -> Option<u32> {
        let front = if hit.is_front() { hit.entry } else { hit.digest };
        let (_, front) = self.index.read(front)?;
        (front.path == hit.path && front.is_front()).then_some(front.stamp)
    }

    /// The front entry of a flow that was remembered by path and [`Hit::stamp`], if it is still the
    /// same flow.
    pub fn revisit(&self, path: u32, stamp: u32) -> Option<Hit> {
        let record = self.paths.row(path)?;
        let front = record.consistent(Stored::forward).ok()?.front;
        let (_, hit) = self.index.read(front)?;
        (hit.path == path && hit.stamp == stamp && hit.is_front()).then_some(hit)
    }

    /// How many flows there are; off by those of a moment while lcores begin and end flows.
    #[cfg(not(target_arch = "bpf"))]
    pub fn live(&self) -> u32 {
        let live = self.state.iter().map(|state| state.live.load(Relaxed));
        let sum = live.fold(0, u32::wrapping_add);
        // A flow's end may be seen without its begin.
        if sum > u32::MAX / 2 { 0 } else { sum }
    }

    /// How many there may be.
    pub fn capacity(&self) -> u32 {
        self.paths.count()
    }
}

/// What stands beside paths. Only the kernel's programs read it, and [`Flows::recover`] writes it
/// anew where they take a region over: in a file it would cost each new flow a line.
#[inline(always)]
fn fronts(region: &Region) -> Rows<'_, Front> {
    #[cfg(not(target_arch = "bpf"))]
    if region.is_in_file() {
        return &[];
    }
    region.slice(Section::PathFronts)
}

/// For tests that kill an lcore in the midst.
#[cfg(not(target_arch = "bpf"))]
impl<'r> Flows<'r> {
    /// How many buckets some lcore holds locked at this moment, for tests that kill it there.
    pub fn locked(&self) -> u32 {
        self.index.locked()
    }

    /// The words that are locked, one for each bucket, for tests that wait for it.
    pub fn lock_words(&self) -> &'r [crate::atomic::AtomicU64] {
        self.index.lock_words()
    }
}
