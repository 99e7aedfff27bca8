//! Origin of a gateway's packet, passed to the backend in Weir's own GENEVE options, and the route
//! back for replies whose flow is in no table: see fastpath's file of this name.

use crate::frame::window;
use crate::here::page;
use crate::next::{FINISH, OPEN};
use crate::work::{Arrival, Work, work};
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
use tables::return_leg::{ReturnLegs, is_of_itself};

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

/// Flag beside the cookie that [`part_cookie`] returns.
const COOKIE: u64 = 1 << 32;

/// Returns the packet's origin, if it comes from a gateway with exactly the three options in their
/// usual order.
#[inline(always)]
pub fn origin(ctx: *mut xdp_md, work: &Work, gateway: u16) -> Option<Origin> {
    if work.arrival != Arrival::Gateway {
        return None;
    }
    let cookie = part_cookie(ctx);
    if cookie & COOKIE == 0 {
        return None;
    }
    Origin::new(gateway, &work.outer.src, work.outer.sport, cookie as u32)
}

/// Returns the cookie of the packet's three options with [`COOKIE`], if they are in their usual
/// order and there are no others; else 0. Stores the attachment in [`Work::attachment`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_cookie(ctx: *mut xdp_md) -> u64 {
    let Some(work) = work() else { return 0 };
    let Some(tunnel) = work.set().tunnel(work.tunnel) else { return 0 };
    let (at, len, class) = (work.options_at, work.options_len, tunnel.option_class);
    match geneve::usual_options(&window(ctx), at, len, class) {
        Some(options) => {
            work.attachment = options.attachment;
            COOKIE | u64::from(options.cookie)
        }
        None => 0,
    }
}

/// Records the route back to the endpoint and node of a gateway's packet, whose leg is
/// [`Work::leg`], when a flow by a GENEVE tunnel begins or changes its leg.
#[inline(always)]
pub fn note(ctx: *mut xdp_md, work: &Work) {
    if work.arrival == Arrival::Gateway && part_cookie(ctx) & COOKIE != 0 {
        part_note_leg();
    }
}

/// As [`note`], for a packet with the usual options.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_note_leg() -> u32 {
    let Some(work) = work() else { return FINISH };
    let set = work.set();
    let geneve = TunnelKind::Geneve as u8;
    if set.service(work.service).is_none_or(|service| service.tunnel != geneve) {
        return OPEN;
    }
    let Some(tunnel) = set.tunnel(work.tunnel) else { return OPEN };
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        let port = work.leg.node_port;
        work.leg.node_port = 0;
        let legs = ReturnLegs::new(&Region);
        legs.note(work.scope_key, work.attachment, tunnel.gateway, &work.leg);
        work.leg.node_port = port;
    }
    OPEN
}

/// Returns whether a backend's packet of an unknown flow returns by the origin that it contains;
/// sets its service, backend and path if so.
#[inline(always)]
pub fn goes_back(ctx: *mut xdp_md, work: &mut Work) -> bool {
    let quoted = if work.quotes { Some(&work.quoted) } else { None };
    if work.hash == 0 || !is_of_itself(&work.inner, quoted) {
        return false;
    }
    let cookie = part_cookie(ctx);
    if cookie & COOKIE == 0 {
        return false;
    }
    work.cookie = cookie as u32;
    if part_named() != OPEN {
        return false;
    }
    // The destination of a returned packet is the frontend; the source of a reply is the frontend.
    for to_frontend in [1, 0] {
        work.service = part_target(to_frontend);
        if work.service != NONE && part_selected(to_frontend) == OPEN {
            work.untracked = true;
            return true;
        }
    }
    work.service = NONE;
    false
}

/// Returns [`OPEN`] if the options are those with which this flow's packets are sent to the
/// backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_named() -> u32 {
    let Some(work) = work() else { return FINISH };
    match Origin::of_flow(work.attachment, work.cookie, work.hash) {
        Some(_) => OPEN,
        None => FINISH,
    }
}

/// Returns the flow's packet: the received one, or the one that it quotes.
#[inline(always)]
fn flows_packet(work: &Work) -> &Ip {
    if work.quotes { &work.quoted } else { &work.inner }
}

/// Returns the service whose frontend is the destination (1) or the source (0) of the flow's
/// packet, or [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_target(to_frontend: u32) -> u32 {
    let Some(work) = work() else { return NONE };
    let ip = flows_packet(work);
    let (addr, port): (&Addr, u16) =
        if to_frontend != 0 { (&ip.dst, ip.dport) } else { (&ip.src, ip.sport) };
    work.set().frontend(work.scope_key, addr, port, ip.proto).unwrap_or(NONE)
}

/// Returns [`OPEN`] if the packet comes from the backend that selection picks for its flow.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_selected(to_frontend: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let set = work.set();
    let Some(service) = set.service(work.service) else { return FINISH };
    let ip = flows_packet(work);
    let ends = if to_frontend != 0 { (&ip.src, &ip.dst) } else { (&ip.dst, &ip.src) };
    if !set.admits(service, ends.0) {
        return FINISH;
    }
    let from = work.outer.src;
    let Some(backend) = set.selected(service, ends, work.hash, &from) else { return FINISH };
    work.backend = backend;
    work.path = Forward::of_answer(&work.inner, work.service, backend, &from);
    OPEN
}

/// Writes the route back for a packet that [`goes_back`] to [`Work::answer`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_return_leg() -> u32 {
    let Some(work) = work() else { return FINISH };
    let set = work.set();
    if let Some(origin) = Origin::of_flow(work.attachment, work.cookie, work.hash)
        && ReturnLegs::new(&Region).answer(&set, work.scope_key, &origin, &mut work.answer)
    {
        page().count(Counter::AnswersUntracked, 1);
        return OPEN;
    }
    unknown(work)
}

/// Drops a reply, or an error about one, that belongs to no flow.
#[inline(always)]
pub fn unknown(work: &mut Work) -> u32 {
    let quotes = work.quotes;
    work.drop(if quotes { DropReason::IcmpUnknownFlow } else { DropReason::NoFlow })
}
