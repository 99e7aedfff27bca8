//! Captures and traces of usual packets, which the fast paths would forward without the stages.
//!
//! While a capture or a trace is on, a fast path asks [`is_observed`] or [`is_reply_observed`]
//! before it changes a packet, and forwards only a packet that neither matches. [`run_observed`]
//! passes all others to the stages.

use crate::capture;
use crate::frame::length;
use crate::next::{CONTINUE, FINISH, OUTER, run_untraced};
use crate::packet_state::{PacketState, RxInfo, packet_state};
use crate::runtime::runtime_config;
use crate::runtime_config::RuntimeConfig;
use crate::trace;
use aya_ebpf::bindings::xdp_md;
use core::hint::black_box;
use packet::addr::Addr;
use packet::flow::Side;
use tables::capture::{REPLY, REQUEST};
use tables::flow::ReplyHit;

// How a usual packet belongs to its flow, as bits: the functions that the verifier checks
// separately take integers.

/// The arm on which the packet arrived, 0 or 1.
const ARM: u32 = 1;
/// The flow's initiator has sent the packet, or it belongs to no flow.
const FROM_INITIATOR: u32 = 2;
/// The initiator is the upper end of the flow's key.
const INITIATOR_IS_HIGH: u32 = 4;
/// The packet arrived in a tunnel.
const TUNNELED: u32 = 8;

/// Returns whether a capture or a trace may match a packet from a gateway that the fast path is
/// about to forward. Then the packet has to take the stages.
#[inline(always)]
pub fn is_observed(config: &RuntimeConfig, arm: u8, service: u32, from_initiator: bool) -> bool {
    if !config.observes() {
        return false;
    }
    let initiator = if from_initiator { FROM_INITIATOR } else { 0 };
    part_facts(service, u32::from(arm) & ARM | initiator);
    may_match(config, TUNNELED)
}

/// As [`is_observed`], for a reply with its path in [`PacketState::reply_path`].
#[inline(always)]
pub fn is_reply_observed(
    config: &RuntimeConfig,
    arm: u8,
    hit: &ReplyHit<'_>,
    tunnel: bool,
) -> bool {
    if !config.observes() {
        return false;
    }
    let initiator = if hit.from_initiator { FROM_INITIATOR } else { 0 };
    let high = if hit.initiator == Side::High { INITIATOR_IS_HIGH } else { 0 };
    let tunneled = if tunnel { TUNNELED } else { 0 };
    part_reply_facts(u32::from(arm) & ARM | initiator | high | tunneled);
    may_match(config, tunneled)
}

/// Returns whether a capture or the trace, if it is on, may match the packet with the facts of
/// [`PacketState::facts`].
#[inline(always)]
fn may_match(config: &RuntimeConfig, tunneled: u32) -> bool {
    config.captures & 1 != 0 && part_capture_matches(0) != CONTINUE
        || config.captures & 2 != 0 && part_capture_matches(1) != CONTINUE
        || config.traced != 0 && part_trace_matches(tunneled) != CONTINUE
}

/// Sets [`PacketState::facts`] of a packet from a gateway.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_facts(service: u32, bits: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (ip, facts) = (&pkt.inner, &mut pkt.facts);
    (facts.service, facts.proto, facts.arm) = (service, ip.proto, (bits & ARM) as u8);
    if bits & FROM_INITIATOR != 0 {
        (facts.client, facts.client_port) = (ip.src.in_words(), ip.sport);
        (facts.frontend, facts.frontend_port) = (ip.dst.in_words(), ip.dport);
        facts.direction = REQUEST;
    } else {
        (facts.client, facts.client_port) = (ip.dst.in_words(), ip.dport);
        (facts.frontend, facts.frontend_port) = (ip.src.in_words(), ip.sport);
        facts.direction = REPLY;
    }
    CONTINUE
}

/// Sets [`PacketState::facts`] of a reply.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_reply_facts(bits: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ip = if bits & TUNNELED == 0 { &pkt.outer } else { &pkt.inner };
    let (front, facts) = (&pkt.reply_path.front, &mut pkt.facts);
    let initiator = if bits & INITIATOR_IS_HIGH == 0 { Side::Low } else { Side::High };
    (facts.proto, facts.arm) = (ip.proto, (bits & ARM) as u8);
    facts.service = pkt.reply_path.forward.service;
    (facts.client, facts.client_port) = front.end(initiator);
    (facts.frontend, facts.frontend_port) = front.end(initiator.other());
    facts.direction = if bits & FROM_INITIATOR == 0 { REPLY } else { REQUEST };
    CONTINUE
}

/// Returns [`CONTINUE`] if the capture of this number does not match.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_capture_matches(number: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if capture::may_match(number, &mut pkt.facts) { FINISH } else { CONTINUE }
}

/// Returns [`CONTINUE`] if the trace does not match the inner packet, or the outer one without a
/// tunnel.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_trace_matches(tunneled: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ip = if tunneled == 0 { &pkt.outer } else { &pkt.inner };
    if trace::matches(ip) { FINISH } else { CONTINUE }
}

/// Continues with stage `next` for a packet that a fast path does not forward. While a capture or a
/// trace is on, the packet takes all stages instead, and the head of its frame is copied before.
#[inline(always)]
pub fn run_observed(
    ctx: *mut xdp_md,
    pkt: &mut PacketState,
    config: &RuntimeConfig,
    rx: &RxInfo,
    next: u32,
) -> u32 {
    if !config.observes() || part_is_on() == CONTINUE {
        return run_untraced(ctx, next);
    }
    pkt.init(rx);
    pkt.rx_len = length(ctx);
    part_reset_inner();
    part_begin_capture(ctx);
    run_untraced(ctx, OUTER)
}

/// Returns [`CONTINUE`] if the leases of all captures have ended and no packets remain to be
/// traced. The configuration still names them if neither the loader nor slowpath has removed them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_is_on() -> u32 {
    let Some(config) = runtime_config() else { return CONTINUE };
    let is_on = capture::is_on(config.captures) || config.traced != 0 && trace::is_on();
    if is_on { FINISH } else { CONTINUE }
}

/// Resets what filters examine of the inner packet, because the state of a packet that is dropped
/// early must not be that of an earlier one. Begins the packet's trace.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_reset_inner() -> u32 {
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else { return FINISH };
    // `black_box` prevents a call of `memset`, for which the stack of Linux 6.1 has no space here.
    let nowhere = Addr { words: [black_box(0); 4] };
    let ip = &mut pkt.inner;
    (ip.src, ip.dst) = (nowhere, nowhere);
    (ip.sport, ip.dport, ip.proto, ip.at, ip.end) = (0, 0, 0, 0, 0);
    if config.traced != 0 && trace::is_on() {
        trace::begin(pkt);
    }
    CONTINUE
}

/// Copies the head of a frame for captures.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_begin_capture(ctx: *mut xdp_md) -> u32 {
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else { return FINISH };
    if capture::is_on(config.captures) {
        pkt.captured_len = capture::copy_head(ctx);
    }
    CONTINUE
}
