//! Encap: `return`, the tunnel to a backend, and punting to the kernel; also the checks that all
//! exits share: next hop, MTU and TTL.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::frame::{cut_end, is_chained, length, move_start, window};
use crate::next::{CONTINUE, FINISH, check_next, next_stage, raw, run_stage};
use crate::origin::{options, origin};
use crate::packet_state::{Arrival, PacketState, Reply, packet_state};
use crate::runtime::{may_punt, request_neighbor, runtime_config};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::ethernet::{self, Macs};
use packet::flow::FlowKey;
use packet::geneve::OWN_OPTIONS;
use packet::ip::Ip;
use packet::rewrite::{self, EcnError};
use packet::tunnel::{Outer, TunnelKind, cross_in_place, outer_len, return_in_place, write_outer};
use tables::counters::VerdictCounter;
use tables::next_hop::NextHop;
use tables::outer;
use tables::punt::{PuntClass, PuntedPacket};
use tables::reason::DropReason;
use tables::record::{
    LOCAL_ADDRS, NONE, SERVICE_REPLY_TOO_BIG, Service, Settings, TUNNEL_BACKEND, TUNNEL_CROSS,
    TUNNEL_REPLY_TOO_BIG,
};
use tables::region::Region;

/// The stage: encapsulates, returns or punts the packet, by its verdict.
#[xdp(frags)]
pub fn encap(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = match pkt.verdict {
        VerdictCounter::Return => send_back(ctx, pkt),
        VerdictCounter::Punt => punt(ctx, pkt),
        VerdictCounter::Forward => probe(ctx, pkt),
        _ => to_backend(ctx, pkt),
    };
    run_stage(ctx, next_stage(next))
}

/// `return`: sends the frame back with its outer addresses swapped, otherwise unchanged.
#[inline(always)]
fn send_back(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let set = pkt.set();
    let peer = match set.tunnel(pkt.tunnel) {
        Some(t) if t.flags & TUNNEL_CROSS != 0 => set.tunnel(t.peer),
        _ => None,
    };
    let w = &mut window(ctx);
    let (sent, arm) = match peer {
        Some(peer) => (cross_in_place(w, &pkt.outer, peer.port, peer.vni), peer.arm),
        None => (return_in_place(w, &pkt.outer), pkt.arm),
    };
    if sent.is_err() {
        return Err(pkt.drop(DropReason::TooShort));
    }
    Ok(pkt.transmit(VerdictCounter::Return, arm))
}

/// Passes the packet to the kernel within the rate limit of its class: unchanged, or decapsulated
/// with an Ethernet header.
#[inline(always)]
fn punt(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    check_next(part_limit(ctx))?;
    if pkt.is_tunneled() {
        let own = runtime_config().map_or([0; 6], |config| config.port(pkt.arm).mac());
        plain_frame(ctx, pkt, &Macs::new(own, own), 0)?;
    }
    Ok(pkt.pass())
}

/// Counts the packet against the rate limit of its class, and drops it above the limit. A separate
/// function, because the stage's own stack has no space for it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_limit(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let punted = PuntedPacket {
        ethertype: pkt.eth.ethertype,
        ip: &pkt.inner,
        icmp: window(ctx).load(usize::from(pkt.inner.l4)).unwrap_or(0),
        plain: pkt.arrival == Arrival::Plain,
        probe: pkt.to_probe_source,
    };
    let settings = pkt.set().settings();
    let class = PuntClass::of(&punted, settings);
    let limit = settings.punt_limits[class as usize];
    if may_punt(pkt, class, limit) { CONTINUE } else { pkt.drop(class.reason()) }
}

/// Sends a probe of the kernel through the tunnel of its backend's service.
#[inline(always)]
fn probe(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let Some(backend) = pkt.set().backend(pkt.backend) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    let ip = &pkt.inner;
    let (key, _) = FlowKey::new(0, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    pkt.hash = key.hash(&Region.hash_key());
    pkt.path.backend_addr = backend.addr;
    let service = backend.probe_service;
    send(ctx, pkt, service, 0)?;
    Ok(pkt.transmit(VerdictCounter::Tunnel, pkt.exit_arm))
}

/// Sends a packet through its service's tunnel to the flow's backend.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    check_ttl(pkt)?;
    let gateway = match pkt.arrival {
        Arrival::Gateway => pkt.set().tunnel(pkt.tunnel).map_or(0, |t| t.gateway),
        _ => 0,
    };
    let service = pkt.service;
    send(ctx, pkt, service, gateway)?;
    Ok(pkt.transmit(VerdictCounter::Tunnel, pkt.exit_arm))
}

