//! Free lists: stacks of record numbers, shared by all lcores, without locks.
//!
//! The head holds the top number + 1 in its low half (0: none) and a count of changes in its high
//! half, so that a head which went away and came back is told from one which stayed.

use super::step;
use super::unconfirmed::Hands;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::record::NONE;
use crate::rows::{Numbered, Rows, Shared};

/// The flow table's own line.
#[repr(C, align(64))]
pub(crate) struct State {
    pub(super) paths: AtomicU64,
    pub(super) slabs: AtomicU64,
    pub(super) live: AtomicU32,
    pub(super) hands: Hands,
}

const _: () = assert!(size_of::<State>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for State {}

/// A stack over `links`, which say for each free number which one is below it (+ 1; 0: none).
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

    /// The number that will most likely be taken next.
    pub(super) fn peek(&self) -> Option<u32> {
        (self.head.load(Relaxed) as u32).checked_sub(1)
    }

    /// Takes a number; [`NONE`] when all are in use.
    pub(super) fn pop(&self) -> u32 {
        let mut head = self.head.load(Acquire);
        for _ in 0..TRIES {
            // Of nothing, it is the number that no row has.
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

    /// Gives a number back.
    pub(super) fn push(&self, number: u32) {
        let Some(link) = self.links.row(number) else { return };
        let mut head = self.head.load(Relaxed);
        for _ in 0..TRIES {
            link.store(head as u32, Relaxed);
            match self.head.compare_exchange_weak(head, after(head, number + 1), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
impl FreeList<'_> {
    /// Takes all numbers, for tests.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        std::iter::from_fn(|| Some(self.pop()).filter(|number| *number != NONE))
    }

    /// Makes exactly the numbers that `is_free` names free, the lowest on top. For recovery.
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

/// How often the head is tried: each failure means that another lcore was faster. A number that the
/// kernel's program can't give back at so many failures in a row is free again after a recovery.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 32 } else { u32::MAX };

fn after(head: u64, top: u32) -> u64 {
    ((head >> 32) + 1) << 32 | u64::from(top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_to_one_at_a_time() {
        let (count, rounds) = (8, if cfg!(miri) { 50 } else { 20_000 });
        let (head, links) = (AtomicU64::new(0), (0..count).map(|_| AtomicU32::new(0)));
        let links: Vec<_> = links.collect();
        let list = FreeList::new(&head, &links);
        assert_eq!(list.pop(), NONE);
        list.rebuild(|number| number != 3);
        let owned: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let work = || {
            crate::flow::tests::kill::with_pauses(77);
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
}
