//! Fast path of the usual reply, in one program.
//!
//! This program forwards a whole TCP or UDP packet from a backend, plain or in Weir's GENEVE with
//! the usual options, that belongs to a known flow and leaves the flow's state unchanged. The
//! packet returns to the flow's gateway (GENEVE with the usual options, or VXLAN) or to a plain
//! client. As in [`crate::fast_forward`], the same functions of `packet` and `tables` do the work
//! of the stages, with constant offsets. Any other packet continues with the first stage,
//! unmodified.
//!
//! `TUNNEL` selects Weir's GENEVE over the packet's own family instead of plain; `V6` selects the
//! family.

use crate::cpu_views::flows;
use crate::decap::part_kind_on_port;
use crate::fast_forward::{
    FlowLookup, TxInfo, begin_lookup, ethertype, front_len, is_own_mac, leave, tcp_flags,
};
use crate::flow_hints;
use crate::frame::{cut_end, move_start, window};
use crate::front::gateway_outer;
use crate::header_cache::{cache_epoch, lookup_backend};
use crate::next::{FINISH, OUTER, raw, run_stage};
use crate::observe::{is_reply_observed, run_observed};
use crate::packet_state::{PacketState, RxInfo, packet_state};
use crate::runtime::runtime_config;
use crate::runtime_config::RuntimeConfig;
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
use tables::flow::{NO_TUNNEL, PATH_CROSSES, PATH_REDIRECT, ReplyHit};
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
            let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else {
                return run_stage(ctx, FINISH);
            };
            let rx = pkt.rx_info();
            match answer::<$tunnel, $v6>(ctx, pkt, config, &rx) {
                Ok(action) => action,
                Err(next) => run_observed(ctx, pkt, config, &rx, next),
            }
        }
    )*};
}

// The arguments are the stage's name, `TUNNEL` and `V6`.
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
    pkt: &mut PacketState,
    config: &RuntimeConfig,
    rx: &RxInfo,
) -> Result<u32, u32> {
    let set = &Region.tables(rx.generation);
    let w = window(ctx);
    let scope = parse::<TUNNEL, V6>(&w, pkt, set, config, rx).ok_or(OUTER)?;
    let lookup = begin_lookup::<false>(scope, packet::<TUNNEL>(pkt)).ok_or(OUTER)?;
    if !is_well_formed::<TUNNEL, V6>(&w, pkt, config, rx.arm) {
        return Err(OUTER);
    }
    let hit = find_flow::<TUNNEL>(pkt, &lookup).ok_or(OUTER)?;
    let tunnel = gateway_tunnel_of::<TUNNEL, V6>(pkt, set, &hit).ok_or(OUTER)?;
    if is_reply_observed(config, rx.arm, &hit, TUNNEL) {
        return Err(OUTER);
    }
    flows().touch_reply(&hit, &pkt.reply_path.forward, rx.now_s);
    let front = match tunnel {
        None => ethernet::HEADER as u16,
        Some(tunnel) => gateway_front(is_vxlan(tunnel)),
    };
    let ip = packet::<TUNNEL>(pkt);
    let tx_len = u64::from(ip.end - inner_at(TUNNEL, V6)) + u64::from(front);
    let (verdict, arm) = (VerdictCounter::Answer, pkt.reply_path.gateway.arm);
    let (service, backend) = (pkt.reply_path.forward.service, pkt.reply_path.forward.backend);
    let exit = TxInfo { verdict, arm, service, backend, tx_len };
    let written = write::<TUNNEL, V6>(ctx, pkt, set, config, (&hit, tunnel));
    Ok(leave(ctx, pkt, config, rx, (pkt.rx_len, exit, written)))
}

/// The packet that the verdict concerns.
#[inline(always)]
fn packet<const TUNNEL: bool>(pkt: &PacketState) -> &Ip {
    if TUNNEL { &pkt.inner } else { &pkt.outer }
}

