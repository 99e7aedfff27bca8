//! NAT: rewrites destination and source of packets to the backend, and of its replies.
//!
//! Checksums are updated incrementally and never recomputed, so that a wrong checksum stays wrong
//! (RFC 1624).
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::flows;
use crate::encap::{
    check_backend_mtu, check_ttl, next_hop, part_clamp, plain_frame, propagate_congestion,
    update_ecn_and_ttl,
};
use crate::frame::window;
use crate::next::{CONTINUE, FINISH, check_next, next_stage, raw, run_stage};
use crate::packet_state::{PacketState, packet_state};
use crate::runtime::runtime_config;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet::Macs;
use packet::rewrite;
use tables::counters::VerdictCounter;
use tables::flow::{PATH_REDIRECT, PathError};
use tables::reason::DropReason;

/// The stage: rewrites a packet of the client's side and sends it to the backend or proxy.
#[xdp(frags)]
pub fn nat(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = match pkt.path.flags & PATH_REDIRECT {
        0 => next_stage(to_backend(ctx, pkt)),
        _ => next_stage(to_proxy(ctx, pkt)),
    };
    run_stage(ctx, next)
}

/// Passes a packet to the flow's proxy: rewritten and decapsulated. The TTL is not decremented,
/// because the packet is delivered to this host.
#[inline(always)]
fn to_proxy(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    propagate_congestion(ctx, pkt)?;
    rewrite_forward(ctx, pkt)?;
    part_clamp(ctx);
    if pkt.is_tunneled() {
        let own = runtime_config().map_or([0; 6], |config| config.port(pkt.arm).mac());
        plain_frame(ctx, pkt, &Macs::new(own, own), 0)?;
    }
    let next = pkt.pass();
    pkt.verdict = VerdictCounter::Redirect;
    Ok(next)
}

/// Rewrites a packet and sends it to its flow's backend.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let route = next_hop(pkt)?;
    check_backend_mtu(pkt, route.mtu)?;
    check_ttl(pkt)?;
    update_ecn_and_ttl(ctx, pkt)?;
    rewrite_forward(ctx, pkt)?;
    part_clamp(ctx);
    plain_frame(ctx, pkt, &route.macs, 0)?;
    Ok(pkt.transmit(VerdictCounter::Nat, route.arm))
}

/// Rewrites a packet of the client's side to what the flow's backend expects.
#[inline(always)]
fn rewrite_forward(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<(), u32> {
    compute_forward_rewrites(pkt);
    check_next(if pkt.has_quoted { part_rewrite_quoted(ctx) } else { part_rewrite(ctx) })
}

/// Computes the rewrites of a packet from the client's side and of the packet that it quotes.
#[inline(always)]
pub fn compute_forward_rewrites(pkt: &mut PacketState) {
    let quoted = if pkt.has_quoted { Some(&pkt.quoted) } else { None };
    (pkt.rewrite, pkt.quote) = pkt.path.forward_rewrites(&pkt.inner, quoted);
}

/// Rewrites a backend's reply to what the client expects.
#[inline(always)]
pub fn rewrite_reply(ctx: *mut xdp_md) -> u32 {
    let next = part_ends();
    if next != CONTINUE {
        return next;
    }
    match packet_state() {
        Some(pkt) if pkt.has_quoted => part_rewrite_quoted(ctx),
        _ => part_rewrite(ctx),
    }
}

/// Reads addresses and ports of the flow's initiator and target, and computes the rewrites of a
/// reply.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_ends() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ends = match flows().ends(&pkt.hit) {
        Ok(ends) => ends,
        Err(PathError::Gone) => return pkt.drop(DropReason::NoFlow),
        Err(PathError::Busy) => return pkt.drop(DropReason::FlowContended),
    };
    // An ICMP error from a router keeps its source, unless the packet is translated to the other
    // family; everything else gets the frontend's address.
    let router = pkt.inner.src != pkt.path.backend_addr && !pkt.path.crosses();
    (pkt.rewrite, pkt.quote) = ends.reply_rewrites(pkt.has_quoted, router.then_some(pkt.inner.src));
    CONTINUE
}

/// Applies the rewrite [`PacketState::rewrite`] to the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_rewrite(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match rewrite::nat(&mut window(ctx), &pkt.inner, &pkt.rewrite) {
        Ok(()) => CONTINUE,
        Err(_) => pkt.drop(DropReason::TooShort),
    }
}

/// Applies the rewrite [`PacketState::rewrite`] to an ICMP error, and [`PacketState::quote`] to the
/// packet that it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_rewrite_quoted(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = &mut window(ctx);
    match rewrite::nat_quoted(w, &pkt.inner, &pkt.quoted, &pkt.rewrite, &pkt.quote) {
        Ok(()) => CONTINUE,
        Err(_) => pkt.drop(DropReason::TooShort),
    }
}
