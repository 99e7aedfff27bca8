//! Captures: copies of frames with the decisions about them, as in the fastpath.
//!
//! While a capture is on, the fast paths forward only packets that it does not match. They leave
//! all others to the stages, and copy the head of the frame before ([`crate::observe`]). The stage
//! `capture` takes the place of `finish`: it finishes the packet, and if the packet matches, passes
//! both its heads to the loader through a ring buffer. A capture ends by itself if the loader does
//! not renew it.

use crate::cpu_views::{cpu, flows};
use crate::finish::finish;
use crate::frame::length;
use crate::next::raw;
use crate::packet_state::{Arrival, Exit, PacketState, Reply, packet_state};
use crate::runtime::runtime_config;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_xdp_load_bytes};
use aya_ebpf::macros::{btf_map, map, xdp};
use aya_ebpf::maps::RingBuf;
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use tables::capture::{
    AFTER, BEFORE, BPF_RING_BYTES, CaptureFilter, EXIT_KERNEL, EXIT_NONE, EXIT_PORT, HEAD_WORDS,
    MAX_CAPTURES, MAX_SNAP, NO_REASON, PacketFacts, REPLY, REQUEST, RecordHead,
};
use tables::counters::VerdictCounter;
use tables::reason::DropReason;

/// Flag of the ring buffer: do not wake up the loader, which polls (BPF_RB_NO_WAKEUP).
pub const NO_WAKEUP: u64 = 1;

/// A capture, as the loader sets it.
#[repr(C)]
struct Rule {
    filter: CaptureFilter,
    /// Time at which it ends unless the loader renews it, in nanoseconds of the monotonic clock.
    until_ns: u64,
}

/// A record as it is passed to the loader.
#[repr(C)]
struct Record {
    head: [u64; HEAD_WORDS],
    bytes: [u8; MAX_SNAP as usize],
}

/// Captures by number.
#[btf_map]
static CAPTURE_RULES: Array<Rule, MAX_CAPTURES> = Array::new();
/// The heads of the frame that this CPU processes: as it arrived, and as it leaves.
#[btf_map]
static CAPTURE_HEADS: PerCpuArray<Record, 2> = PerCpuArray::new();
/// Numbers of captured and traced packets, by CPU.
#[btf_map]
static CAPTURE_PACKETS: PerCpuArray<u32, 1> = PerCpuArray::new();
/// Records for which the ring buffer had no space, by capture and arm.
#[btf_map]
static CAPTURE_LOST: Array<AtomicU64, 4> = Array::new();
/// Records for the loader, which takes up to [`tables::capture::BPF_RING_RECORDS`] every 10 ms.
#[map]
pub static CAPTURED: RingBuf = RingBuf::with_byte_size(BPF_RING_BYTES, 0);

/// Nanoseconds of the monotonic clock.
#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no arguments and no side effects.
    unsafe { bpf_ktime_get_ns() }
}

/// Returns capture `number` if it is on.
#[inline(always)]
fn rule(captures: u32, number: u32, now_ns: u64) -> Option<&'static Rule> {
    if captures >> number & 1 == 0 {
        return None;
    }
    CAPTURE_RULES.get(number).filter(|rule| rule.until_ns >= now_ns)
}

/// Returns whether capture `number` is on and may match a packet that a fast path is about to
/// forward, with these facts. Sets the reason in the facts.
#[inline(always)]
pub fn may_match(number: u32, facts: &mut PacketFacts) -> bool {
    let Some(rule) = CAPTURE_RULES.get(number) else { return false };
    let reason = rule.filter.reason;
    facts.reason = if may_drop(reason) { reason } else { NO_REASON };
    // The clock is read for packets that match only.
    rule.filter.matches(facts) && rule.until_ns >= now_ns()
}

/// Returns whether a fast path may still drop a packet for this reason, when it writes and sends
/// the packet.
#[inline(always)]
fn may_drop(reason: u8) -> bool {
    reason == DropReason::TooShort as u8
        || reason == DropReason::NoHeadroom as u8
        || reason == DropReason::TxQueueFull as u8
}

/// Returns whether one of these captures is on.
#[inline(always)]
pub fn is_on(captures: u32) -> bool {
    let now = now_ns();
    rule(captures, 0, now).is_some() || rule(captures, 1, now).is_some()
}

/// Copies the head of the frame as it arrived; returns the number of bytes.
#[inline(always)]
pub fn copy_head(ctx: *mut xdp_md) -> u64 {
    copy(ctx, 0)
}

/// Copies the head of the frame to a record of this CPU; returns the number of bytes.
#[inline(always)]
fn copy(ctx: *mut xdp_md, record: u32) -> u64 {
    let Some(record) = CAPTURE_HEADS.get_ptr_mut(record) else { return 0 };
    let len = length(ctx).min(MAX_SNAP.into()) as u32;
    if len == 0 {
        return 0;
    }
    // Verifiers of older kernels (6.1) do not conclude from this comparison that the number is at
    // least 1. The mask, which `black_box` preserves, and the addition show both bounds.
    let len = (black_box(len - 1) & (u32::from(MAX_SNAP) - 1)) + 1;
    // SAFETY: the record has space for that many bytes, and only this CPU uses it.
    let done = unsafe { bpf_xdp_load_bytes(ctx, 0, (&raw mut (*record).bytes).cast(), len) };
    if done == 0 { u64::from(len) } else { 0 }
}

