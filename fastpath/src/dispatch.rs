//! The end of a turn: counts every packet of a burst once, and hands it to its exit.

use crate::burst::{Arrival, Burst, Work};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Reply, Verdict};
use tables::counters::{ArmCounter, VerdictCounter};
use tables::reason::DropReason;

/// Where packets leave: the NIC's queues and the exception port, or a test's lists.
pub trait Exits<B> {
    /// Out of an arm's port. What the NIC does not take is counted by the implementation.
    fn port(&mut self, arm: u8, buffer: B);

    /// To the kernel; false when there was no room, and the buffer is gone.
    fn kernel(&mut self, arm: u8, buffer: B) -> bool;
}

/// Counts and sends what the pipeline decided; the burst is empty afterwards.
pub fn dispatch<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>, exits: &mut impl Exits<B>) {
    for (buffer, work) in burst.buffers[..burst.len].iter_mut().zip(&burst.work) {
        let Some(buffer) = buffer.take() else { continue };
        let bytes = buffer.len() as u64;
        let page = lcore.page();
        match (work.verdict, work.exit) {
            (Verdict::Drop(reason), _) => lcore.count_drop(work, reason),
            (verdict, Exit::Port(arm)) => {
                page.verdict(counter_of(verdict), 1);
                if let Verdict::Reply(what) = verdict {
                    count_error(work, lcore, what, bytes);
                }
                lcore.count_passage(work, bytes);
                exits.port(arm, buffer);
            }
            (verdict, Exit::Kernel(arm)) => {
                page.verdict(counter_of(verdict), 1);
                if exits.kernel(arm, buffer) {
                    page.arm(arm, ArmCounter::ToKernelPackets, 1);
                    page.arm(arm, ArmCounter::ToKernelBytes, bytes);
                } else {
                    lcore.count_drop(work, DropReason::PuntFull);
                }
            }
            // A packet that no stage decided on would be lost silently; it is counted instead.
            (_, Exit::None) => lcore.count_drop(work, DropReason::Ignored),
        }
    }
    burst.len = 0;
}

/// Counts what came in, before any stage looks at it.
pub fn count_arrivals<B: Buffer>(burst: &Burst<B>, lcore: &Lcore<'_>) {
    // By arm, and by whether the kernel sent it; summed up here, so that the page is written once.
    let mut sums = [[(0, 0); 2]; 2];
    for (buffer, work) in burst.buffers[..burst.len].iter().zip(&burst.work) {
        let Some(buffer) = buffer else { continue };
        let kernel = usize::from(work.front.arrival == Arrival::Kernel);
        let sum = &mut sums[usize::from(work.arm & 1)][kernel];
        sum.0 += 1;
        sum.1 += buffer.len() as u64;
    }
    for (arm, [wire, kernel]) in (0..).zip(sums) {
        let page = lcore.page();
        if wire.0 > 0 {
            page.arm(arm, ArmCounter::RxPackets, wire.0);
            page.arm(arm, ArmCounter::RxBytes, wire.1);
        }
        if kernel.0 > 0 {
            page.arm(arm, ArmCounter::FromKernelPackets, kernel.0);
            page.arm(arm, ArmCounter::FromKernelBytes, kernel.1);
        }
    }
}

/// An ICMP error was sent: the packet that it is about counts as dropped, the error as made here.
fn count_error(work: &Work, lcore: &Lcore<'_>, what: Reply, bytes: u64) {
    let reason = match what {
        Reply::Echo => return,
        Reply::TooBig(_) => DropReason::TooBigAnswered,
        Reply::TimeExceeded => DropReason::TtlExceeded,
    };
    lcore.count_drop(work, reason);
    lcore.page().arm(work.arm, ArmCounter::OriginatedPackets, 1);
    lcore.page().arm(work.arm, ArmCounter::OriginatedBytes, bytes);
}

fn counter_of(verdict: Verdict) -> VerdictCounter {
    match verdict {
        Verdict::Return => VerdictCounter::Return,
        Verdict::Nat => VerdictCounter::Nat,
        Verdict::Tunnel | Verdict::Probe => VerdictCounter::Tunnel,
        Verdict::Answer => VerdictCounter::Answer,
        Verdict::Punt => VerdictCounter::Punt,
        Verdict::Reply(_) => VerdictCounter::Reply,
        Verdict::Forward => VerdictCounter::Forward,
        Verdict::Undecided | Verdict::Drop(_) => VerdictCounter::Drop,
    }
}