/// Reads the headers and returns the scope of the packet's flow.
#[inline(always)]
fn parse<const TUNNEL: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &mut PacketState,
    set: &TableSet<'static>,
    config: &RuntimeConfig,
    rx: &RxInfo,
) -> Option<u32> {
    let eth = Ethernet::parse(w).ok()?;
    let plain = eth.ethertype == ethertype(V6) && eth.l3 == IP;
    if !plain || !pkt.outer.read_usual(w, IP, ethertype(V6)) || pkt.outer.src.is_martian() {
        return None;
    }
    if !TUNNEL {
        let may_be_tunneled = pkt.outer.proto == UDP && part_kind_on_port() != 0;
        return if may_be_tunneled { None } else { Some(SCOPE_PLAIN) };
    }
    let geneve = upper_at(IP, V6) + 8;
    let header = geneve::parse(w, geneve).ok()?;
    let options = usize::from(geneve) + geneve::HEADER;
    let word = |at: usize| w.load(options + at).map_or(0, u64::from_be);
    let options_key = (word(4), word(16));
    let cached =
        lookup_backend(cache_epoch(config, rx.now_s), set.generation(), &pkt.outer, options_key)?;
    let tunnel = set.tunnel(cached.tunnel.into())?;
    let class = tunnel.option_class;
    let has_usual_options =
        geneve::usual_options(w, options as u16, header.opt_len, class).is_some();
    if !has_usual_options
        || header.control
        || header.protocol != ethertype(V6)
        || pkt.outer.proto != UDP
    {
        return None;
    }
    let reads = pkt.inner.read_usual(w, inner_at(TUNNEL, V6), ethertype(V6));
    (reads && !set.may_be_probe(&pkt.inner.dst)).then_some(cached.scope)
}

/// Returns whether the frame is addressed to this port, is in one buffer and has valid headers. It
/// may have Ethernet padding.
#[inline(always)]
fn is_well_formed<const TUNNEL: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &PacketState,
    config: &RuntimeConfig,
    arm: u8,
) -> bool {
    let ip = packet::<TUNNEL>(pkt);
    let (end, l4) = (ip.end, upper_at(IP, V6));
    let udp_len = w.be16(usize::from(l4) + 4).unwrap_or(0);
    let outer = Ip { at: IP, l4, v6: V6, ..pkt.outer };
    is_own_mac(w, config, arm)
        && (V6 || ipv4_header_ok(w, &outer))
        && (!TUNNEL || l4.wrapping_add(udp_len) == end && pkt.outer.end == end)
        && usize::from(end) <= w.len()
        && w.len() == w.frame_len()
        && ip.ttl > 1
        && matches!(ip.kind, Upper::Tcp { .. } | Upper::Udp)
}

/// Finds the flow through its recent-flow hint. Without a hint, finds it through the index, and
/// stores a hint. Fills [`PacketState::reply_path`].
#[inline(always)]
fn find_flow<const TUNNEL: bool>(
    pkt: &mut PacketState,
    lookup: &FlowLookup,
) -> Option<ReplyHit<'static>> {
    let (flows, key) = (flows(), (&lookup.key, lookup.side));
    if lookup.candidate.is_valid() {
        let hit = match_path::<TUNNEL>(pkt, lookup, &lookup.candidate);
        if hit.is_none() {
            flow_hints::forget(lookup.hash);
        }
        return hit;
    }
    let hit = flows.find_likely(&flows.begin_lookup(lookup.hash)?, key.0)?;
    let request = !TUNNEL && hit.is_front() && hit.from_initiator(key.1);
    if request {
        return None;
    }
    flow_hints::remember(lookup.hash, hit.path);
    match_path::<TUNNEL>(pkt, lookup, &flows.candidate(hit.path))
}

/// Returns the flow if `candidate` is its path.
#[inline(always)]
fn match_path<const TUNNEL: bool>(
    pkt: &mut PacketState,
    lookup: &FlowLookup,
    candidate: &tables::flow::PathCandidate<'static>,
) -> Option<ReplyHit<'static>> {
    let key = (&lookup.key, lookup.side);
    match TUNNEL {
        true => flows().find_reply_by_path::<false>(candidate, key, &mut pkt.reply_path),
        false => flows().find_reply_by_path::<true>(candidate, key, &mut pkt.reply_path),
    }
}

