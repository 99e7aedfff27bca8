//! Origin of a gateway's packet (gateway, node, port and flow cookie), passed to the backend in
//! Weir's own GENEVE options, and the return path of replies whose flow is in no table: see
//! fastpath's `origin`.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::page;
use crate::frame::window;
use crate::next::{CONTINUE, FINISH};
use crate::packet_state::{Arrival, PacketState, packet_state};
use aya_ebpf::bindings::xdp_md;
use packet::addr::Addr;
use packet::geneve::{self, OWN_OPTIONS};
use packet::ip::Ip;
use packet::origin::{Origin, without_origin};
use tables::counters::Counter;
use tables::flow::Forward;
use tables::reason::DropReason;
use tables::record::{NONE, TUNNEL_BACKEND, TunnelKind};
use tables::region::Region;
use tables::return_leg::{ReturnLegs, identifies_flow};

/// Returns the options of a packet to a backend, as words in memory order.
#[inline(always)]
pub fn options(
    scope_key: u64,
    gateway: u16,
    origin: Option<Origin>,
    hash: u64,
) -> [u64; OWN_OPTIONS / 8] {
    let (attachment, cookie) = match origin {
        Some(origin) => (origin.attachment(hash), origin.cookie),
        None => (without_origin(gateway), hash as u32),
    };
    geneve::own_words(scope_key, attachment, cookie)
}

/// Flag in the result of [`part_cookie`]: the low 32 bits are the cookie.
const COOKIE: u64 = 1 << 32;

/// Returns the packet's origin, if it comes from a gateway with exactly the three options in their
/// usual order.
#[inline(always)]
pub fn origin(ctx: *mut xdp_md, pkt: &PacketState, gateway: u16) -> Option<Origin> {
    if pkt.arrival != Arrival::Gateway {
        return None;
    }
    let cookie = part_cookie(ctx);
    if cookie & COOKIE == 0 {
        return None;
    }
    Origin::new(gateway, &pkt.outer.src, pkt.outer.sport, cookie as u32)
}

/// Returns the cookie of the packet's three options with [`COOKIE`], if they are in their usual
/// order and there are no others; else 0. Stores the attachment in [`PacketState::attachment`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_cookie(ctx: *mut xdp_md) -> u64 {
    let Some(pkt) = packet_state() else { return 0 };
    let Some(tunnel) = pkt.set().tunnel(pkt.tunnel) else { return 0 };
    let (at, len, class) = (pkt.options_at, pkt.options_len, tunnel.option_class);
    match geneve::usual_options(&window(ctx), at, len, class) {
        Some(options) => {
            pkt.attachment = options.attachment;
            COOKIE | u64::from(options.cookie)
        }
        None => 0,
    }
}

/// Records the return leg (by which replies without a table entry reach the gateway) for the
/// endpoint and node of a gateway's packet, whose leg is [`PacketState::leg`]. Called when a flow
/// begins or its leg changes; has no effect unless the service's tunnel is GENEVE.
#[inline(always)]
pub fn record_return_leg(ctx: *mut xdp_md, pkt: &PacketState) {
    if pkt.arrival == Arrival::Gateway && part_cookie(ctx) & COOKIE != 0 {
        part_note_leg();
    }
}

/// As [`record_return_leg`], for a packet with the usual options.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_note_leg() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let set = pkt.set();
    let geneve = TunnelKind::Geneve as u8;
    if set.service(pkt.service).is_none_or(|service| service.tunnel != geneve) {
        return CONTINUE;
    }
    let Some(tunnel) = set.tunnel(pkt.tunnel) else { return CONTINUE };
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        // The origin contains the node's port, so the recorded leg has none.
        let port = pkt.leg.node_port;
        pkt.leg.node_port = 0;
        let legs = ReturnLegs::new(&Region);
        legs.record(pkt.scope_key, pkt.attachment, tunnel.gateway, &pkt.leg);
        pkt.leg.node_port = port;
    }
    CONTINUE
}

/// Returns whether a backend's packet of an unknown flow can be returned by the origin in its
/// options; sets its service, backend and path if so.
#[inline(always)]
pub fn matches_backend(ctx: *mut xdp_md, pkt: &mut PacketState) -> bool {
    let quoted = if pkt.has_quoted { Some(&pkt.quoted) } else { None };
    if pkt.hash == 0 || !identifies_flow(&pkt.inner, quoted) {
        return false;
    }
    let cookie = part_cookie(ctx);
    if cookie & COOKIE == 0 {
        return false;
    }
    pkt.cookie = cookie as u32;
    if part_check_origin() != CONTINUE {
        return false;
    }
    // The destination of a returned packet is the frontend; the source of a reply is the frontend.
    for to_frontend in [1, 0] {
        pkt.service = part_target(to_frontend);
        if pkt.service != NONE && part_selected(to_frontend) == CONTINUE {
            pkt.untracked = true;
            return true;
        }
    }
    pkt.service = NONE;
    false
}

/// Returns [`CONTINUE`] if the options are those with which this flow's packets are sent to the
/// backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_check_origin() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match Origin::of_flow(pkt.attachment, pkt.cookie, pkt.hash) {
        Some(_) => CONTINUE,
        None => FINISH,
    }
}

/// Returns the flow's packet: the received one, or the one that it quotes.
#[inline(always)]
fn flows_packet(pkt: &PacketState) -> &Ip {
    if pkt.has_quoted { &pkt.quoted } else { &pkt.inner }
}

/// Returns the service whose frontend is the destination (1) or the source (0) of the flow's
/// packet, or [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_target(to_frontend: u32) -> u32 {
    let Some(pkt) = packet_state() else { return NONE };
    let ip = flows_packet(pkt);
    let (addr, port): (&Addr, u16) =
        if to_frontend != 0 { (&ip.dst, ip.dport) } else { (&ip.src, ip.sport) };
    pkt.set().frontend(pkt.scope_key, addr, port, ip.proto).unwrap_or(NONE)
}

/// Returns [`CONTINUE`] if the packet comes from the backend that selection picks for its flow.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_selected(to_frontend: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let set = pkt.set();
    let Some(service) = set.service(pkt.service) else { return FINISH };
    let ip = flows_packet(pkt);
    let ends = if to_frontend != 0 { (&ip.src, &ip.dst) } else { (&ip.dst, &ip.src) };
    if !set.admits(service, ends.0) {
        return FINISH;
    }
    let from = pkt.outer.src;
    let Some(backend) = set.select_stateless(service, ends, pkt.hash, &from) else { return FINISH };
    pkt.backend = backend;
    pkt.path = Forward::of_reply(&pkt.inner, pkt.service, backend, &from);
    CONTINUE
}

/// Writes to [`PacketState::answer`] the return leg of a packet for which [`matches_backend`]
/// returned true.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_return_leg() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let set = pkt.set();
    if let Some(origin) = Origin::of_flow(pkt.attachment, pkt.cookie, pkt.hash)
        && ReturnLegs::new(&Region).answer(&set, pkt.scope_key, &origin, &mut pkt.answer)
    {
        page().count(Counter::AnswersUntracked, 1);
        return CONTINUE;
    }
    unknown_flow(pkt)
}

/// Drops a reply, or an error about one, that belongs to no flow.
#[inline(always)]
pub fn unknown_flow(pkt: &mut PacketState) -> u32 {
    let has_quoted = pkt.has_quoted;
    pkt.drop(if has_quoted { DropReason::IcmpUnknownFlow } else { DropReason::NoFlow })
}
