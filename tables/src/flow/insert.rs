//! A flow begins and ends: both entries and the path, or nothing.

use super::entry::{FRONT, INITIATOR_HIGH};
use super::path::{Forward, GatewayLeg, Stored};
use super::step::step;
use super::words::{Options, Words as _};
use super::{Filling, Flows, Hit, MAX_OPTIONS};
use crate::atomic::Ordering::Relaxed;
use crate::record::NONE;
use crate::rows::Numbered;
use core::fmt;
use packet::flow::{FlowKey, Side};

/// A flow to be.
#[derive(Clone, Copy, Debug)]
pub struct NewFlow {
    /// Its key as the gateway's side sees it, in the gateway's scope.
    pub front: FlowKey,
    /// Which end of `front` begins.
    pub front_initiator: Side,
    /// Its key as the backend's side sees it, and which end of that one is the initiator (or we in
    /// its place). A key equal to `front` needs no entry of its own.
    pub back: Option<(FlowKey, Side)>,
    /// What becomes of its packets.
    pub forward: Forward,
    /// Where it came from.
    pub gateway: GatewayLeg,
    /// What the caller will recognise an unchanged leg and options by.
    pub digest: u32,
    /// Port map that `forward.nat_port` was claimed from, or [`NONE`].
    pub nat_map: u32,
    /// Seconds for which it may be idle once it is established; 0 for the time that `Timeouts`
    /// gives its protocol.
    pub idle_s: u32,
}

/// A flow that ended, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its path, which may be another flow's by now.
    pub path: u32,
    /// What became of its packets.
    pub forward: Forward,
    /// Its gateway's scope; 0 where the flow began anew before it was at its end.
    pub scope: u32,
}

/// Why a flow was not inserted. The NAT port that the caller claimed is still the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError {
    /// No room: raise `region.max_flows`.
    Full,
    /// Others held the bucket for too long.
    Contended,
    /// The flow is there already (another lcore was faster): find it. Its path.
    Exists(u32),
    /// The back key is another flow's, whose path is named.
    BackTaken(u32),
    /// No room for options of more than 48 bytes: raise `region.option_slabs`.
    NoSlab,
    /// More than 252 bytes of options.
    OptionsTooLong,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::Full => write!(f, "the flow table is full: raise region.max_flows"),
            InsertError::Contended => write!(f, "the flow's bucket stayed locked for too long"),
            InsertError::Exists(path) => write!(f, "the flow exists already, as path {path}"),
            InsertError::BackTaken(path) => {
                write!(f, "the backend's side of the flow is taken by the flow of path {path}")
            }
            InsertError::NoSlab => {
                write!(f, "no room for long gateway options: raise region.option_slabs")
            }
            InsertError::OptionsTooLong => {
                write!(f, "gateway options are longer than {MAX_OPTIONS} bytes")
            }
        }
    }
}

impl core::error::Error for InsertError {}

impl NewFlow {
    /// The key of the backend's side, or the front once more where that is the same.
    #[inline(always)]
    fn back_key(&self) -> &FlowKey {
        match &self.back {
            Some((key, _)) => key,
            None => &self.front,
        }
    }
}

/// Where a flow's entries belong.
struct Sides {
    front: u64,
    back: u64,
    /// Whether the back is another than the front.
    has_back: bool,
}

/// What became of a flow, in plain words: the kernel's verifier takes no value that is set on some
/// ways only, as what an error has in place of a hit.
struct Begun {
    outcome: u32,
    /// The entry, or the path that stands in the way.
    number: u32,
    stamp: u32,
}

const BEGUN: u32 = 0;
const EXISTS: u32 = 1;
const BACK_TAKEN: u32 = 2;
const NO_SLAB: u32 = 3;
const FULL: u32 = 4;

fn flags(front: bool, initiator: Side) -> u8 {
    let side = if initiator == Side::High { INITIATOR_HIGH } else { 0 };
    (side | if front { FRONT } else { 0 }) as u8
}

