//! Front: from a backend back to the flow's gateway with its latest options (those of the packet's
//! own direction, if the gateway sends both), or to the client of a plain flow.

use crate::cross::translated_len;
use crate::encap::{ends_here, part_clamp, plain_frame, put_on, take_off, tells_too_big};
use crate::here::flows;
use crate::nat::part_to_client;
use crate::next::{CROSS, FINISH, OPEN, done, either, go, raw};
use crate::origin::part_return_leg;
use crate::place::place;
use crate::work::{Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet::Macs;
use packet::geneve::MAX_OPTIONS;
use packet::ip::Ip;
use packet::translate;
use packet::tunnel::{Outer, TunnelKind};
use tables::counters::VerdictCounter;
use tables::flow::{GatewayLeg, Missed, NO_TUNNEL};
use tables::outer;
use tables::reason::DropReason;
use tables::record::{Mode, TUNNEL_CROSS, TUNNEL_REPLY_TOO_BIG, Tunnel};
use tables::set::TableSet;

/// The stage: sends a reply to the flow's gateway or plain client.
#[xdp(frags)]
pub fn front(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = either(to_front(ctx, work));
    go(ctx, next)
}

#[inline(always)]
fn to_front(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    if !work.crossed {
        done(if work.untracked { part_return_leg() } else { part_answer() })?;
        ends_here(work)?;
    }
    let tunnel = match work.answer.gateway.tunnel {
        NO_TUNNEL => None,
        id => match work.set().tunnel(u32::from(id)) {
            None => return Err(work.drop(DropReason::NoFlow)),
            some => some,
        },
    };
    if !work.crossed {
        may_leave(work, tunnel)?;
        take_off(ctx, work)?;
        if work.path.crosses() {
            work.home = true;
            return Ok(CROSS);
        }
        if work.path.mode == Mode::Nat as u8 {
            done(part_to_client(ctx))?;
        }
        part_clamp(ctx);
    }
    let arm = work.answer.gateway.arm;
    let own = place().map_or([0; 6], |place| place.port(arm).mac());
    let macs = Macs::new(work.answer.gateway.gateway_mac, own);
    match tunnel {
        None => {
            let vlan = work.answer.gateway.vlan;
            plain_frame(ctx, work, &macs, vlan)?;
        }
        Some(_) => done(part_to_gateway(ctx))?,
    }
    Ok(work.out(VerdictCounter::Answer, arm))
}

/// Rejects packets too large for their gateway. Translated packets may also be too large for a
/// plain client's arm.
#[inline(always)]
fn may_leave(work: &mut Work, tunnel: Option<&Tunnel>) -> Result<(), u32> {
    let (limit, told) = match tunnel {
        Some(tunnel) => (tunnel.inner_mtu, tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0),
        None if work.path.crosses() => (part_mtu_of(work.answer.gateway.arm.into()) as u16, true),
        None => return Ok(()),
    };
    let (len, mtu) = if work.path.crosses() {
        (translated_len(work), translate::sender_mtu(&work.inner, limit))
    } else {
        (u32::from(work.inner.end - work.inner.at), limit)
    };
    if limit == 0 || len <= u32::from(limit) {
        return Ok(());
    }
    Err(match told && tells_too_big(work) {
        true => work.too_big(mtu),
        false => work.drop(DropReason::TooBig),
    })
}

/// Returns the MTU of an arm's port in bytes; 0 if unknown.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_mtu_of(arm: u32) -> u32 {
    let Some(work) = work() else { return 0 };
    let mut locals = work.set().settings().locals.iter();
    locals.find(|local| u32::from(local.arm) == arm).map_or(0, |local| local.mtu.into())
}

/// Copies the path and leg for a reply.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_answer() -> u32 {
    let Some(work) = work() else { return FINISH };
    let from_initiator = work.hit.from_initiator(work.side);
    match flows().answer(&work.hit, from_initiator, &mut work.answer) {
        Ok(()) => OPEN,
        Err(Missed::Gone) => work.drop(DropReason::NoFlow),
        Err(Missed::Busy) => part_answer_held(),
    }
}

/// As `part_answer` while another CPU updates the leg.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_answer_held() -> u32 {
    let Some(work) = work() else { return FINISH };
    let from_initiator = work.hit.from_initiator(work.side);
    match flows().answer_held(&work.hit, from_initiator, &mut work.answer) {
        Ok(()) => OPEN,
        Err(Missed::Gone) => work.drop(DropReason::NoFlow),
        Err(Missed::Busy) => work.drop(DropReason::FlowContended),
    }
}

/// Writes the outer headers towards the flow's gateway: those of its latest packet, reversed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_to_gateway(ctx: *mut xdp_md) -> u32 {
    let (Some(work), Some(place)) = (work(), place()) else { return FINISH };
    let set = work.set();
    let leg = work.answer.gateway;
    let Some(tunnel) = set.tunnel(u32::from(leg.tunnel)) else {
        return work.drop(DropReason::NoFlow);
    };
    // Gateways use no other tunnels.
    let kind =
        if tunnel.kind == TunnelKind::Vxlan as u8 { TunnelKind::Vxlan } else { TunnelKind::Geneve };
    let inspected =
        work.path.mode != Mode::Nat as u8 && !work.untracked && work.hit.from_initiator(work.side);
    let len = usize::from(leg.option_len).min(MAX_OPTIONS) & 0xfc;
    // SAFETY: the buffer has 256 bytes, and `len` is at most 252. A safe slice would require a
    // bounds check that the verifier can follow.
    let options = unsafe { core::slice::from_raw_parts(work.answer.options.as_ptr().cast(), len) };
    let own = place.port(leg.arm).mac();
    let outer = gateway_outer(&set, (kind, tunnel, inspected), &leg, own, options, &work.inner);
    match put_on(ctx, work, &outer) {
        Ok(()) => OPEN,
        Err(next) => next,
    }
}

/// Returns the outer headers towards a flow's gateway: those of its latest packet, reversed. Azure
/// expects inspected packets of the external tunnel on the internal one. Replies of the backend
/// itself use the tunnel of the request.
#[inline(always)]
pub fn gateway_outer<'a>(
    set: &TableSet<'static>,
    (kind, tunnel, inspected): (TunnelKind, &Tunnel, bool),
    leg: &GatewayLeg,
    own: [u8; 6],
    options: &'a [u8],
    inner: &Ip,
) -> Outer<'a> {
    let crosses = inspected && tunnel.flags & TUNNEL_CROSS != 0;
    let peer = if crosses { set.tunnel(tunnel.peer) } else { None };
    outer::to_gateway(kind, leg, own, options, inner, peer)
}
