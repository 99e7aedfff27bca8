//! Insertion and removal of flows: both entries and the path record, or nothing.

use super::entry::{FRONT, INITIATOR_HIGH};
use super::path::{Forward, GatewayLeg, PathRecord};
use super::step::step;
use super::words::{Options, Words as _};
use super::{Filling, Flows, Hit, MAX_OPTIONS};
use crate::atomic::Ordering::Relaxed;
use crate::record::NONE;
use crate::rows::Numbered;
use core::fmt;
use packet::flow::{FlowKey, Side};

/// A flow to insert.
#[derive(Clone, Copy, Debug)]
pub struct NewFlow {
    /// Key on the gateway's side, in the gateway's scope.
    pub front: FlowKey,
    /// End of `front` that is the initiator.
    pub front_initiator: Side,
    /// Key on the backend's side, and the end in it that is the initiator (or the local address
    /// that replaces the initiator). A key equal to `front` gets no entry of its own. `None` if no
    /// replies with another key arrive here.
    pub back: Option<(FlowKey, Side)>,
    /// How the flow's packets are forwarded.
    pub forward: Forward,
    /// Gateway leg of the flow's first packet.
    pub gateway: GatewayLeg,
    /// Digest by which the caller detects an unchanged leg and options.
    pub digest: u32,
    /// Port map from which `forward.nat_port` was claimed, or [`NONE`].
    pub nat_map: u32,
    /// Idle timeout in seconds after the flow is confirmed; 0 for the protocol's timeout in
    /// `Timeouts`.
    pub idle_s: u32,
}

/// A flow that ended, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedFlow {
    /// Number of the flow's path record, which may belong to another flow by now.
    pub path: u32,
    /// How the flow's packets were forwarded.
    pub forward: Forward,
    /// Scope of the flow's gateway endpoint; 0 if a new flow with the same key began while this
    /// flow was ending.
    pub scope: u32,
}

/// Error of an insertion. The NAT port that the caller claimed remains claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError {
    /// No path record or no index slot for the key is free: raise `region.max_flows`.
    Full,
    /// The bucket stayed locked by others for too long.
    Contended,
    /// The flow exists already, as this path (another lcore inserted it).
    Exists(u32),
    /// The back key belongs to another flow, which has this path.
    BackTaken(u32),
    /// No slab is free for options longer than 48 bytes: raise `region.option_slabs`.
    NoSlab,
    /// The options are longer than 252 bytes.
    OptionsTooLong,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::Full => write!(f, "the flow table is full: raise region.max_flows"),
            InsertError::Contended => write!(f, "the flow's bucket stayed locked for too long"),
            InsertError::Exists(path) => write!(f, "the flow already exists as path {path}"),
            InsertError::BackTaken(path) => {
                write!(f, "the key of the backend's direction is in use by the flow of path {path}")
            }
            InsertError::NoSlab => {
                write!(f, "no option slab is free for gateway options: raise region.option_slabs")
            }
            InsertError::OptionsTooLong => {
                write!(f, "gateway options are longer than {MAX_OPTIONS} bytes")
            }
        }
    }
}

impl core::error::Error for InsertError {}

impl NewFlow {
    /// Returns the key of the backend's side, or the front key if both are equal.
    #[inline(always)]
    fn back_key(&self) -> &FlowKey {
        match &self.back {
            Some((key, _)) => key,
            None => &self.front,
        }
    }
}

/// Hashes of a flow's keys.
struct KeyHashes {
    front: u64,
    /// Equal to `front` if there is no back key.
    back: u64,
    /// Whether the back key differs from the front key.
    has_back: bool,
}

/// Outcome of an insertion as plain integers: the kernel's verifier rejects values that are
/// initialized on some paths only, as the payload of an enum is.
struct InsertOutcome {
    /// [`INSERTED`], or one of the errors below it.
    outcome: u32,
    /// Number of the entry, or of the conflicting path.
    number: u32,
    /// State of the entry: see [`Hit::stamp`].
    stamp: u32,
}

const INSERTED: u32 = 0;
const EXISTS: u32 = 1;
const BACK_TAKEN: u32 = 2;
const NO_SLAB: u32 = 3;
const FULL: u32 = 4;

fn flags(front: bool, initiator: Side) -> u8 {
    let side = if initiator == Side::High { INITIATOR_HIGH } else { 0 };
    (side | if front { FRONT } else { 0 }) as u8
}