/// Returns the tunnel of the flow's gateway, or `Some(None)` for a plain client; `None` if the
/// packet needs the stages.
#[inline(always)]
fn gateway_tunnel_of<const TUNNEL: bool, const V6: bool>(
    pkt: &PacketState,
    set: &TableSet<'static>,
    hit: &ReplyHit<'_>,
) -> Option<Option<&'static Tunnel>> {
    let (ip, forward, leg) =
        (packet::<TUNNEL>(pkt), &pkt.reply_path.forward, &pkt.reply_path.gateway);
    let forwards = forward.flags & (PATH_REDIRECT | PATH_CROSSES) == 0
        && hit.keeps_state(forward, tcp_flags(ip))
        && leg.vlan == 0
        && (!TUNNEL || pkt.outer.src == forward.backend_addr)
        && (!TUNNEL || ecn_decap(pkt.outer.tos, ip.tos).is_some());
    if !forwards {
        return None;
    }
    if leg.tunnel == NO_TUNNEL {
        return Some(None);
    }
    let tunnel = set.tunnel_to_gateway(leg.tunnel.into())?;
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
    pkt: &PacketState,
    set: &TableSet<'static>,
    config: &RuntimeConfig,
    (hit, tunnel): (&ReplyHit<'_>, Option<&Tunnel>),
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let (w, at) = (&mut window(ctx), inner_at(TUNNEL, V6));
    let mut ip = Ip { at, l4: upper_at(at, V6), v6: V6, ..*packet::<TUNNEL>(pkt) };
    if TUNNEL {
        ip.tos = rewrite::propagate_ecn(w, &pkt.outer, &ip).or(Err(DropReason::TooShort))?;
    }
    rewrite::decrement_ttl(w, &ip).map_err(short)?;
    let reply_path = &pkt.reply_path;
    if reply_path.forward.mode == Mode::Nat as u8 {
        let (dst, dport) = reply_path.front.end(hit.initiator);
        let (src, sport) = reply_path.front.end(hit.initiator.other());
        rewrite::nat(w, &ip, &Rewrite { src, sport, dst, dport }).map_err(short)?;
    }
    // The frame still has its original length.
    let padding = pkt.rx_len as i32 - i32::from(ip.end);
    if padding > 0 {
        // Cannot fail: the frame is in one buffer and longer than the padding.
        cut_end(ctx, padding);
    }
    match tunnel {
        None => {
            let own = config.port(reply_path.gateway.arm).mac();
            let macs = Macs::new(reply_path.gateway.gateway_mac, own);
            start_at(ctx, at, IP)?;
            ethernet::write(&mut window(ctx), &macs, 0, ethertype(V6)).map_err(short)
        }
        Some(tunnel) if is_vxlan(tunnel) => {
            to_gateway::<true>(ctx, pkt, set, config, (tunnel, &ip, hit.from_initiator))
        }
        Some(tunnel) => {
            to_gateway::<false>(ctx, pkt, set, config, (tunnel, &ip, hit.from_initiator))
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
    pkt: &PacketState,
    set: &TableSet<'static>,
    config: &RuntimeConfig,
    (tunnel, ip, from_initiator): (&Tunnel, &Ip, bool),
) -> Result<(), DropReason> {
    let reply_path = &pkt.reply_path;
    let kind = if VXLAN { TunnelKind::Vxlan } else { TunnelKind::Geneve };
    let inspected = reply_path.forward.mode != Mode::Nat as u8 && from_initiator;
    // SAFETY: both arrays have the same size, and any bytes are valid.
    let options = unsafe { &*(&raw const reply_path.options).cast::<[u8; OWN_OPTIONS]>() };
    let options: &[u8] = if VXLAN { &[] } else { options };
    let own = config.port(reply_path.gateway.arm).mac();
    let to = (kind, tunnel, inspected);
    let outer = gateway_outer(set, to, &reply_path.gateway, own, options, ip);
    // The leg has no VLAN tag and IPv4 addresses; repeating this lets the compiler omit the other
    // cases.
    let outer =
        Outer { vlan: 0, src: outer.src.in_words(), dst: Addr::v4(outer.dst.words[3]), ..outer };
    start_at(ctx, ip.at, gateway_front(VXLAN))?;
    let len = usize::from(ip.end - ip.at);
    write_outer(&mut window(ctx), &outer, len).map_err(|Short| DropReason::TooShort)
}
