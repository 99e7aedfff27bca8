//! The poll loop of one lcore on the NIC's queues.

use crate::burst::{Arrival, BURST, Burst};
use crate::dispatch::Exits;
use crate::exception::LcoreRings;
use crate::exchange::{ArmQueues, Mailbox};
use crate::lcore::Lcore;
use config::checked::Idle;
use dpdk_bindings::{Burst as Row, Mbuf};
use rustix::thread::{Timespec, nanosleep, sched_yield, set_current_timer_slack};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::counters::ArmCounter;
use tables::reason::DropReason;

/// The number of attempts to send to a full transmit queue before the packets are dropped. The NIC
/// drains the queue meanwhile; waiting longer would only move the loss to the receive queue.
const TX_TRIES: usize = 16;

/// The maximum number of iterations after the stop, which process the packets received before it.
const FINAL_ITERATIONS: usize = 16;

/// The number of consecutive empty polls before an lcore sleeps, about 10 µs: pauses between the
/// packets of a stream are shorter.
const POLLS_BEFORE_SLEEP: u32 = 64;

/// The duration of a sleep, 50 µs. At 10 Mpps 500 packets arrive meanwhile, half of the default
/// receive queue.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// All queues of one lcore.
pub struct LcoreQueues {
    /// Queues by arm, one or two.
    pub arms: Vec<ArmQueues>,
    /// Requests to give up queues or to take new ones.
    pub mailbox: Arc<Mailbox>,
    /// The lcore's rings of the exception path.
    pub kernel: LcoreRings,
    /// Frames to send, by arm.
    pub rows: Vec<Row<BURST>>,
    /// The maximum number of packets that a poll takes from one source, at most [`BURST`].
    pub burst: usize,
}

/// The exits to the NIC and the kernel, for one burst.
struct NicExits<'a, 'r> {
    queues: &'a mut LcoreQueues,
    lcore: &'a Lcore<'r>,
}

impl Exits<Mbuf> for NicExits<'_, '_> {
    #[inline(always)]
    fn port(&mut self, arm: u8, mut buffer: Mbuf) {
        let at = usize::from(arm).min(self.queues.arms.len() - 1);
        buffer.reset_offloads();
        if !self.queues.arms[at].sends_chains && buffer.segment_count() > 1 && !buffer.linearize() {
            return self.lcore.page().drop(arm, DropReason::NoHeadroom);
        }
        if let Err(buffer) = self.queues.rows[at].push(buffer) {
            self.queues.flush(at, self.lcore);
            // Cannot fail: the row was just emptied.
            let _ = self.queues.rows[at].push(buffer);
        }
    }

    fn kernel(&mut self, arm: u8, buffer: Mbuf) -> bool {
        self.queues.kernel.to_kernel.push((arm, buffer)).is_ok()
    }
}

impl LcoreQueues {
    /// Creates the queues of an lcore. `burst` is the maximum number of packets that a poll takes
    /// from one source.
    pub fn new(
        arms: Vec<ArmQueues>,
        mailbox: Arc<Mailbox>,
        kernel: LcoreRings,
        burst: usize,
    ) -> LcoreQueues {
        let rows = arms.iter().map(|_| Row::new()).collect();
        LcoreQueues { arms, mailbox, kernel, rows, burst }
    }

    /// Sends an arm's row to the NIC, and counts the frames sent and those dropped.
    #[inline(always)]
    fn flush(&mut self, at: usize, lcore: &Lcore<'_>) {
        let row = &mut self.rows[at];
        if row.is_empty() {
            return;
        }
        let (page, arm) = (lcore.page(), at as u8);
        let Some(tx) = &mut self.arms[at].tx else {
            row.drain().for_each(|_| page.drop(arm, DropReason::NicUnavailable));
            return;
        };
        let bytes: u64 = row.as_slice().iter().map(|m| m.len() as u64).sum();
        let mut sent = 0;
        for _ in 0..TX_TRIES {
            sent += tx.send(row);
            if row.is_empty() {
                break;
            }
        }
        let unsent: u64 = row.as_slice().iter().map(|m| m.len() as u64).sum();
        for _ in row.drain() {
            page.drop(arm, DropReason::TxQueueFull);
        }
        page.arm(arm, ArmCounter::TxPackets, sent as u64);
        page.arm(arm, ArmCounter::TxBytes, bytes - unsent);
    }
}

/// Polls until `stop` is set, then processes the packets that were already received, in at most
/// `FINAL_ITERATIONS` iterations.
pub fn run(lcore: &mut Lcore<'_>, queues: &mut LcoreQueues, stop: &AtomicBool, idle: Idle) {
    let mut burst = Burst::default();
    if idle == Idle::Sleep {
        // The kernel's default of 50 µs would double the sleep. If the call fails, the default
        // remains.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
    }
    let mut empty = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        if poll_once(lcore, queues, &mut burst) != 0 {
            empty = 0;
            continue;
        }
        empty = empty.saturating_add(1);
        match idle {
            Idle::Spin => {}
            Idle::Yield => sched_yield(),
            Idle::Sleep if empty < POLLS_BEFORE_SLEEP => {}
            Idle::Sleep => {
                // A signal may end it early, which only causes a premature poll.
                let _ = nanosleep(&SLEEP);
            }
        }
    }
    for _ in 0..FINAL_ITERATIONS {
        if poll_once(lcore, queues, &mut burst) == 0 {
            break;
        }
    }
}

/// Runs one iteration: control, then each packet source once. Returns the number of packets
/// processed.
#[inline(always)]
fn poll_once(lcore: &mut Lcore<'_>, queues: &mut LcoreQueues, burst: &mut Burst<Mbuf>) -> usize {
    lcore.run_periodic();
    if queues.mailbox.is_pending() {
        queues.mailbox.process(&mut queues.arms);
        queues.mailbox.exchange_taps(|taps| lcore.exchange_taps(taps));
    }
    let mut processed = 0;
    let mut row: Row<BURST> = Row::new();
    for arm in 0..queues.arms.len() {
        let Some(rx) = &mut queues.arms[arm].rx else { continue };
        let received = rx.receive_at_most(&mut row, queues.burst);
        if received == 0 {
            continue;
        }
        processed += received;
        for mut mbuf in row.drain() {
            mbuf.prefetch_frame();
            // Without headroom for its tag the frame stays untagged and is treated as such.
            let _ = mbuf.restore_vlan();
            burst.push(mbuf, arm as u8, Arrival::Plain);
        }
        forward(lcore, queues, burst);
    }
    processed + from_kernel(lcore, queues, burst)
}

/// Processes one burst of the kernel's frames.
#[inline(always)]
fn from_kernel(lcore: &mut Lcore<'_>, queues: &mut LcoreQueues, burst: &mut Burst<Mbuf>) -> usize {
    let Some(from_kernel) = &mut queues.kernel.from_kernel else { return 0 };
    while burst.len < queues.burst.min(BURST) {
        let Ok((arm, mbuf)) = from_kernel.pop() else { break };
        burst.push(mbuf, arm, Arrival::Kernel);
    }
    let processed = burst.len;
    if processed > 0 {
        forward(lcore, queues, burst);
    }
    processed
}

#[inline(always)]
fn forward(lcore: &Lcore<'_>, queues: &mut LcoreQueues, burst: &mut Burst<Mbuf>) {
    lcore.forward(burst, &mut NicExits { queues, lcore });
    for at in 0..queues.arms.len() {
        queues.flush(at, lcore);
    }
}