/// Stage: finishes a packet and captures it.
#[xdp(frags)]
pub fn capture(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let action = finish(ctx);
    part_capture(ctx);
    action
}

/// Passes the records of a packet to the loader.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_capture(ctx: *mut xdp_md) -> u32 {
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else { return 0 };
    let now = now_ns();
    let facts = facts(pkt);
    let after_len = if pkt.exit == Exit::None { 0 } else { copy(ctx, 1) };
    let mut packet = 0;
    for number in 0..MAX_CAPTURES as u32 {
        let Some(rule) = rule(config.captures, number, now) else { continue };
        if !rule.filter.matches(&facts) {
            continue;
        }
        if packet == 0 {
            packet = next_packet();
        }
        let (exit, exit_arm) = match pkt.exit {
            Exit::None => (EXIT_NONE, pkt.arm),
            Exit::Port => (EXIT_PORT, pkt.exit_arm),
            Exit::Kernel => (EXIT_KERNEL, pkt.exit_arm),
        };
        let snap = u64::from(rule.filter.snap);
        let head = RecordHead {
            len: pkt.captured_len.min(snap) as u16,
            frame_len: pkt.rx_len as u32,
            time_ns: now,
            service: pkt.service,
            backend: pkt.backend,
            packet,
            lcore: cpu() as u16,
            capture: number as u8,
            verdict: pkt.verdict as u8,
            reason: facts.reason,
            arm: pkt.arm,
            exit_arm,
            exit,
            stage: BEFORE,
            direction: facts.direction,
        };
        if rule.filter.wants(BEFORE) {
            output(0, &head);
        }
        if rule.filter.wants(AFTER) && after_len != 0 {
            let len = after_len.min(snap) as u16;
            output(1, &RecordHead { len, frame_len: length(ctx) as u32, stage: AFTER, ..head });
        }
    }
    0
}

/// Returns the number of the next captured or traced packet of this CPU; never 0.
#[inline(always)]
pub fn next_packet() -> u32 {
    let Some(number) = CAPTURE_PACKETS.get_ptr_mut(0) else { return 1 };
    // SAFETY: a CPU processes one packet at a time.
    unsafe {
        *number = (*number).wrapping_add(1).max(1);
        *number
    }
}

/// Passes a record with this head to the loader, or counts it as lost.
#[inline(always)]
fn output(record: u32, head: &RecordHead) {
    let Some(record) = CAPTURE_HEADS.get_ptr_mut(record) else { return };
    // SAFETY: a CPU processes one packet at a time.
    let record = unsafe { &mut *record };
    record.head = head.words();
    if CAPTURED.output::<Record>(&*record, NO_WAKEUP).is_err() {
        let at = u32::from(head.capture & 1) * 2 + u32::from(head.arm & 1);
        if let Some(lost) = CAPTURE_LOST.get(at) {
            lost.fetch_add(1, Relaxed);
        }
    }
}

/// Summarizes a packet on which the stages have decided.
#[inline(always)]
fn facts(pkt: &PacketState) -> PacketFacts {
    let inner = if pkt.has_quoted { &pkt.quoted } else { &pkt.inner };
    let mut facts = PacketFacts {
        client: inner.src.in_words(),
        frontend: inner.dst.in_words(),
        service: pkt.service,
        client_port: inner.sport,
        frontend_port: inner.dport,
        proto: pkt.inner.proto,
        reason: reason(pkt),
        arm: pkt.arm,
        direction: REQUEST,
    };
    let is_answer = pkt.verdict == VerdictCounter::Answer || pkt.arrival == Arrival::Backend;
    // An ICMP error comes from the side that the quoted packet was sent to.
    if pkt.has_quoted != is_answer {
        (facts.client, facts.frontend) = (inner.dst.in_words(), inner.src.in_words());
        (facts.client_port, facts.frontend_port) = (inner.dport, inner.sport);
    }
    if is_answer {
        facts.direction = REPLY;
    }
    if pkt.flow_found
        && let Some((key, initiator)) = flows().front_ends(pkt.hit.path)
    {
        let (client, client_port) = key.end(initiator);
        let (frontend, frontend_port) = key.end(initiator.other());
        (facts.client, facts.client_port) = (client, client_port);
        (facts.frontend, facts.frontend_port) = (frontend, frontend_port);
        facts.direction = if pkt.hit.from_initiator(pkt.side) { REQUEST } else { REPLY };
    }
    facts
}

/// Returns the number of the reason under which the packet is counted as dropped.
#[inline(always)]
fn reason(pkt: &PacketState) -> u8 {
    if pkt.exit == Exit::None {
        return pkt.reason as u8;
    }
    if pkt.verdict != VerdictCounter::Reply {
        return NO_REASON;
    }
    match pkt.reply {
        Reply::TooBig => DropReason::TooBigAnswered as u8,
        Reply::TimeExceeded => DropReason::TtlExceeded as u8,
        Reply::Echo | Reply::Reset => NO_REASON,
    }
}
