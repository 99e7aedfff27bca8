//! The usual reply: its whole journey in one program.
//!
//! It forwards a whole TCP or UDP packet from a backend, plain or in Weir's GENEVE with the usual
//! options, of a known flow whose state it leaves unchanged. The packet returns to the flow's
//! gateway (GENEVE with the usual options, or VXLAN) or to a plain client. As in [`crate::usual`],
//! the same functions of `packet` and `tables` do the work of the stages, with constant offsets.
//! Any other packet continues with the first stage, unmodified.
//!
//! `TUNNEL` selects Weir's GENEVE over the packet's own family instead of plain; `V6` selects the
//! family.

use crate::decap::part_port;
use crate::familiar::{era, recognise_backend};
use crate::frame::{cut_end, move_start, window};
use crate::front::gateway_outer;
use crate::here::flows;
use crate::lately;
use crate::next::{FINISH, OUTER, go, raw};
use crate::place::place;
use crate::ports::Place;
use crate::usual::{Asking, Came, Exit, ask, ethertype, front_len, is_to_us, leave, tcp_flags};
use crate::work::{Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::checksum::ipv4_header_ok;
use packet::ethernet::{self, Ethernet, Macs};
use packet::flow::SCOPE_PLAIN;
use packet::geneve::{self, OWN_OPTIONS};
use packet::ip::{Ip, L4 as Upper, UDP};
use packet::rewrite::{self, Rewrite};
use packet::tunnel::{Outer, TunnelKind, ecn_decap, write_outer};
use packet::vxlan;
use packet::window::{Short, Window};
use tables::counters::VerdictCounter;
use tables::flow::{Answered, NO_TUNNEL, PATH_CROSSES, PATH_REDIRECT};
use tables::reason::DropReason;
use tables::record::{Mode, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident $tunnel:literal $v6:literal;)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(ctx: XdpContext) -> u32 {
            let ctx = raw(&ctx);
            let (Some(work), Some(place)) = (work(), place()) else { return go(ctx, FINISH) };
            match answer::<$tunnel, $v6>(ctx, work, place) {
                Ok(action) => action,
                Err(_) => go(ctx, OUTER),
            }
        }
    )*};
}

stages! {
    /// Stage of plain IPv4 packets.
    plain4 false false;
    /// Stage of plain IPv6 packets.
    plain6 false true;
    /// Stage of IPv4 in a backend's GENEVE.
    tunnel4 true false;
    /// Stage of IPv6 in a backend's GENEVE.
    tunnel6 true true;
}

/// Offset of the outer IP packet.
const IP: u16 = ethernet::HEADER as u16;

/// Offset of the packet that the verdict concerns.
const fn inner_at(tunnel: bool, v6: bool) -> u16 {
    if tunnel { front_len(v6) } else { IP }
}

/// Offset of the header after the IP header.
const fn upper_at(at: u16, v6: bool) -> u16 {
    at + if v6 { 40 } else { 20 }
}

/// Forwards a usual reply and returns the XDP action; otherwise returns the next stage as an error.
#[inline(always)]
fn answer<const TUNNEL: bool, const V6: bool>(
    ctx: *mut xdp_md,
    work: &mut Work,
    place: &Place,
) -> Result<u32, u32> {
    let came = work.came_as();
    let set = &Region.tables(came.generation);
    let w = window(ctx);
    let scope = read::<TUNNEL, V6>(&w, work, set, place, &came).ok_or(OUTER)?;
    let asking = ask::<false>(scope, packet::<TUNNEL>(work)).ok_or(OUTER)?;
    if !is_sound::<TUNNEL, V6>(&w, work, place, came.arm) {
        return Err(OUTER);
    }
    let met = meet::<TUNNEL>(work, &asking).ok_or(OUTER)?;
    let tunnel = goes::<TUNNEL, V6>(work, set, &met).ok_or(OUTER)?;
    flows().touch_answered(&met, &work.usual.forward, came.now_s);
    let front = match tunnel {
        None => ethernet::HEADER as u16,
        Some(tunnel) => gateway_front(is_vxlan(tunnel)),
    };
    let ip = packet::<TUNNEL>(work);
    let left = u64::from(ip.end - inner_at(TUNNEL, V6)) + u64::from(front);
    let (verdict, arm) = (VerdictCounter::Answer, work.usual.gateway.arm);
    let (service, backend) = (work.usual.forward.service, work.usual.forward.backend);
    let exit = Exit { verdict, arm, service, backend, left };
    let done = write::<TUNNEL, V6>(ctx, work, set, place, (&met, tunnel));
    Ok(leave(ctx, work, place, &came, (work.came, exit, done)))
}

/// The packet that the verdict concerns.
#[inline(always)]
fn packet<const TUNNEL: bool>(work: &Work) -> &Ip {
    if TUNNEL { &work.inner } else { &work.outer }
}

