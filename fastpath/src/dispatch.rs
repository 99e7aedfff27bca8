//! The end of an iteration: counts the verdict of every packet of a burst and passes the packet to
//! its exit.

use crate::burst::{Arrival, Burst, PacketState};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Reply, Verdict};
use tables::counters::{ArmCounter, VerdictCounter};
use tables::reason::DropReason;

/// The destinations of packets: NIC queues and the exception port, or lists in tests.
pub trait Exits<B> {
    /// Sends a packet through an arm's port. The implementation counts packets that the NIC
    /// rejects.
    fn port(&mut self, arm: u8, buffer: B);

    /// Passes a packet to the kernel. Returns false if the ring is full; the buffer is then freed.
    fn kernel(&mut self, arm: u8, buffer: B) -> bool;
}

/// Counts and sends the packets of a burst according to their verdicts, and empties the burst.
pub fn dispatch<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>, exits: &mut impl Exits<B>) {
    let (mut buffers, mut states) = (&mut burst.buffers[..burst.len], &burst.packets[..burst.len]);
    while let Some(first) = states.first() {
        // Most packets of a burst have the same verdict and exit as the preceding one: these are
        // counted together.
        let (verdict, exit) = (first.verdict, first.exit);
        let alike = |pkt: &&PacketState| pkt.verdict == verdict && pkt.exit == exit;
        let run_len = states.iter().take_while(alike).count();
        let (these, others) = buffers.split_at_mut(run_len);
        let packets = these.iter_mut().zip(states);
        let packets = packets.filter_map(|(buffer, pkt)| Some((buffer.take()?, pkt)));
        match exit {
            Exit::Port(arm) => to_port(packets, verdict, arm, lcore, exits),
            Exit::Kernel(arm) => to_kernel(packets, verdict, arm, lcore, exits),
            Exit::None => packets.for_each(|(_, pkt)| {
                lcore.count_drop(pkt, drop_reason(verdict));
            }),
        }
        (buffers, states) = (others, &states[run_len..]);
    }
    burst.len = 0;
}

/// Returns the drop reason of a packet without an exit. A packet on which no stage decided, or
/// whose verdict no stage carried out, indicates a bug in Weir and has its own reason.
#[inline(always)]
pub(crate) fn drop_reason(verdict: Verdict) -> DropReason {
    match verdict {
        Verdict::Drop(reason) => reason,
        Verdict::Undecided
        | Verdict::Return
        | Verdict::Nat
        | Verdict::Tunnel
        | Verdict::Answer
        | Verdict::Redirect
        | Verdict::Punt
        | Verdict::Reply(_)
        | Verdict::Forward
        | Verdict::Probe => DropReason::Undecided,
    }
}

#[inline(always)]
fn to_port<'w, B: Buffer>(
    packets: impl Iterator<Item = (B, &'w PacketState)>,
    verdict: Verdict,
    arm: u8,
    lcore: &Lcore<'_>,
    exits: &mut impl Exits<B>,
) {
    let mut count = 0;
    for (buffer, pkt) in packets {
        let bytes = buffer.len() as u64;
        if let Verdict::Reply(reply) = verdict {
            count_error(pkt, lcore, reply, bytes);
        }
        lcore.count_passage(pkt, bytes);
        exits.port(arm, buffer);
        count += 1;
    }
    lcore.page().verdict(counter_of(verdict), count);
}

/// Passes packets to the kernel. A packet that finds the ring full is counted both by its verdict
/// and as dropped.
#[cold]
fn to_kernel<'w, B: Buffer>(
    packets: impl Iterator<Item = (B, &'w PacketState)>,
    verdict: Verdict,
    arm: u8,
    lcore: &Lcore<'_>,
    exits: &mut impl Exits<B>,
) {
    let page = lcore.page();
    for (buffer, pkt) in packets {
        let bytes = buffer.len() as u64;
        page.verdict(counter_of(verdict), 1);
        if exits.kernel(arm, buffer) {
            page.arm(arm, ArmCounter::ToKernelPackets, 1);
            page.arm(arm, ArmCounter::ToKernelBytes, bytes);
            lcore.count_passage(pkt, bytes);
        } else {
            lcore.count_drop(pkt, DropReason::PuntFull);
        }
    }
}

/// Counts the arrival of a burst, before any stage examines it.
#[inline(always)]
pub fn count_arrivals<B: Buffer>(burst: &Burst<B>, lcore: &Lcore<'_>) {
    let packets = burst.buffers[..burst.len].iter().zip(&burst.packets);
    let packets = packets.filter_map(|(buffer, pkt)| Some((buffer.as_ref()?, pkt)));
    // Counted by arm, and by whether the kernel sent the packet. If these are equal for all
    // packets, as usual, the counters are updated once.
    let first = &burst.packets[0];
    let (mut count, mut bytes, mut differs) = (0, 0, 0);
    for (buffer, pkt) in packets.clone() {
        count += 1;
        bytes += buffer.len() as u64;
        differs |= pkt.arm ^ first.arm | pkt.headers.arrival as u8 ^ first.headers.arrival as u8;
    }
    if differs == 0 {
        return count_arrived(first, count, bytes, lcore);
    }
    packets.for_each(|(buffer, pkt)| count_arrived(pkt, 1, buffer.len() as u64, lcore));
}

/// Counts packets that arrived on the arm of `pkt` and from the same side, NIC or kernel.
fn count_arrived(pkt: &PacketState, packets: u64, bytes: u64, lcore: &Lcore<'_>) {
    let (of_packets, of_bytes) = match pkt.headers.arrival {
        Arrival::Kernel => (ArmCounter::FromKernelPackets, ArmCounter::FromKernelBytes),
        _ => (ArmCounter::RxPackets, ArmCounter::RxBytes),
    };
    lcore.page().arm(pkt.arm, of_packets, packets);
    lcore.page().arm(pkt.arm, of_bytes, bytes);
}

/// Counts a sent ICMP error: the packet that it is about as dropped, the error as originated.
fn count_error(pkt: &PacketState, lcore: &Lcore<'_>, reply: Reply, bytes: u64) {
    let Some(reason) = reason_of_reply(reply) else { return };
    lcore.count_drop(pkt, reason);
    lcore.page().arm(pkt.arm, ArmCounter::OriginatedPackets, 1);
    lcore.page().arm(pkt.arm, ArmCounter::OriginatedBytes, bytes);
}

/// Returns the reason under which a packet is counted as dropped that is answered by an ICMP error.
pub(crate) fn reason_of_reply(reply: Reply) -> Option<DropReason> {
    match reply {
        Reply::Echo | Reply::Reset => None,
        Reply::TooBig(_) => Some(DropReason::TooBigAnswered),
        Reply::TimeExceeded => Some(DropReason::TtlExceeded),
    }
}

/// Returns the counter of a verdict.
pub(crate) fn counter_of(verdict: Verdict) -> VerdictCounter {
    match verdict {
        Verdict::Return => VerdictCounter::Return,
        Verdict::Nat => VerdictCounter::Nat,
        Verdict::Tunnel | Verdict::Probe => VerdictCounter::Tunnel,
        Verdict::Answer => VerdictCounter::Answer,
        Verdict::Redirect => VerdictCounter::Redirect,
        Verdict::Punt => VerdictCounter::Punt,
        Verdict::Reply(_) => VerdictCounter::Reply,
        Verdict::Forward => VerdictCounter::Forward,
        Verdict::Undecided | Verdict::Drop(_) => VerdictCounter::Drop,
    }
}
