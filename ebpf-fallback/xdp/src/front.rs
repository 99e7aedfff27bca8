//! Front: sends a backend's packet to the flow's gateway with the latest options (those of the
//! packet's own direction, if the gateway sends both), or to the client of a plain flow.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::flows;
use crate::encap::{
    check_ttl, encapsulate, part_clamp, plain_frame, reports_too_big, update_ecn_and_ttl,
};
use crate::nat::rewrite_reply;
use crate::nat64::translated_len;
use crate::next::{CONTINUE, FINISH, NAT64, check_next, next_stage, raw, run_stage};
use crate::origin::part_return_leg;
use crate::packet_state::{PacketState, packet_state};
use crate::runtime::runtime_config;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet::Macs;
use packet::geneve::MAX_OPTIONS;
use packet::ip::Ip;
use packet::translate;
use packet::tunnel::{Outer, TunnelKind};
use tables::counters::VerdictCounter;
use tables::flow::{GatewayLeg, NO_TUNNEL, PathError};
use tables::outer;
use tables::reason::DropReason;
use tables::record::{Mode, TUNNEL_CROSS, TUNNEL_REPLY_TOO_BIG, Tunnel};
use tables::set::TableSet;

/// The stage: sends a reply to the flow's gateway or plain client.
#[xdp(frags)]
pub fn front(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = next_stage(to_front(ctx, pkt));
    run_stage(ctx, next)
}

#[inline(always)]
fn to_front(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    if !pkt.translated {
        check_next(if pkt.untracked { part_return_leg() } else { part_answer() })?;
        check_ttl(pkt)?;
    }
    let tunnel = match pkt.answer.gateway.tunnel {
        NO_TUNNEL => None,
        id => match pkt.set().tunnel_to_gateway(u32::from(id)) {
            None => return Err(pkt.drop(DropReason::NoFlow)),
            some => some,
        },
    };
    if !pkt.translated {
        check_client_mtu(pkt, tunnel)?;
        update_ecn_and_ttl(ctx, pkt)?;
        if pkt.path.crosses() {
            pkt.to_client = true;
            return Ok(NAT64);
        }
        if pkt.path.mode == Mode::Nat as u8 {
            check_next(rewrite_reply(ctx))?;
        }
        part_clamp(ctx);
    }
    let arm = pkt.answer.gateway.arm;
    let own = runtime_config().map_or([0; 6], |config| config.port(arm).mac());
    let macs = Macs::new(pkt.answer.gateway.gateway_mac, own);
    match tunnel {
        None => {
            let vlan = pkt.answer.gateway.vlan;
            plain_frame(ctx, pkt, &macs, vlan)?;
        }
        Some(_) => check_next(part_to_gateway(ctx))?,
    }
    Ok(pkt.transmit(VerdictCounter::Answer, arm))
}

/// Rejects a packet that exceeds its gateway's inner MTU or, if it is translated to the other
/// family and goes to a plain client, the MTU of the client's arm.
#[inline(always)]
fn check_client_mtu(pkt: &mut PacketState, tunnel: Option<&Tunnel>) -> Result<(), u32> {
    let (limit, reports) = match tunnel {
        Some(tunnel) => (tunnel.inner_mtu, tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0),
        None if pkt.path.crosses() => (part_mtu_of(pkt.answer.gateway.arm.into()) as u16, true),
        None => return Ok(()),
    };
    let (len, mtu) = if pkt.path.crosses() {
        (translated_len(pkt), translate::sender_mtu(&pkt.inner, limit))
    } else {
        (u32::from(pkt.inner.end - pkt.inner.at), limit)
    };
    if limit == 0 || len <= u32::from(limit) {
        return Ok(());
    }
    Err(match reports && reports_too_big(pkt) {
        true => pkt.too_big(mtu),
        false => pkt.drop(DropReason::TooBig),
    })
}

/// Returns the MTU of an arm's port in bytes; 0 if unknown.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_mtu_of(arm: u32) -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let mut locals = pkt.set().settings().locals.iter();
    locals.find(|local| u32::from(local.arm) == arm).map_or(0, |local| local.mtu.into())
}

/// Copies the path and leg for a reply.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_answer() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let from_initiator = pkt.hit.from_initiator(pkt.side);
    match flows().answer(&pkt.hit, from_initiator, &mut pkt.answer) {
        Ok(()) => CONTINUE,
        Err(PathError::Gone) => pkt.drop(DropReason::NoFlow),
        Err(PathError::Busy) => part_answer_locked(),
    }
}

/// As [`part_answer`], for a flow whose leg another CPU is updating.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_answer_locked() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let from_initiator = pkt.hit.from_initiator(pkt.side);
    match flows().answer_locked(&pkt.hit, from_initiator, &mut pkt.answer) {
        Ok(()) => CONTINUE,
        Err(PathError::Gone) => pkt.drop(DropReason::NoFlow),
        Err(PathError::Busy) => pkt.drop(DropReason::FlowContended),
    }
}

/// Writes the outer headers towards the flow's gateway: those of its latest packet, reversed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_to_gateway(ctx: *mut xdp_md) -> u32 {
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else { return FINISH };
    let set = pkt.set();
    let leg = pkt.answer.gateway;
    let Some(tunnel) = set.tunnel_to_gateway(u32::from(leg.tunnel)) else {
        return pkt.drop(DropReason::NoFlow);
    };
    // Gateways use GENEVE or VXLAN.
    let kind =
        if tunnel.kind == TunnelKind::Vxlan as u8 { TunnelKind::Vxlan } else { TunnelKind::Geneve };
    let inspected =
        pkt.path.mode != Mode::Nat as u8 && !pkt.untracked && pkt.hit.from_initiator(pkt.side);
    let len = usize::from(leg.option_len).min(MAX_OPTIONS) & 0xfc;
    // SAFETY: the buffer has 256 bytes, and `len` is at most 252. A safe slice would require a
    // bounds check that the verifier can follow.
    let options = unsafe { core::slice::from_raw_parts(pkt.answer.options.as_ptr().cast(), len) };
    let own = config.port(leg.arm).mac();
    let outer = gateway_outer(&set, (kind, tunnel, inspected), &leg, own, options, &pkt.inner);
    match encapsulate(ctx, pkt, &outer) {
        Ok(()) => CONTINUE,
        Err(next) => next,
    }
}

/// Returns the outer headers towards a flow's gateway: those of its latest packet, reversed.
/// `inspected`: the client's packet returns from an inspection appliance. Azure expects such
/// packets of the external tunnel on the internal one. Replies use the tunnel of the request.
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
    outer::to_gateway(kind, leg, own, options, inner, (tunnel, peer))
}