/// Reads the headers and returns the scope of the packet's flow.
#[inline(always)]
fn read<const TUNNEL: bool, const V6: bool>(
    w: &Window<'_>,
    work: &mut Work,
    set: &TableSet<'static>,
    place: &Place,
    came: &Came,
) -> Option<u32> {
    let eth = Ethernet::parse(w).ok()?;
    let plain = eth.ethertype == ethertype(V6) && eth.l3 == IP;
    if !plain || !work.outer.read_usual(w, IP, ethertype(V6)) || work.outer.src.is_martian() {
        return None;
    }
    if !TUNNEL {
        let may_be_tunnelled = work.outer.proto == UDP && part_port() != 0;
        return if may_be_tunnelled { None } else { Some(SCOPE_PLAIN) };
    }
    let geneve = upper_at(IP, V6) + 8;
    let header = geneve::parse(w, geneve).ok()?;
    let options = usize::from(geneve) + geneve::HEADER;
    let word = |at: usize| w.load(options + at).map_or(0, u64::from_be);
    let named = (word(4), word(16));
    let known = recognise_backend(era(place, came.now_s), set.generation(), &work.outer, named)?;
    let tunnel = set.tunnel(known.tunnel.into())?;
    let class = tunnel.option_class;
    let usual = geneve::usual_options(w, options as u16, header.opt_len, class).is_some();
    if !usual || header.control || header.protocol != ethertype(V6) || work.outer.proto != UDP {
        return None;
    }
    let reads = work.inner.read_usual(w, inner_at(TUNNEL, V6), ethertype(V6));
    (reads && !set.may_be_probe(&work.inner.dst)).then_some(known.scope)
}

/// Returns whether it is a frame to this port in one buffer with valid headers. It may have
/// Ethernet padding.
#[inline(always)]
fn is_sound<const TUNNEL: bool, const V6: bool>(
    w: &Window<'_>,
    work: &Work,
    place: &Place,
    arm: u8,
) -> bool {
    let ip = packet::<TUNNEL>(work);
    let (end, l4) = (ip.end, upper_at(IP, V6));
    let udp_len = w.be16(usize::from(l4) + 4).unwrap_or(0);
    let outer = Ip { at: IP, l4, v6: V6, ..work.outer };
    is_to_us(w, place, arm)
        && (V6 || ipv4_header_ok(w, &outer))
        && (!TUNNEL || l4.wrapping_add(udp_len) == end && work.outer.end == end)
        && usize::from(end) <= w.len()
        && w.len() == w.frame_len()
        && ip.ttl > 1
        && matches!(ip.kind, Upper::Tcp { .. } | Upper::Udp)
}

/// Finds the flow through its recent-flow hint, or else through the index, and then stores a hint.
/// Fills [`Work::usual`].
#[inline(always)]
fn meet<const TUNNEL: bool>(work: &mut Work, asking: &Asking) -> Option<Answered<'static>> {
    let (flows, by) = (flows(), (&asking.key, asking.side));
    if asking.likely.is_there() {
        let met = met::<TUNNEL>(work, asking, &asking.likely);
        if met.is_none() {
            lately::forget(asking.hash);
        }
        return met;
    }
    let hit = flows.find_likely(&flows.ask(asking.hash)?, by.0)?;
    let request = !TUNNEL && hit.is_front() && hit.from_initiator(by.1);
    if request {
        return None;
    }
    lately::remember(asking.hash, hit.path);
    met::<TUNNEL>(work, asking, &flows.likely(hit.path))
}

/// Returns the flow if its path is this one.
#[inline(always)]
fn met<const TUNNEL: bool>(
    work: &mut Work,
    asking: &Asking,
    likely: &tables::flow::Likely<'static>,
) -> Option<Answered<'static>> {
    let by = (&asking.key, asking.side);
    match TUNNEL {
        true => flows().meet_answer::<false>(likely, by, &mut work.usual),
        false => flows().meet_answer::<true>(likely, by, &mut work.usual),
    }
}

/// Returns the tunnel of the flow's gateway, or `Some(None)` for a plain client; `None` if the
/// packet needs the stages.
#[inline(always)]
fn goes<const TUNNEL: bool, const V6: bool>(
    work: &Work,
    set: &TableSet<'static>,
    met: &Answered<'_>,
) -> Option<Option<&'static Tunnel>> {
    let (ip, forward, leg) = (packet::<TUNNEL>(work), &work.usual.forward, &work.usual.gateway);
    let goes = forward.flags & (PATH_REDIRECT | PATH_CROSSES) == 0
        && met.stays(forward, tcp_flags(ip))
        && leg.vlan == 0
        && (!TUNNEL || work.outer.src == forward.backend_addr)
        && (!TUNNEL || ecn_decap(work.outer.tos, ip.tos).is_some());
    if !goes {
        return None;
    }
    if leg.tunnel == NO_TUNNEL {
        return Some(None);
    }
    let tunnel = set.tunnel(leg.tunnel.into())?;
    let len = ip.end - inner_at(TUNNEL, V6);
    let fits = tunnel.inner_mtu == 0 || len <= tunnel.inner_mtu;
    let own_options = usize::from(leg.option_len) == OWN_OPTIONS;
    (fits && leg.local.is_v4() && own_options != is_vxlan(tunnel)).then_some(Some(tunnel))
}