/// Writes the outer headers towards the backend of `pkt`, and sets [`PacketState::exit_arm`].
#[inline(always)]
fn send(ctx: *mut xdp_md, pkt: &mut PacketState, service: u32, gateway: u16) -> Result<(), u32> {
    let Some(service) = pkt.set().service(service) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    let route = next_hop(pkt)?;
    let to = pkt.path.backend_addr;
    let hashed_source = service.tunnel == TunnelKind::Ipip as u8 && to.is_v4();
    let selector = u32::from(route.arm) << 1 | u32::from(!to.is_v4());
    if part_local(selector | if hashed_source { HASHED_SOURCE } else { 0 }) != CONTINUE {
        return Err(pkt.drop(DropReason::NoRoute));
    }
    let Some(kind) = TunnelKind::from_u8(service.tunnel) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    let options = options(pkt.scope_key, gateway, origin(ctx, pkt, gateway), pkt.hash);
    let ends = (pkt.local, to);
    let mut outer = headers(kind, service, &route.macs, ends, pkt.hash, &options, &pkt.inner);
    let overhead = (outer_len(&outer) - ethernet::HEADER) as u16;
    check_backend_mtu(pkt, route.mtu.saturating_sub(overhead))?;
    if pkt.arrival != Arrival::Kernel {
        update_ecn_and_ttl(ctx, pkt)?;
        outer.tos = pkt.inner.tos;
    }
    if service.mss != 0 {
        part_clamp(ctx);
    }
    encapsulate(ctx, pkt, &outer)?;
    pkt.exit_arm = route.arm;
    Ok(())
}

/// Calls [`outer::to_backend`] with Weir's own options given as words.
#[inline(always)]
pub fn headers<'a>(
    kind: TunnelKind,
    service: &Service,
    macs: &Macs,
    ends: (Addr, Addr),
    hash: u64,
    options: &'a [u64; OWN_OPTIONS / 8],
    inner: &Ip,
) -> Outer<'a> {
    // SAFETY: both arrays have the same size, and any bytes are valid.
    let options = unsafe { &*(&raw const *options).cast::<[u8; OWN_OPTIONS]>() };
    outer::to_backend(kind, service, macs, ends, hash, options, inner)
}

/// The route to a backend.
pub struct Route {
    /// MAC addresses of the next hop and of the local port.
    pub macs: Macs,
    /// Path MTU in bytes.
    pub mtu: u16,
    /// Arm by which packets leave.
    pub arm: u8,
}

/// Returns the route to the packet's backend. Requests neighbor resolution if the next hop's MAC
/// address is unknown.
#[inline(always)]
pub fn next_hop(pkt: &mut PacketState) -> Result<Route, u32> {
    let set = pkt.set();
    let Some(backend) = set.backend(pkt.backend) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    let Some(next) = set.next_hop(backend.next_hop) else {
        return Err(pkt.drop(DropReason::NoRoute));
    };
    if !next.known {
        request_neighbor(backend.next_hop);
        return Err(pkt.drop(DropReason::NoNeighbor));
    }
    Ok(Route::through(backend.next_hop, &next))
}

impl Route {
    /// Creates the route through a next hop whose address is known.
    #[inline(always)]
    pub fn through(id: u32, next: &NextHop) -> Route {
        let mtu = next.path_mtu(Region.path_mtu(id));
        Route { macs: Macs::new(next.mac, next.src_mac), mtu, arm: next.arm }
    }
}

/// Flag in the argument of [`part_local`]: choose the source of IP-in-IP by the flow's hash.
const HASHED_SOURCE: u32 = 4;

/// Stores in [`PacketState::local`] the local address for packets that leave by an arm. `selector`
/// is the arm times two, plus 1 for IPv6, plus [`HASHED_SOURCE`] if that applies.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_local(selector: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let settings = pkt.set().settings();
    let Some(addr) = local(settings, selector & !HASHED_SOURCE, LOCAL_ADDRS) else { return FINISH };
    pkt.local = addr.in_words();
    if selector & HASHED_SOURCE != 0
        && let Some(hashed_source) = settings.ipip_source((selector >> 1) as u8, pkt.hash)
    {
        pkt.local = hashed_source;
    }
    CONTINUE
}

/// Returns the first local address of the arm and family in `selector` (see [`part_local`], without
/// [`HASHED_SOURCE`]) among the first `max` local addresses.
#[inline(always)]
pub fn local(settings: &Settings, selector: u32, max: usize) -> Option<&Addr> {
    for local in settings.locals.iter().take(max) {
        let v6 = u32::from(!local.addr.is_v4());
        if local.addr.words == [0; 4] {
            break;
        }
        if u32::from(local.arm & 1) << 1 | v6 == selector {
            return Some(&local.addr);
        }
    }
    None
}

