//! Records of the packets of a burst that match a capture.

use super::Taps;
use crate::burst::{Arrival, Burst, PacketState};
use crate::dispatch::{counter_of, drop_reason, reason_of_reply};
use crate::lcore::Lcore;
use crate::pipeline;
use crate::port::Buffer;
use crate::verdict::{Exit, Verdict};
use packet::addr::Addr;
use packet::ip::Ip;
use tables::capture::{
    AFTER, BEFORE, EXIT_KERNEL, EXIT_NONE, EXIT_PORT, MAX_SNAP, NO_REASON, PacketFacts, REPLY,
    REQUEST, RecordHead,
};
use tables::region::monotonic_ns;

/// Runs a burst through all stages and captures the packets that match.
#[cold]
#[inline(never)]
pub fn run<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    let mut taps = lcore.taps().borrow_mut();
    let time_ns = monotonic_ns();
    let snap = taps.snap(time_ns / 1_000_000);
    let Some(heads) = taps.heads.as_mut().filter(|_| snap > 0) else {
        // All captures have ended; the control thread will take them back.
        drop(taps);
        return pipeline::run(burst, lcore);
    };
    heads.copy(burst, snap);
    drop(taps);
    // The state of a packet that is dropped early must not be that of an earlier packet.
    burst.packets[..burst.len].iter_mut().for_each(|pkt| pkt.inner = Ip::default());
    pipeline::run_uncached(burst, lcore);
    lcore.taps().borrow_mut().record(burst, lcore, time_ns);
}

impl Taps {
    fn record<B: Buffer>(&mut self, burst: &Burst<B>, lcore: &Lcore<'_>, time_ns: u64) {
        let Some(heads) = &self.heads else { return };
        let now_ms = time_ns / 1_000_000;
        let packets = burst.buffers[..burst.len].iter().zip(&burst.packets).enumerate();
        for (at, (buffer, pkt)) in packets {
            let Some(buffer) = buffer else { continue };
            let facts = facts(pkt, lcore);
            let mut matched = false;
            for writer in self.writers.iter_mut().flatten() {
                let filter = *writer.filter();
                if !writer.file().is_active(now_ms) || !filter.matches(&facts) {
                    continue;
                }
                if !matched {
                    matched = true;
                    self.packets = self.packets.wrapping_add(1);
                }
                let snap = usize::from(filter.snap);
                let capture = writer.file().number();
                let number = (self.packets, lcore.index() as u16, capture);
                let head = head(pkt, &facts, number, time_ns);
                if filter.wants(BEFORE) {
                    let (bytes, frame_len) = heads.of(at, snap);
                    writer.write(&RecordHead { frame_len, ..head }, bytes);
                }
                if filter.wants(AFTER) && pkt.exit != Exit::None {
                    let mut bytes = [0; MAX_SNAP as usize];
                    let len = buffer.copy_to(&mut bytes[..snap]);
                    let frame_len = buffer.len() as u32;
                    let head = RecordHead { frame_len, stage: AFTER, ..head };
                    writer.write(&head, &bytes[..len]);
                }
            }
        }
    }
}

/// Summarizes a packet on which the stages have decided.
fn facts(pkt: &PacketState, lcore: &Lcore<'_>) -> PacketFacts {
    let ends = pkt.hit.and_then(|hit| {
        let (key, initiator) = lcore.flows().front_ends(hit.path)?;
        let direction = if hit.from_initiator(pkt.side) { REQUEST } else { REPLY };
        Some((key.end(initiator), key.end(initiator.other()), direction))
    });
    let (client, frontend, direction) = ends.unwrap_or_else(|| ends_without_flow(pkt));
    PacketFacts {
        client: client.0,
        frontend: frontend.0,
        service: pkt.service,
        client_port: client.1,
        frontend_port: frontend.1,
        proto: pkt.inner.proto,
        reason: reason(pkt),
        arm: pkt.arm,
        direction,
    }
}

/// One end of a flow: its address and port.
type End = (Addr, u16);

/// Returns the client's end, the frontend's end and the direction of a packet without a flow.
fn ends_without_flow(pkt: &PacketState) -> (End, End, u8) {
    let inner = &pkt.inner;
    let (from, to) = ((inner.src, inner.sport), (inner.dst, inner.dport));
    // An ICMP error comes from the side that the quoted packet was sent to.
    let (from, to) = match &pkt.quoted {
        Some(quoted) => ((quoted.dst, quoted.dport), (quoted.src, quoted.sport)),
        None => (from, to),
    };
    match pkt.verdict == Verdict::Answer || pkt.headers.arrival == Arrival::Backend {
        true => (to, from, REPLY),
        false => (from, to, REQUEST),
    }
}

/// Returns the number of the reason under which a packet is counted as dropped.
fn reason(pkt: &PacketState) -> u8 {
    match (pkt.exit, pkt.verdict) {
        (Exit::None, verdict) => drop_reason(verdict) as u8,
        (_, Verdict::Reply(reply)) => reason_of_reply(reply).map_or(NO_REASON, |r| r as u8),
        _ => NO_REASON,
    }
}

fn head(
    pkt: &PacketState,
    facts: &PacketFacts,
    (packet, lcore, capture): (u32, u16, u8),
    time_ns: u64,
) -> RecordHead {
    let (exit, exit_arm) = match pkt.exit {
        Exit::None => (EXIT_NONE, pkt.arm),
        Exit::Port(arm) => (EXIT_PORT, arm),
        Exit::Kernel(arm) => (EXIT_KERNEL, arm),
    };
    RecordHead {
        len: 0,
        frame_len: 0,
        time_ns,
        service: pkt.service,
        backend: pkt.backend,
        packet,
        lcore,
        capture,
        verdict: counter_of(pkt.verdict) as u8,
        reason: facts.reason,
        arm: pkt.arm,
        exit_arm,
        exit,
        stage: BEFORE,
        direction: facts.direction,
    }
}
