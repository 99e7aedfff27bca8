//! Lock-free free lists: stacks of record numbers, shared by all lcores.
//!
//! The head holds the top number + 1 in its low half (0 for none) and a count of changes in its
//! high half, which distinguishes a head that was changed and restored from an unchanged one (ABA
//! problem).

use super::ring_positions::RingPositions;
use super::step::step;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::record::NONE;
use crate::rows::{Numbered, Rows, Shared};

/// State line of the flow table. The first line is shared: it has the free slabs, the positions in
/// the rings, and the free path records that no lcore has taken. Each lcore has another line for
/// records that it took or whose flows it ended, so that lcores that begin flows do not contend for
/// one line.
#[repr(C, align(64))]
pub(crate) struct State {
    /// Head of the list of free path records.
    pub(super) paths: AtomicU64,
    /// Head of the list of free slabs, in the shared line only.
    pub(super) slabs: AtomicU64,
    /// Flows begun minus flows ended by this line's lcore. It wraps: only the sum over all lines is
    /// meaningful.
    pub(super) live: AtomicU32,
    /// Positions in the rings of unconfirmed flows; in an lcore's own line, its reserved slots.
    pub(super) rings: RingPositions,
}

const _: () = assert!(size_of::<State>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for State {}

/// A stack of free numbers. For each of them, `links` contains the number below it, plus 1 (0 for
/// none).
#[derive(Clone, Copy)]
pub(super) struct FreeList<'r> {
    head: &'r AtomicU64,
    links: Rows<'r, AtomicU32>,
}