#[inline(always)]
fn is_vxlan(tunnel: &Tunnel) -> bool {
    tunnel.kind == TunnelKind::Vxlan as u8
}

/// Bytes in front of the packet towards a gateway, over IPv4.
const fn gateway_front(vxlan: bool) -> u16 {
    let inner_eth = vxlan::HEADER + ethernet::HEADER;
    if vxlan { upper_at(IP, false) + 8 + inner_eth as u16 } else { front_len(false) }
}

/// Writes the reply in its final form.
#[inline(always)]
fn write<const TUNNEL: bool, const V6: bool>(
    ctx: *mut xdp_md,
    work: &Work,
    set: &TableSet<'static>,
    place: &Place,
    (met, tunnel): (&Answered<'_>, Option<&Tunnel>),
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let (w, at) = (&mut window(ctx), inner_at(TUNNEL, V6));
    let mut ip = Ip { at, l4: upper_at(at, V6), v6: V6, ..*packet::<TUNNEL>(work) };
    if TUNNEL {
        ip.tos = rewrite::take_congestion(w, &work.outer, &ip).or(Err(DropReason::TooShort))?;
    }
    rewrite::decrement_ttl(w, &ip).map_err(short)?;
    let usual = &work.usual;
    if usual.forward.mode == Mode::Nat as u8 {
        let (dst, dport) = usual.front.end(met.initiator);
        let (src, sport) = usual.front.end(met.initiator.other());
        rewrite::nat(w, &ip, &Rewrite { src, sport, dst, dport }).map_err(short)?;
    }
    // The frame still has its original length.
    let padding = work.came as i32 - i32::from(ip.end);
    if padding > 0 {
        // Cannot fail: the frame is in one buffer and longer than the padding.
        cut_end(ctx, padding);
    }
    match tunnel {
        None => {
            let own = place.port(usual.gateway.arm).mac();
            let macs = Macs::new(usual.gateway.gateway_mac, own);
            start_at(ctx, at, IP)?;
            ethernet::write(&mut window(ctx), &macs, 0, ethertype(V6)).map_err(short)
        }
        Some(tunnel) if is_vxlan(tunnel) => {
            to_gateway::<true>(ctx, work, set, place, (tunnel, &ip, met.from_initiator))
        }
        Some(tunnel) => {
            to_gateway::<false>(ctx, work, set, place, (tunnel, &ip, met.from_initiator))
        }
    }
}

/// Resizes the headers of a packet at offset `at` to `front` bytes.
#[inline(always)]
fn start_at(ctx: *mut xdp_md, at: u16, front: u16) -> Result<(), DropReason> {
    let moved = at == front || move_start(ctx, i32::from(at) - i32::from(front));
    if moved { Ok(()) } else { Err(DropReason::NoHeadroom) }
}

/// Writes the outer headers towards the flow's gateway.
#[inline(always)]
fn to_gateway<const VXLAN: bool>(
    ctx: *mut xdp_md,
    work: &Work,
    set: &TableSet<'static>,
    place: &Place,
    (tunnel, ip, from_initiator): (&Tunnel, &Ip, bool),
) -> Result<(), DropReason> {
    let usual = &work.usual;
    let kind = if VXLAN { TunnelKind::Vxlan } else { TunnelKind::Geneve };
    let inspected = usual.forward.mode != Mode::Nat as u8 && from_initiator;
    // SAFETY: the same size, and any bytes are valid.
    let options = unsafe { &*(&raw const usual.options).cast::<[u8; OWN_OPTIONS]>() };
    let options: &[u8] = if VXLAN { &[] } else { options };
    let own = place.port(usual.gateway.arm).mac();
    let to = (kind, tunnel, inspected);
    let outer = gateway_outer(set, to, &usual.gateway, own, options, ip);
    // The values are known to be such, and are repeated as constants for the compiler.
    let outer =
        Outer { vlan: 0, src: outer.src.in_words(), dst: Addr::v4(outer.dst.words[3]), ..outer };
    start_at(ctx, ip.at, gateway_front(VXLAN))?;
    let len = usize::from(ip.end - ip.at);
    write_outer(&mut window(ctx), &outer, len).map_err(|Short| DropReason::TooShort)
}
