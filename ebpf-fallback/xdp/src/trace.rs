//! Traces: sampled packets are followed stage by stage, as in the fastpath.
//!
//! While a trace is on, packets that match its filter take the stages instead of the fast paths,
//! and `run_stage` enters the stage `trace` before each of them. It applies the filter again when
//! the inner packet is known, and reports the state of packets that match.

use crate::capture::{CAPTURED, NO_WAKEUP, next_packet};
use crate::cpu_views::cpu;
use crate::next::{
    CLASSIFY, DECAP, ENCAP, FINISH, FRAGMENT, FRONT, NAT, REPLY, SELECT, TRACK, raw, run_untraced,
};
use crate::packet_state::{Exit, PacketState, packet_state};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use packet::ip::Ip;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use tables::capture::{
    EXIT_KERNEL, EXIT_NONE, EXIT_PORT, TRACE_WORDS, TraceReport, TraceRule, TracedStage,
};

/// Value of [`PacketState::traced`] until the filter was applied.
pub const PENDING: u32 = u32::MAX;

/// The filter.
#[btf_map]
static TRACE_RULE: Array<TraceRule, 1> = Array::new();
/// Number of packets that remain to be traced.
#[btf_map]
static TRACE_LEFT: Array<AtomicU64, 1> = Array::new();

/// Returns whether packets remain to be traced.
#[inline(always)]
pub fn is_on() -> bool {
    TRACE_LEFT.get(0).is_some_and(|left| left.load(Relaxed) != 0)
}

/// Returns whether packets remain to be traced, and this one matches.
#[inline(always)]
pub fn matches(ip: &Ip) -> bool {
    is_on()
        && TRACE_RULE
            .get(0)
            .is_some_and(|rule| rule.matches(&ip.src, ip.sport, &ip.dst, ip.dport, ip.proto))
}

/// Begins the trace of a packet whose state was reset.
#[inline(always)]
pub fn begin(pkt: &mut PacketState) {
    pkt.traced = PENDING;
    pkt.traced_stage = 0;
}

/// Stage: reports the state after the previous stage, and continues with the next one.
#[xdp(frags)]
pub fn trace(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let next = part_trace(ctx);
    run_untraced(ctx, next)
}

/// Reports the state of a traced packet; returns the stage that follows.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_trace(_: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let next = pkt.traced_next;
    if pkt.traced == PENDING {
        if next == DECAP {
            return next;
        }
        pkt.traced = select(pkt);
    }
    let Some(stage) = stage_before(pkt, next) else { return next };
    // A packet may enter the same stage twice.
    if pkt.traced != 0 && pkt.traced_stage <= stage as u32 {
        pkt.traced_stage = stage as u32 + 1;
        report(pkt, stage);
    }
    next
}

/// Returns the number of the packet in the trace; 0 if it does not match, or enough were traced.
#[inline(always)]
fn select(pkt: &PacketState) -> u32 {
    let Some(left) = TRACE_LEFT.get(0) else { return 0 };
    if !matches(&pkt.inner) {
        return 0;
    }
    // Concurrent CPUs may trace a few packets more; slowpath ignores these.
    let before = left.load(Relaxed);
    if before == 0 {
        return 0;
    }
    left.store(before - 1, Relaxed);
    next_packet()
}

/// Returns the stage of the fastpath that the packet has left when `next` follows.
#[inline(always)]
fn stage_before(pkt: &PacketState, next: u32) -> Option<TracedStage> {
    match next {
        CLASSIFY => Some(TracedStage::Decap),
        TRACK | FRAGMENT => Some(TracedStage::Classify),
        SELECT => Some(TracedStage::Track),
        ENCAP | NAT | FRONT | REPLY if pkt.flow_found => Some(TracedStage::Track),
        ENCAP | NAT | FRONT | REPLY => Some(TracedStage::Select),
        FINISH => Some(TracedStage::Encap),
        _ => None,
    }
}

/// Passes a report to the loader. If the ring buffer is full, it is lost.
#[inline(always)]
fn report(pkt: &PacketState, stage: TracedStage) {
    let exit = match pkt.exit {
        Exit::None => EXIT_NONE,
        Exit::Port => EXIT_PORT,
        Exit::Kernel => EXIT_KERNEL,
    };
    let words: [u64; TRACE_WORDS] = TraceReport {
        packet: pkt.traced,
        lcore: cpu() as u16,
        stage: stage as u8,
        verdict: pkt.verdict as u8,
        reason: pkt.reason as u8,
        exit,
        exit_arm: pkt.exit_arm,
        arm: pkt.arm,
        has_flow: pkt.flow_found,
        service: pkt.service,
        backend: pkt.backend,
        scope: pkt.scope,
        bytes: u32::from(pkt.inner.end - pkt.inner.at),
        hash: pkt.hash,
        sport: pkt.inner.sport,
        dport: pkt.inner.dport,
    }
    .words();
    let _ = CAPTURED.output::<[u64; TRACE_WORDS]>(&words, NO_WAKEUP);
}
