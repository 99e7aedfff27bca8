//! Rings of unconfirmed flows in the order in which they began. A flood of spoofed packets creates
//! such flows. They have a budget of their own, so that capacity is left for confirmed flows, and
//! they are evicted first when the table or a backend's NAT ports run short.
//!
//! ```text
//!  ring of slots   [ oldest | ... | newest | next ]
//!  slot            number of a path, and of the flow among those that the record has had
//! ```
//! A new flow takes the next slot of its ring. If the flow that is as many slots back as the
//! budget allows is still unconfirmed, it is the oldest one and is evicted. A slot whose flow was
//! confirmed or has ended is stale and is skipped. Flows whose replies bypass this appliance
//! (direct server return) have a second ring with a smaller budget, because any two packets of a
//! client, even spoofed ones, confirm them.
//!
//! The rings are sized for the largest budget, so that the budgets of an existing region can change
//! without a new layout ([`Flows::set_unconfirmed_budget`]).

#[cfg(not(target_arch = "bpf"))]
use super::budget::{DEFAULT_PERCENT, MAX_PERCENT, budget, unconfirmed_ring_slots};
#[cfg(not(target_arch = "bpf"))]
use super::free::State;
use super::path::PathRecord;
use super::ring_positions::RingPositions;
use super::step::step;
use super::{EndedFlow, Flows, Hit, tcp};
use crate::atomic::Ordering::Relaxed;
#[cfg(target_arch = "bpf")]
use crate::record::NONE;
use crate::rows::Numbered;

/// Maximum number of slots examined for an unconfirmed flow, and of path records for a reset one.
const MAX_EXAMINED: u32 = if cfg!(target_arch = "bpf") { 4 } else { 16 };
/// Number of NAT ports that a new flow examines if all are in use, to find one whose flow can be
/// evicted. It does not depend on the number of NAT addresses. Each port costs at most two lookups,
/// and the next flow examines other ports, so that a higher number would not find a port
/// proportionally sooner.
pub const EVICTION_PORTS: u32 = 2;
/// Distances in slots from the next eviction: of the slot whose path record is prefetched, and of
/// the slot whose entries are prefetched by their numbers in the path record.
const AHEAD: [u32; 2] = [12, 6];

/// Limits of the slots that an lcore reserves at a time: a number of slots, and a divisor of the
/// ring's size.
#[cfg(not(target_arch = "bpf"))]
const RESERVED: (u32, u32) = (64, 1024);

/// Returns the contents of a slot: a path's number + 1 in the low half, and in the high half the
/// number of flows that the record has had.
const fn slot_word(path: u32, count: u32) -> u64 {
    (path as u64 + 1) | (count as u64) << 32
}