impl<'r> FreeList<'r> {
    #[inline(always)]
    pub(super) fn new(head: &'r AtomicU64, links: Rows<'r, AtomicU32>) -> FreeList<'r> {
        FreeList { head, links }
    }

    /// Returns the number that is most likely taken next.
    pub(super) fn peek(&self) -> Option<u32> {
        (self.head.load(Relaxed) as u32).checked_sub(1)
    }

    /// Takes a number; returns [`NONE`] if the list is empty, or after [`TRIES`] failed attempts.
    pub(super) fn pop(&self) -> u32 {
        let mut head = self.head.load(Acquire);
        for _ in 0..TRIES {
            // For an empty list, this is u32::MAX, which has no row.
            let top = (head as u32).wrapping_sub(1);
            let Some(link) = self.links.row(top) else { return NONE };
            let below = link.load(Relaxed);
            step!();
            match self.head.compare_exchange_weak(head, after(head, below), AcqRel, Acquire) {
                Ok(_) => return top,
                Err(now) => head = now,
            }
        }
        NONE
    }

    /// Adds a number.
    pub(super) fn push(&self, number: u32) {
        self.push_chain(number, number);
    }

    /// Adds the numbers from `first` down to `last`, which are linked already.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn push_chain(&self, first: u32, last: u32) {
        let Some(link) = self.links.row(last) else { return };
        let mut head = self.head.load(Relaxed);
        for _ in 0..TRIES {
            link.store(head as u32, Relaxed);
            match self.head.compare_exchange_weak(head, after(head, first + 1), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
impl FreeList<'_> {
    /// Moves up to `max` numbers from the top of `other` to this list; returns false if `other` is
    /// empty.
    pub(super) fn refill(&self, other: &FreeList<'_>, max: u32) -> bool {
        let mut head = other.head.load(Acquire);
        loop {
            let Some(first) = (head as u32).checked_sub(1) else { return false };
            let (mut last, mut below) = (first, 0);
            for n in 1..=max {
                // A link read while the list changes is discarded, because the exchange then fails.
                below = self.links.row(last).map_or(0, |link| link.load(Relaxed));
                match below.checked_sub(1).filter(|_| n < max) {
                    Some(next) => last = next,
                    None => break,
                }
            }
            step!();
            match other.head.compare_exchange_weak(head, after(head, below), AcqRel, Acquire) {
                Ok(_) => {
                    step!();
                    self.push_chain(first, last);
                    return true;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Empties the list, for recovery.
    pub(super) fn clear(&self) {
        self.head.store(after(self.head.load(Relaxed), 0), Release);
    }

    /// Takes all numbers, for tests.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        std::iter::from_fn(|| Some(self.pop()).filter(|number| *number != NONE))
    }

    /// Rebuilds the list from exactly the numbers for which `is_free` returns true, lowest on top,
    /// for recovery.
    pub(super) fn rebuild(&self, mut is_free: impl FnMut(u32) -> bool) {
        let mut below = 0;
        for number in (0..self.links.len() as u32).rev().filter(|number| is_free(*number)) {
            self.links[number as usize].store(below, Relaxed);
            below = number + 1;
        }
        let head = self.head.load(Relaxed);
        self.head.store(after(head, below), Release);
    }
}

/// Number of attempts to change the head; each failure means that another lcore changed it first.
/// The verifier requires a bound in the BPF program. A number that the program fails to add stays
/// unused until the next recovery.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 32 } else { u32::MAX };

/// Returns the head that follows `head`, with `top` (the top number plus 1) and one more change.
fn after(head: u64, top: u32) -> u64 {
    ((head >> 32) + 1) << 32 | u64::from(top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_allocated_to_one_thread_at_a_time() {
        let (count, rounds) = (8, if cfg!(miri) { 50 } else { 20_000 });
        let (head, links) = (AtomicU64::new(0), (0..count).map(|_| AtomicU32::new(0)));
        let links: Vec<_> = links.collect();
        let list = FreeList::new(&head, &links);
        assert_eq!(list.pop(), NONE);
        list.rebuild(|number| number != 3);
        let owned: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let work = || {
            crate::flow::step::kill::with_pauses(77);
            for _ in 0..rounds {
                let number = list.pop();
                if number != NONE {
                    assert_eq!(owned[number as usize].fetch_add(1, AcqRel), 0);
                    owned[number as usize].fetch_sub(1, AcqRel);
                    list.push(number);
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(work))));
        let mut all: Vec<_> = list.all().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 4, 5, 6, 7]);
    }

    #[test]
    fn a_refill_takes_the_top_in_order_and_leaves_the_rest() {
        let heads = [AtomicU64::new(0), AtomicU64::new(0)];
        let links: Vec<_> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let [own, shared] = heads.each_ref().map(|head| FreeList::new(head, &links));
        shared.rebuild(|number| number != 3);
        assert!(own.refill(&shared, 3) && own.refill(&shared, 1));
        assert_eq!(own.all().collect::<Vec<_>>(), [4, 0, 1, 2]);
        assert!(own.refill(&shared, 100));
        assert_eq!(own.all().collect::<Vec<_>>(), [5, 6, 7]);
        assert!(!own.refill(&shared, 100) && shared.pop() == NONE);
    }

    #[test]
    fn concurrent_refills_allocate_each_number_once() {
        let (count, rounds) = (40, if cfg!(miri) { 50 } else { 20_000 });
        let heads: Vec<_> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let links: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let list = |n: usize| FreeList::new(&heads[n], &links);
        list(3).rebuild(|_| true);
        let owned: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let work = |own: usize| {
            crate::flow::step::kill::with_pauses(77 + own as u32);
            let mut taken = Vec::new();
            for round in 0..rounds {
                let mut number = list(own).pop();
                if number == NONE && (0..4).any(|n| n != own && list(own).refill(&list(n), 5)) {
                    number = list(own).pop();
                }
                if number != NONE {
                    assert_eq!(owned[number as usize].fetch_add(1, AcqRel), 0);
                    taken.push(number);
                }
                if number == NONE || round % 7 == 0 {
                    for number in taken.drain(..) {
                        owned[number as usize].fetch_sub(1, AcqRel);
                        list(own).push(number);
                    }
                }
            }
            taken.drain(..).for_each(|number| list(own).push(number));
        };
        std::thread::scope(|scope| (0..3).for_each(|n| drop(scope.spawn(move || work(n)))));
        let mut all: Vec<_> = (0..4).flat_map(|n| list(n).all().collect::<Vec<_>>()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..count).collect::<Vec<_>>());
    }
}