/// Limits the MSS option of a SYN, if the service has a limit.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_clamp(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let max = pkt.set().service(pkt.service).map_or(0, |service| service.mss);
    if max != 0 {
        rewrite::clamp_mss(&mut window(ctx), &pkt.inner, max);
    }
    CONTINUE
}

/// Rejects a packet larger than `mtu` bytes on its route to a backend.
#[inline(always)]
pub fn check_backend_mtu(pkt: &mut PacketState, mtu: u16) -> Result<(), u32> {
    if pkt.inner.end - pkt.inner.at <= mtu {
        return Ok(());
    }
    Err(too_big(pkt, mtu))
}

/// Rejects a packet that exceeds the MTU to a backend: with an ICMP error that reports `mtu`, or
/// silently if the service is configured so.
#[inline(always)]
pub fn too_big(pkt: &mut PacketState, mtu: u16) -> u32 {
    let service = pkt.set().service(pkt.service);
    match service.is_none_or(|service| service.flags & SERVICE_REPLY_TOO_BIG != 0) {
        true => pkt.too_big(mtu),
        false => pkt.drop(DropReason::TooBig),
    }
}

/// Returns whether an ICMP error about the packet's size may be sent through the tunnel by which it
/// arrived.
#[inline(always)]
pub fn reports_too_big(pkt: &PacketState) -> bool {
    if pkt.tunnel == NONE {
        return true;
    }
    let permits = |flags: u16| flags & (TUNNEL_BACKEND | TUNNEL_REPLY_TOO_BIG) != 0;
    pkt.set().tunnel(pkt.tunnel).is_none_or(|t| permits(t.flags))
}

/// Rejects a packet whose TTL expires here.
#[inline(always)]
pub fn check_ttl(pkt: &mut PacketState) -> Result<(), u32> {
    if pkt.inner.ttl > 1 {
        return Ok(());
    }
    Err(pkt.reply_with(Reply::TimeExceeded))
}

/// Propagates congestion marks, and decrements the TTL in the frame (`pkt.inner.ttl` keeps its
/// value).
#[inline(always)]
pub fn update_ecn_and_ttl(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<(), u32> {
    propagate_congestion(ctx, pkt)?;
    if rewrite::decrement_ttl(&mut window(ctx), &pkt.inner).is_err() {
        return Err(pkt.drop(DropReason::TooShort));
    }
    Ok(())
}

/// Propagates congestion marks of the outer header to the inner packet (RFC 6040).
#[inline(always)]
pub fn propagate_congestion(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<(), u32> {
    let w = &mut window(ctx);
    if pkt.arrival != Arrival::Plain {
        pkt.inner.tos = match rewrite::propagate_ecn(w, &pkt.outer, &pkt.inner) {
            Ok(tos) => tos,
            Err(EcnError::Short) => return Err(pkt.drop(DropReason::TooShort)),
            Err(EcnError::NotEcnCapable) => return Err(pkt.drop(DropReason::Congestion)),
        };
    }
    Ok(())
}

/// Replaces everything in front of the inner packet by `outer`.
#[inline(always)]
pub fn encapsulate(ctx: *mut xdp_md, pkt: &mut PacketState, outer: &Outer<'_>) -> Result<(), u32> {
    let len = usize::from(pkt.inner.end - pkt.inner.at);
    resize_front(ctx, pkt, outer_len(outer))?;
    if write_outer(&mut window(ctx), outer, len).is_err() {
        return Err(pkt.drop(DropReason::TooShort));
    }
    Ok(())
}

/// Resizes the space in front of the inner packet to `front` bytes, and removes Ethernet padding
/// after the inner packet.
#[inline(always)]
fn resize_front(ctx: *mut xdp_md, pkt: &mut PacketState, front: usize) -> Result<(), u32> {
    let padding = length(ctx) as i32 - i32::from(pkt.inner.end);
    if padding > 0 && !is_chained(ctx) {
        // Cannot fail: the frame is in one buffer and longer than the padding.
        cut_end(ctx, padding);
    }
    if !move_start(ctx, i32::from(pkt.inner.at) - front as i32) {
        return Err(pkt.drop(DropReason::NoHeadroom));
    }
    Ok(())
}

/// Reduces the frame to the inner packet with an Ethernet header.
#[inline(always)]
pub fn plain_frame(
    ctx: *mut xdp_md,
    pkt: &mut PacketState,
    macs: &Macs,
    vlan: u16,
) -> Result<(), u32> {
    resize_front(ctx, pkt, ethernet::header_len(vlan))?;
    let ethertype = if pkt.inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    if ethernet::write(&mut window(ctx), macs, vlan, ethertype).is_err() {
        return Err(pkt.drop(DropReason::NoHeadroom));
    }
    Ok(())
}