impl Flows<'_> {
    /// Puts a new flow into the next slot of its ring. Returns the flow that was evicted for it, if
    /// any.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn add_unconfirmed(&self, hit: &Hit, one_way: bool) -> Option<EndedFlow> {
        let (rings, ring) = (&self.state()?.rings, usize::from(one_way));
        let next = self.next_slot(rings, ring);
        let at = rings.slot_index(ring, next);
        let oldest = next.wrapping_sub(rings.budget(ring));
        step!();
        #[cfg(not(target_arch = "bpf"))]
        self.prefetch_ahead(rings, ring, oldest);
        let ended = self.end_at(rings.slot_index(ring, oldest));
        step!();
        let count = tcp::count(self.paths.row(hit.path)?.tcp.load(Relaxed));
        self.unconfirmed.row(at)?.store(slot_word(hit.path, count), Relaxed);
        ended
    }

    /// Returns the number of the next slot of a ring. An lcore reserves several slots at a time, so
    /// that lcores do not contend for one line. The order of the slots is therefore not exactly
    /// that of the flows; it deviates by at most the reserved slots of each lcore.
    #[inline(always)]
    fn next_slot(&self, rings: &RingPositions, ring: usize) -> u32 {
        #[cfg(not(target_arch = "bpf"))]
        if self.line != 0
            && let Some(own) = self.own_state()
        {
            let [next, end] = own.rings.reserved(ring);
            let mut slot = next.load(Relaxed);
            if slot == end.load(Relaxed) {
                let (max, divisor) = RESERVED;
                let count = (rings.slots(ring) / divisor).clamp(1, max);
                slot = rings.next[ring].fetch_add(count, Relaxed);
                end.store(slot.wrapping_add(count), Relaxed);
            }
            next.store(slot.wrapping_add(1), Relaxed);
            return slot;
        }
        rings.next[ring].fetch_add(1, Relaxed)
    }

    /// Prefetches what the insertion of a flow whose replies pass this appliance writes.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn prefetch_new(&self) {
        self.prefetch_free();
        let rings = self.state().map(|state| &state.rings);
        let slot = rings.map_or(NONE, |rings| rings.slot_index(0, rings.next[0].load(Relaxed)));
        self.unconfirmed.row(slot).into_iter().for_each(super::index::prefetch);
    }

    /// Prefetches what later evictions read and write, in the slots after `oldest`.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    fn prefetch_ahead(&self, rings: &RingPositions, ring: usize, oldest: u32) {
        let [far, near] =
            AHEAD.map(|n| self.path_at(rings.slot_index(ring, oldest.wrapping_add(n))));
        if let Some(path) = far {
            path.prefetch();
        }
        if let Some(path) = near {
            self.index.prefetch_slot(path.front_entry());
            self.index.prefetch_slot(path.back.load(Relaxed));
        }
    }

    /// Evicts the oldest unconfirmed flow of the two-way ring, else of the one-way ring, else a
    /// reset flow. Each search examines a bounded number of slots or path records, so that `None`
    /// does not mean that there is no such flow.
    #[cfg(not(target_arch = "bpf"))]
    pub fn evict_any(&self) -> Option<EndedFlow> {
        self.end_oldest(false).or_else(|| self.end_oldest(true)).or_else(|| self.end_reset())
    }

    /// Evicts this flow if it is unconfirmed or was reset, so that its NAT port can be reused.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn evict(&self, hit: &Hit) -> Option<EndedFlow> {
        let (entry, path) = (self.index.entry(hit.entry)?, self.paths.row(hit.path)?);
        let is_evictable = || {
            let word = path.tcp.load(Relaxed);
            entry.is_unchanged(hit.stamp) && (tcp::is_unconfirmed(word) || tcp::is_reset(word))
        };
        if is_evictable() { self.end(hit.path, is_evictable) } else { None }
    }

    /// Evicts the oldest unconfirmed flow of a ring, within a bounded number of slots.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn end_oldest(&self, one_way: bool) -> Option<EndedFlow> {
        let (rings, ring) = (&self.state()?.rings, usize::from(one_way));
        let (next, budget) = (rings.next[ring].load(Relaxed), rings.budget(ring));
        let mut oldest = rings.oldest[ring].load(Relaxed);
        if next.wrapping_sub(oldest) > budget {
            oldest = next.wrapping_sub(budget);
        }
        let mut ended = None;
        for _ in 0..MAX_EXAMINED {
            if oldest == next || ended.is_some() {
                break;
            }
            ended = self.end_at(rings.slot_index(ring, oldest));
            oldest = oldest.wrapping_add(1);
        }
        rings.oldest[ring].store(oldest, Relaxed);
        ended
    }

    /// Evicts a reset flow, within a bounded number of path records.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn end_reset(&self) -> Option<EndedFlow> {
        let rings = &self.state()?.rings;
        let records = self.paths.count();
        let mut at = rings.record.load(Relaxed);
        let mut ended = None;
        for _ in 0..MAX_EXAMINED {
            if ended.is_some() {
                break;
            }
            at = if at >= records { 0 } else { at };
            let reset = |path: &PathRecord| tcp::is_reset(path.tcp.load(Relaxed));
            if let Some(path) = self.paths.row(at).filter(|path| reset(path)) {
                ended = self.end(at, || reset(path));
            }
            at = at.wrapping_add(1);
        }
        rings.record.store(at, Relaxed);
        ended
    }

    /// Evicts the flow in this slot, if it is unconfirmed.
    #[inline(always)]
    fn end_at(&self, at: u32) -> Option<EndedFlow> {
        let slot = self.unconfirmed.row(at)?.load(Relaxed);
        let (id, count) = ((slot as u32).wrapping_sub(1), (slot >> 32) as u32);
        let path = self.paths.row(id)?;
        let matches = || {
            let word = path.tcp.load(Relaxed);
            tcp::count(word) == count && tcp::is_unconfirmed(word)
        };
        if matches() { self.end(id, matches) } else { None }
    }

    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    fn path_at(&self, at: u32) -> Option<&PathRecord> {
        let slot = self.unconfirmed.row(at)?.load(Relaxed);
        self.paths.row((slot as u32).wrapping_sub(1))
    }

    /// Sets the shares of the table in percent for unconfirmed flows whose replies pass this
    /// appliance and for those whose replies bypass it. Lcores may run meanwhile. If a budget
    /// becomes smaller, older flows beyond it remain until they time out, because evictions begin
    /// at the oldest flow within the budget.
    #[cfg(not(target_arch = "bpf"))]
    pub fn set_unconfirmed_budget(&self, percent: [u32; 2]) {
        let Some(State { rings, .. }) = self.state() else { return };
        for ((stored, percent), max) in rings.budget.iter().zip(percent).zip(MAX_PERCENT) {
            stored.store(budget(self.capacity(), percent.min(max)), Relaxed);
        }
    }

    /// Empties the rings, for recovery. Sets the default budgets if there are none yet.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn clear_rings(&self) {
        self.unconfirmed.iter().for_each(|slot| slot.store(0, Relaxed));
        let Some(State { rings, .. }) = self.state() else { return };
        for (mask, slots) in rings.mask.iter().zip(unconfirmed_ring_slots(self.capacity())) {
            mask.store(slots - 1, Relaxed);
        }
        if rings.budget.iter().any(|budget| budget.load(Relaxed) == 0) {
            self.set_unconfirmed_budget(DEFAULT_PERCENT);
        }
        // In all lines, because the slots reserved by lcores are void as well.
        for State { rings, .. } in self.state {
            rings.next.iter().chain(&rings.oldest).for_each(|position| position.store(0, Relaxed));
        }
    }

    /// Puts a recovered flow into its ring, if it is unconfirmed.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn add_recovered(&self, id: u32, path: &PathRecord) {
        let Some(State { rings, .. }) = self.state() else { return };
        let (word, ring) = (path.tcp.load(Relaxed), usize::from(path.is_one_way()));
        if !tcp::is_unconfirmed(word) {
            return;
        }
        let at = rings.slot_index(ring, rings.next[ring].fetch_add(1, Relaxed));
        if let Some(slot) = self.unconfirmed.get(at as usize) {
            slot.store(slot_word(id, tcp::count(word)), Relaxed);
        }
    }
}
