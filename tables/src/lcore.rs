//! One status line per lcore: whether it polls, which generation it has switched to.

mod join;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::rows::Shared;

/// [`LcoreStatus`] state: nobody polls here.
const ABSENT: u32 = 0;
/// [`LcoreStatus`] state: an lcore polls.
const POLLING: u32 = 1;

/// Written by its lcore alone, read by slowpath. 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct LcoreStatus {
    state: AtomicU32,
    /// The generation that it reads.
    acknowledged: AtomicU32,
    /// Turns of the poll loop.
    tick: AtomicU64,
    /// 1 where the arm's link is up.
    links: [AtomicU32; 2],
    /// The fastpath's epoch in which it polls.
    epoch: AtomicU32,
    /// CPU that it runs on.
    cpu: AtomicU32,
    /// Milliseconds of the region's clock when it last polled.
    polled_ms: AtomicU64,
}

const _: () = assert!(size_of::<LcoreStatus>() == 64);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for LcoreStatus {}

impl LcoreStatus {
    /// The lcore ends: it reads nothing any more.
    pub fn leave(&self) {
        self.state.store(ABSENT, Ordering::SeqCst);
    }

    /// Between two bursts: the lcore has let go of all older generations.
    #[inline]
    pub fn acknowledge(&self, generation: u32) {
        self.acknowledged.store(generation, Ordering::SeqCst);
    }

    /// Between two bursts: one more turn. Plain stores: the lcore is the only writer.
    #[inline(always)]
    pub fn turn(&self) {
        let turn = self.tick.load(Ordering::Relaxed).wrapping_add(1);
        self.tick.store(turn, Ordering::Release);
    }

    /// Now and then: when the lcore polled, so that a successor can tell how long nobody did.
    #[inline]
    pub fn note_polled(&self, now_ms: u64) {
        self.polled_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When it last polled, in milliseconds of the region's clock; 0 for never.
    pub fn polled_ms(&self) -> u64 {
        self.polled_ms.load(Ordering::Relaxed)
    }

    /// Says whether an arm's link (0 ingress, 1 egress) is up.
    pub fn set_link(&self, arm: usize, up: bool) {
        if let Some(link) = self.links.get(arm) {
            link.store(u32::from(up), Ordering::Relaxed);
        }
    }

    /// Whether the lcore polls in the fastpath's epoch `epoch`.
    pub fn is_live(&self, epoch: Option<u32>) -> bool {
        self.state.load(Ordering::SeqCst) == POLLING
            && epoch == Some(self.epoch.load(Ordering::Relaxed))
    }

    /// The generation that it reads.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Turns of its poll loop; grows while it is alive.
    pub fn tick(&self) -> u64 {
        self.tick.load(Ordering::SeqCst)
    }

    /// Whether an arm's link is up.
    pub fn link(&self, arm: usize) -> bool {
        self.links.get(arm).is_some_and(|link| link.load(Ordering::Relaxed) == 1)
    }

    /// CPU that it runs on.
    pub fn cpu(&self) -> u32 {
        self.cpu.load(Ordering::Relaxed)
    }
}
