//! `LcoreStatus`: one status line per lcore, with its liveness and acknowledged generation.

mod join;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::rows::Shared;

/// [`LcoreStatus`] state: no lcore polls.
const ABSENT: u32 = 0;
/// [`LcoreStatus`] state: an lcore polls.
const POLLING: u32 = 1;

/// Status of an lcore, written by that lcore only and read by slowpath. 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct LcoreStatus {
    state: AtomicU32,
    /// Generation that the lcore reads.
    acknowledged: AtomicU32,
    /// Iterations of the poll loop.
    tick: AtomicU64,
    /// 1 if the arm's link is up, else 0.
    links: [AtomicU32; 2],
    /// Epoch of the fastpath to which the lcore belongs.
    epoch: AtomicU32,
    /// CPU on which the lcore runs.
    cpu: AtomicU32,
    /// Latest time passed to [`LcoreStatus::note_polled`], in milliseconds of the region's clock.
    polled_ms: AtomicU64,
}

const _: () = assert!(size_of::<LcoreStatus>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for LcoreStatus {}

impl LcoreStatus {
    /// Marks the lcore as stopped: it no longer reads tables.
    pub fn leave(&self) {
        self.state.store(ABSENT, Ordering::SeqCst);
    }

    /// Acknowledges a generation, between two bursts: the lcore no longer uses older ones.
    #[inline]
    pub fn acknowledge(&self, generation: u32) {
        self.acknowledged.store(generation, Ordering::SeqCst);
    }

    /// Counts an iteration of the poll loop, between two bursts. Plain stores suffice, because the
    /// lcore is the only writer.
    #[inline(always)]
    pub fn count_iteration(&self) {
        let tick = self.tick.load(Ordering::Relaxed).wrapping_add(1);
        self.tick.store(tick, Ordering::Release);
    }

    /// Records the current time, so that a restarted fastpath can determine how long no lcore
    /// polled. The lcore calls it regularly, but not in each iteration.
    #[inline]
    pub fn note_polled(&self, now_ms: u64) {
        self.polled_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Latest recorded time at which the lcore polled, in milliseconds of the region's clock; 0 for
    /// never.
    pub fn polled_ms(&self) -> u64 {
        self.polled_ms.load(Ordering::Relaxed)
    }

    /// Records whether the link of an arm (0 ingress, 1 egress) is up.
    pub fn set_link(&self, arm: usize, up: bool) {
        if let Some(link) = self.links.get(arm) {
            link.store(u32::from(up), Ordering::Relaxed);
        }
    }

    /// Returns whether the lcore polls and belongs to the fastpath with epoch `epoch`.
    pub fn is_live(&self, epoch: Option<u32>) -> bool {
        self.state.load(Ordering::SeqCst) == POLLING
            && epoch == Some(self.epoch.load(Ordering::Relaxed))
    }

    /// The generation that the lcore reads.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Number of iterations of the poll loop, which grows while the lcore runs.
    pub fn tick(&self) -> u64 {
        self.tick.load(Ordering::SeqCst)
    }

    /// Returns whether the link of an arm is up.
    pub fn link(&self, arm: usize) -> bool {
        self.links.get(arm).is_some_and(|link| link.load(Ordering::Relaxed) == 1)
    }

    /// CPU on which the lcore runs.
    pub fn cpu(&self) -> u32 {
        self.cpu.load(Ordering::Relaxed)
    }
}