impl Flows<'_> {
    /// Inserts a flow with the given gateway options, at most [`MAX_OPTIONS`] bytes, and returns
    /// its front entry. Both entries are inserted, or neither.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn insert(
        &self,
        new: &NewFlow,
        options: Options<'_>,
        now_s: u32,
    ) -> Result<Hit, InsertError> {
        let hashes = [self.index.hash(&new.front), self.index.hash(new.back_key())];
        self.insert_hashed(new, hashes, options, now_s)
    }

    /// As [`Flows::insert`] with the hashes of `new.front` and of `new.back` (or again of
    /// `new.front` if there is no back key).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn insert_hashed(
        &self,
        new: &NewFlow,
        [front, back]: [u64; 2],
        options: Options<'_>,
        now_s: u32,
    ) -> Result<Hit, InsertError> {
        if options.byte_len() > MAX_OPTIONS {
            return Err(InsertError::OptionsTooLong);
        }
        let sides = KeyHashes { front, back, has_back: *new.back_key() != new.front };
        let home = self.index.position(sides.front).home;
        let other = self.index.position(sides.back).home;
        // All of these lines are written below, so they are fetched in parallel. The BPF program
        // has prefetched them by `Flows::prefetch_new`.
        #[cfg(not(target_arch = "bpf"))]
        {
            self.index.prefetch(sides.front);
            self.index.prefetch(sides.back);
            self.prefetch_free();
        }
        // A fixed order prevents deadlock between two lcores.
        let (first, second) = (home.min(other), home.max(other));
        if !self.index.lock(first) {
            return Err(InsertError::Contended);
        }
        if second != first && !self.index.lock(second) {
            self.index.unlock(first);
            return Err(InsertError::Contended);
        }
        step!();
        let begun = self.insert_locked(new, &options, &sides, now_s);
        if second != first {
            self.index.unlock(second);
        }
        step!();
        self.index.unlock(first);
        match begun.outcome {
            INSERTED => {
                let entry = self.index.entry(begun.number).ok_or(InsertError::Full)?;
                Ok(entry.hit(begun.number, begun.stamp))
            }
            EXISTS => Err(InsertError::Exists(begun.number)),
            BACK_TAKEN => Err(InsertError::BackTaken(begun.number)),
            NO_SLAB => Err(InsertError::NoSlab),
            _ => Err(InsertError::Full),
        }
    }

    /// Claims a slot for a key with this hash; returns [`NONE`] if all are taken.
    #[inline(always)]
    fn claim(&self, hash: u64) -> u32 {
        // A separate function in the BPF program, which the verifier checks once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::claim(hash);
        #[cfg(not(target_arch = "bpf"))]
        self.claim_slot(hash)
    }

    /// Body of [`Flows::claim`].
    #[inline(always)]
    pub(crate) fn claim_slot(&self, hash: u64) -> u32 {
        self.index.claim(&self.index.position(hash))
    }

    /// Prefetches the record that is most likely allocated next.
    #[inline(always)]
    pub(super) fn prefetch_free(&self) {
        let free = self.free_paths().and_then(|free| free.peek());
        if let Some(path) = free.and_then(|id| self.paths.row(id)) {
            path.prefetch();
        }
        if let Some(front) = free.and_then(|id| self.fronts.row(id)) {
            super::index::prefetch(front);
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn insert_locked(
        &self,
        new: &NewFlow,
        options: &Options<'_>,
        sides: &KeyHashes,
        now_s: u32,
    ) -> InsertOutcome {
        let no = |outcome, number| InsertOutcome { outcome, number, stamp: 0 };
        if let Some(path) = self.live_path_of(sides.front, &new.front) {
            return no(EXISTS, path);
        }
        if sides.has_back
            && let Some(path) = self.live_path_of(sides.back, new.back_key())
        {
            return no(BACK_TAKEN, path);
        }
        let id = self.take_path();
        let Some(path) = self.paths.row(id) else { return no(FULL, 0) };
        step!();
        path.begin();
        path.slab.store(NONE, Relaxed);
        if !self.ensure_slab(path, options) {
            path.free();
            self.free_paths().into_iter().for_each(|free| free.push(id));
            return no(NO_SLAB, 0);
        }
        step!();
        let entry = self.claim(sides.front);
        step!();
        let back = if sides.has_back { self.claim(sides.back) } else { NONE };
        step!();
        if entry == NONE || (sides.has_back && back == NONE) {
            // No entry has the number `NONE`, so abandoning it does nothing.
            self.index.abandon(entry);
            self.index.abandon(back);
            self.drop_record(id);
            return no(FULL, 0);
        }
        if let Some(front) = self.fronts.row(id) {
            front.set(&new.front, new.front_initiator, new.digest, now_s);
        }
        step!();
        path.set_forward(&Forward { front: entry, ..new.forward });
        path.set_gateway(&new.gateway, options, self.slabs);
        path.back.store(back, Relaxed);
        let nat_map = if new.forward.is_nat() { new.nat_map } else { NONE };
        path.owns.store(nat_map, Relaxed);
        path.idle_s.store(new.idle_s, Relaxed);
        step!();
        path.publish();
        step!();
        if sides.has_back {
            // A back entry needs no digest. Its digest field stores the number of the front entry
            // instead, so that replies can prefetch the front entry.
            let side = new.back.map_or(Side::Low, |(_, side)| side);
            let (key, flags) = (new.back_key(), flags(false, side));
            let filling = Filling { key, path: id, flags, digest: entry, now_s };
            self.index.fill(back, &self.index.position(sides.back), &filling);
        }
        step!();
        let flags = flags(true, new.front_initiator);
        let filling = Filling { key: &new.front, path: id, flags, digest: new.digest, now_s };
        let position = self.index.position(sides.front);
        let stamp = self.index.fill(entry, &position, &filling);
        if let Some(state) = self.own_state() {
            state.live.fetch_add(1, Relaxed);
        }
        InsertOutcome { outcome: INSERTED, number: entry, stamp }
    }

    /// Frees a record that has ended or was never published, and its slab.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn drop_record(&self, id: u32) {
        let Some(path) = self.paths.row(id) else { return };
        let slab = path.slab.swap(NONE, Relaxed);
        if slab != NONE {
            self.free_slabs().into_iter().for_each(|free| free.push(slab));
        }
        path.free();
        step!();
        self.free_paths().into_iter().for_each(|free| free.push(id));
    }

    /// Ends the flow found by `hit`; `None` if it has already ended or stays busy.
    pub fn remove(&self, hit: &Hit) -> Option<EndedFlow> {
        let entry = self.index.entry(hit.entry)?;
        self.end(hit.path, || entry.is_unchanged(hit.stamp))
    }

    /// Returns the path of the flow that has a key. If that flow has ended, its entry is cleared
    /// here, so that the key is free. [`Flows::end`] clears the entry as well, but it may be in
    /// progress in a process that the current packet interrupted.
    ///
    /// A path is live before an entry refers to it, so a path that is not live has ended. A path
    /// record is reused only after its entries were cleared. The clearing changes the entry's
    /// state, so that the entry of a new flow is not cleared here.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn live_path_of(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        // In the BPF program, the search is a function call.
        #[cfg(target_arch = "bpf")]
        if self.index.lacks(hash) {
            return None;
        }
        let hit = self.index.find(hash, key)?;
        if self.paths.row(hit.path).is_some_and(PathRecord::is_live) {
            return Some(hit.path);
        }
        step!();
        self.index.clear_inline(hit.entry, hit.stamp);
        None
    }

    /// Ends the flow of path `id` in this order: readers can no longer read its path, lookups no
    /// longer find it, and its resources (NAT port, slabs, record) are freed. `is_intended` returns
    /// whether the path still belongs to the flow that the caller means. A concurrent packet of the
    /// flow is still forwarded by this path or begins the flow anew, and never waits.
    pub(super) fn end(&self, id: u32, is_intended: impl Fn() -> bool) -> Option<EndedFlow> {
        let path = self.paths.row(id)?;
        step!();
        if !path.end(is_intended) {
            return None;
        }
        step!();
        let forward = path.forward();
        let mut scope = 0;
        for i in [forward.front, path.back.load(Relaxed)] {
            if let Some((key, hit)) = self.index.read(i).filter(|(_, hit)| hit.path == id) {
                scope = if hit.is_front() { key.scope } else { scope };
                self.index.clear(i, hit.stamp);
                step!();
            }
        }
        let owned = path.owns.swap(NONE, Relaxed);
        if owned != NONE && forward.is_nat() {
            self.nat.release(owned, forward.nat_port);
        } else if owned != NONE {
            self.free_slabs().into_iter().for_each(|free| free.push(owned));
        }
        step!();
        self.drop_record(id);
        self.own_state()?.live.fetch_sub(1, Relaxed);
        Some(EndedFlow { path: id, forward, scope })
    }
}
