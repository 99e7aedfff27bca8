//! NAT: to the backend with destination and source rewritten; its replies are rewritten back.
//!
//! Checksums are updated incrementally and never recomputed, so that a wrong checksum stays wrong
//! (RFC 1624).

use crate::encap::{congestion, ends_here, fits, next_hop, part_clamp, plain_frame, take_off};
use crate::frame::window;
use crate::here::flows;
use crate::next::{FINISH, OPEN, done, either, go, raw};
use crate::place::place;
use crate::work::{Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet::Macs;
use packet::rewrite;
use tables::counters::VerdictCounter;
use tables::flow::{Missed, PATH_REDIRECT};
use tables::reason::DropReason;

/// The stage: rewrites a packet of the client's side and sends it to the backend or proxy.
#[xdp(frags)]
pub fn nat(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = match work.path.flags & PATH_REDIRECT {
        0 => either(to_backend(ctx, work)),
        _ => either(to_proxy(ctx, work)),
    };
    go(ctx, next)
}

/// Passes a packet to the flow's proxy: rewritten and decapsulated. The TTL is not decremented,
/// because the packet is delivered to this host.
#[inline(always)]
fn to_proxy(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    congestion(ctx, work)?;
    forwards(ctx, work)?;
    part_clamp(ctx);
    if work.is_tunnelled() {
        let own = place().map_or([0; 6], |place| place.port(work.arm).mac());
        plain_frame(ctx, work, &Macs::new(own, own), 0)?;
    }
    let next = work.pass();
    work.verdict = VerdictCounter::Redirect;
    Ok(next)
}

/// Rewrites a packet and sends it to its flow's backend.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let way = next_hop(work)?;
    fits(work, way.mtu)?;
    ends_here(work)?;
    take_off(ctx, work)?;
    forwards(ctx, work)?;
    part_clamp(ctx);
    plain_frame(ctx, work, &way.macs, 0)?;
    Ok(work.out(VerdictCounter::Nat, way.arm))
}

/// Rewrites a packet of the client's side to what the flow's backend expects.
#[inline(always)]
fn forwards(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    outward(work);
    done(if work.quotes { part_rewrite_quoted(ctx) } else { part_rewrite(ctx) })
}

/// Computes the rewrites of a packet from the client's side and of the packet that it quotes.
#[inline(always)]
pub fn outward(work: &mut Work) {
    let quoted = if work.quotes { Some(&work.quoted) } else { None };
    (work.to, work.quote) = work.path.outward(&work.inner, quoted);
}

/// Rewrites a backend's reply to what the client expects.
#[inline(always)]
pub fn part_to_client(ctx: *mut xdp_md) -> u32 {
    let next = part_ends();
    if next != OPEN {
        return next;
    }
    match work() {
        Some(work) if work.quotes => part_rewrite_quoted(ctx),
        _ => part_rewrite(ctx),
    }
}

/// Reads initiator and target of the flow, and computes the rewrites of a reply.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_ends() -> u32 {
    let Some(work) = work() else { return FINISH };
    let ends = match flows().ends(&work.hit) {
        Ok(ends) => ends,
        Err(Missed::Gone) => return work.drop(DropReason::NoFlow),
        Err(Missed::Busy) => return work.drop(DropReason::FlowContended),
    };
    // Packets of the backend itself get the service's address as source; a router keeps its
    // address, except if it has none in the other family.
    let router = work.inner.src != work.path.backend_addr && !work.path.crosses();
    (work.to, work.quote) = ends.homeward(work.quotes, router.then_some(work.inner.src));
    OPEN
}

/// Rewrites the packet to [`Work::to`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_rewrite(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    match rewrite::nat(&mut window(ctx), &work.inner, &work.to) {
        Ok(()) => OPEN,
        Err(_) => work.drop(DropReason::TooShort),
    }
}

/// Rewrites an ICMP error to [`Work::to`], and the packet that it quotes to [`Work::quote`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_rewrite_quoted(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let w = &mut window(ctx);
    match rewrite::nat_quoted(w, &work.inner, &work.quoted, &work.to, &work.quote) {
        Ok(()) => OPEN,
        Err(_) => work.drop(DropReason::TooShort),
    }
}