impl Flows<'_> {
    /// Adds a flow that came with these options of its gateway's, at most [`MAX_OPTIONS`] bytes.
    /// Returns its front entry. Both entries are there afterwards, or neither.
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

    /// As [`Flows::insert`], where the hashes of `new.front` and of `new.back` (or once more of
    /// `new.front`) are known.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn insert_hashed(
        &self,
        new: &NewFlow,
        [front, back]: [u64; 2],
        options: Options<'_>,
        now_s: u32,
    ) -> Result<Hit, InsertError> {
        if options.bytes() > MAX_OPTIONS {
            return Err(InsertError::OptionsTooLong);
        }
        let sides = Sides { front, back, has_back: *new.back_key() != new.front };
        let home = self.index.place(sides.front).home;
        let other = self.index.place(sides.back).home;
        // All of it will be written, so all of it may as well be fetched at once. The kernel's
        // program has asked for it before: `Flows::prefetch_new`.
        #[cfg(not(target_arch = "bpf"))]
        {
            self.index.prefetch(sides.front);
            self.index.prefetch(sides.back);
            self.prefetch_free();
        }
        // Always in the same order, so that two lcores never wait for each other.
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
            BEGUN => {
                let entry = self.index.entry(begun.number).ok_or(InsertError::Full)?;
                Ok(entry.hit(begun.number, begun.stamp))
            }
            EXISTS => Err(InsertError::Exists(begun.number)),
            BACK_TAKEN => Err(InsertError::BackTaken(begun.number)),
            NO_SLAB => Err(InsertError::NoSlab),
            _ => Err(InsertError::Full),
        }
    }

    /// Takes a slot for the key of a hash; [`NONE`] where all are taken.
    #[inline(always)]
    fn claim(&self, hash: u64) -> u32 {
        // The kernel's program searches in a function of its own, which its verifier sees once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::claim(hash);
        #[cfg(not(target_arch = "bpf"))]
        self.claim_slot(hash)
    }

    /// As [`Flows::claim`].
    #[inline(always)]
    pub(crate) fn claim_slot(&self, hash: u64) -> u32 {
        self.index.claim(&self.index.place(hash))
    }

    /// Asks for the record that will most likely be taken.
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
        sides: &Sides,
        now_s: u32,
    ) -> Begun {
        let no = |outcome, number| Begun { outcome, number, stamp: 0 };
        if let Some(path) = self.holder(sides.front, &new.front) {
            return no(EXISTS, path);
        }
        if sides.has_back
            && let Some(path) = self.holder(sides.back, new.back_key())
        {
            return no(BACK_TAKEN, path);
        }
        let id = self.take_path();
        let Some(path) = self.paths.row(id) else { return no(FULL, 0) };
        step!();
        path.begin();
        path.slab.store(NONE, Relaxed);
        if !self.give_slab(path, options) {
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
            // [`NONE`] is no entry's number.
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
            // What a back entry has no use for names the front entry, so that an answer can ask
            // for that line early.
            let side = new.back.map_or(Side::Low, |(_, side)| side);
            let (key, flags) = (new.back_key(), flags(false, side));
            let filling = Filling { key, path: id, flags, digest: entry, now_s };
            self.index.fill(back, &self.index.place(sides.back), &filling);
        }
        step!();
        let flags = flags(true, new.front_initiator);
        let filling = Filling { key: &new.front, path: id, flags, digest: new.digest, now_s };
        let place = self.index.place(sides.front);
        let stamp = self.index.fill(entry, &place, &filling);
        if let Some(state) = self.own_state() {
            state.live.fetch_add(1, Relaxed);
        }
        Begun { outcome: BEGUN, number: entry, stamp }
    }

    /// Gives an ended or never published record back, with its slab.
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

    /// Ends the flow that was found now; none when it had ended already or stays busy.
    pub fn remove(&self, hit: &Hit) -> Option<Ended> {
        let entry = self.index.entry(hit.entry)?;
        self.end(hit.path, || entry.still(hit.stamp))
    }

    /// The path of the flow that has a key. The entry of a flow that has ended is cleared, so that
    /// its key is free: whoever ends it does that too, but may be a process that the packet at hand
    /// interrupted right there.
    ///
    /// A path is live before an entry names it, so one that is not has ended; and its record is
    /// another flow's only after its entries were cleared, which the entry's state tells.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn holder(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        // The kernel's program searches by a call.
        #[cfg(target_arch = "bpf")]
        if self.index.lacks(hash) {
            return None;
        }
        let hit = self.index.find(hash, key)?;
        if self.paths.row(hit.path).is_some_and(Stored::is_live) {
            return Some(hit.path);
        }
        step!();
        self.index.clear_here(hit.entry, hit.stamp);
        None
    }

    /// Ends a flow: first nobody reads its path any more, then nobody finds it, then what it had
    /// (NAT port, slabs, record) is given back. `meant` says whether it is the flow that is meant.
    /// A packet of it that comes meanwhile goes on by it or begins it anew, and waits for nothing.
    pub(super) fn end(&self, id: u32, meant: impl Fn() -> bool) -> Option<Ended> {
        let path = self.paths.row(id)?;
        step!();
        if !path.end(meant) {
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
        Some(Ended { path: id, forward, scope })
    }
}
