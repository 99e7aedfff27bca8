//! Encap: `return`, the tunnel to a backend, and punting to the kernel; also the checks that all
//! exits share: next hop, MTU and TTL.

use crate::frame::{cut_end, is_chained, length, move_start, window};
use crate::next::{FINISH, OPEN, done, either, go, raw};
use crate::origin::{options, origin};
use crate::place::{may_punt, place, want};
use crate::work::{Arrival, Reply, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::ethernet::{self, Macs};
use packet::flow::FlowKey;
use packet::geneve::OWN_OPTIONS;
use packet::ip::Ip;
use packet::rewrite::{self, Congestion};
use packet::tunnel::{Outer, TunnelKind, cross_in_place, outer_len, return_in_place, write_outer};
use tables::counters::VerdictCounter;
use tables::next_hop::NextHop;
use tables::outer;
use tables::punt::{PuntClass, Punted};
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
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = match work.verdict {
        VerdictCounter::Return => send_back(ctx, work),
        VerdictCounter::Punt => punt(ctx, work),
        VerdictCounter::Forward => probe(ctx, work),
        _ => to_backend(ctx, work),
    };
    go(ctx, either(next))
}

/// `return`: sends the frame back with its outer addresses swapped, otherwise unchanged.
#[inline(always)]
fn send_back(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let set = work.set();
    let peer = match set.tunnel(work.tunnel) {
        Some(t) if t.flags & TUNNEL_CROSS != 0 => set.tunnel(t.peer),
        _ => None,
    };
    let w = &mut window(ctx);
    let (sent, arm) = match peer {
        Some(peer) => (cross_in_place(w, &work.outer, peer.port, peer.vni), peer.arm),
        None => (return_in_place(w, &work.outer), work.arm),
    };
    if sent.is_err() {
        return Err(work.drop(DropReason::TooShort));
    }
    Ok(work.out(VerdictCounter::Return, arm))
}

/// Passes the packet to the kernel within its limit: unchanged, or decapsulated with an Ethernet
/// header.
#[inline(always)]
fn punt(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    done(part_limit(ctx))?;
    if work.is_tunnelled() {
        let own = place().map_or([0; 6], |place| place.port(work.arm).mac());
        plain_frame(ctx, work, &Macs::new(own, own), 0)?;
    }
    Ok(work.pass())
}

/// Counts the packet against the limit of its class, or drops it. A separate function, because the
/// stage's stack is too small for it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_limit(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let punted = Punted {
        ethertype: work.eth.ethertype,
        ip: &work.inner,
        icmp: window(ctx).load(usize::from(work.inner.l4)).unwrap_or(0),
        plain: work.arrival == Arrival::Plain,
        probe: work.to_prober,
    };
    let settings = work.set().settings();
    let class = PuntClass::of(&punted, settings);
    let limit = settings.punt_limits[class as usize];
    if may_punt(work, class, limit) { OPEN } else { work.drop(class.reason()) }
}

/// Sends a probe of the kernel through the tunnel of its backend's service.
#[inline(always)]
fn probe(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let Some(backend) = work.set().backend(work.backend) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    let ip = &work.inner;
    let (key, _) = FlowKey::new(0, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    work.hash = key.hash(&Region.hash_key());
    work.path.backend_addr = backend.addr;
    let service = backend.probe_service;
    send(ctx, work, service, 0)?;
    Ok(work.out(VerdictCounter::Tunnel, work.exit_arm))
}

/// Sends a packet through its service's tunnel to the flow's backend.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    ends_here(work)?;
    let gateway = match work.arrival {
        Arrival::Gateway => work.set().tunnel(work.tunnel).map_or(0, |t| t.gateway),
        _ => 0,
    };
    let service = work.service;
    send(ctx, work, service, gateway)?;
    Ok(work.out(VerdictCounter::Tunnel, work.exit_arm))
}

/// Writes the outer headers towards the backend of `work`.
#[inline(always)]
fn send(ctx: *mut xdp_md, work: &mut Work, service: u32, gateway: u16) -> Result<(), u32> {
    let Some(service) = work.set().service(service) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    let way = next_hop(work)?;
    let to = work.path.backend_addr;
    let drawn = service.tunnel == TunnelKind::Ipip as u8 && to.is_v4();
    let place = u32::from(way.arm) << 1 | u32::from(!to.is_v4());
    if part_local(place | if drawn { DRAWN } else { 0 }) != OPEN {
        return Err(work.drop(DropReason::NoRoute));
    }
    let Some(kind) = TunnelKind::from_u8(service.tunnel) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    let options = options(work.scope_key, gateway, origin(ctx, work, gateway), work.hash);
    let ends = (work.local, to);
    let mut outer = headers(kind, service, &way.macs, ends, work.hash, &options, &work.inner);
    let overhead = (outer_len(&outer) - ethernet::HEADER) as u16;
    fits(work, way.mtu.saturating_sub(overhead))?;
    if work.arrival != Arrival::Kernel {
        take_off(ctx, work)?;
        outer.tos = work.inner.tos;
    }
    if service.mss != 0 {
        part_clamp(ctx);
    }
    put_on(ctx, work, &outer)?;
    work.exit_arm = way.arm;
    Ok(())
}

/// As [`outer::to_backend`], with Weir's own options as words.
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
    // SAFETY: the same size, and any bytes are valid.
    let options = unsafe { &*(&raw const *options).cast::<[u8; OWN_OPTIONS]>() };
    outer::to_backend(kind, service, macs, ends, hash, options, inner)
}

/// The route to a backend.
pub struct Way {
    /// MAC addresses of the next hop and of the local port.
    pub macs: Macs,
    /// Path MTU in bytes.
    pub mtu: u16,
    /// Arm by which packets leave.
    pub arm: u8,
}

/// Returns the route to the packet's backend.
#[inline(always)]
pub fn next_hop(work: &mut Work) -> Result<Way, u32> {
    let set = work.set();
    let Some(backend) = set.backend(work.backend) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    let Some(next) = set.next_hop(backend.next_hop) else {
        return Err(work.drop(DropReason::NoRoute));
    };
    if !next.known {
        want(backend.next_hop);
        return Err(work.drop(DropReason::NoNeighbour));
    }
    Ok(Way::by(backend.next_hop, &next))
}

impl Way {
    /// Creates the route through a next hop whose address is known.
    #[inline(always)]
    pub fn by(id: u32, next: &NextHop) -> Way {
        let mtu = next.path_mtu(Region.path_mtu(id));
        Way { macs: Macs::new(next.mac, next.src_mac), mtu, arm: next.arm }
    }
}

/// Flag in the argument of [`part_local`]: choose the source of IP-in-IP by the flow's hash.
const DRAWN: u32 = 4;

/// Stores the local address for packets that leave by an arm in [`Work::local`]. `place` is the arm
/// times two, plus 1 for IPv6, plus [`DRAWN`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_local(place: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let settings = work.set().settings();
    let Some(addr) = local(settings, place & !DRAWN, LOCAL_ADDRS) else { return FINISH };
    work.local = addr.in_words();
    if place & DRAWN != 0
        && let Some(drawn) = settings.ipip_source((place >> 1) as u8, work.hash)
    {
        work.local = drawn;
    }
    OPEN
}

/// As [`part_local`], among the first `most` local addresses.
#[inline(always)]
pub fn local(settings: &Settings, place: u32, most: usize) -> Option<&Addr> {
    for local in settings.locals.iter().take(most) {
        let v6 = u32::from(!local.addr.is_v4());
        if local.addr.words == [0; 4] {
            break;
        }
        if u32::from(local.arm & 1) << 1 | v6 == place {
            return Some(&local.addr);
        }
    }
    None
}

/// Limits the MSS option of a SYN, if the service has a limit.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_clamp(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let most = work.set().service(work.service).map_or(0, |service| service.mss);
    if most != 0 {
        rewrite::clamp_mss(&mut window(ctx), &work.inner, most);
    }
    OPEN
}

/// Rejects a packet larger than `mtu` bytes on its route to a backend.
#[inline(always)]
pub fn fits(work: &mut Work, mtu: u16) -> Result<(), u32> {
    if work.inner.end - work.inner.at <= mtu {
        return Ok(());
    }
    Err(too_big(work, mtu))
}

/// Rejects a packet that exceeds the MTU to a backend: with an ICMP error that reports `mtu`, or
/// silently if the service is configured so.
#[inline(always)]
pub fn too_big(work: &mut Work, mtu: u16) -> u32 {
    let service = work.set().service(work.service);
    match service.is_none_or(|service| service.flags & SERVICE_REPLY_TOO_BIG != 0) {
        true => work.too_big(mtu),
        false => work.drop(DropReason::TooBig),
    }
}

/// Returns whether the tunnel of the packet permits ICMP errors about its size.
#[inline(always)]
pub fn tells_too_big(work: &Work) -> bool {
    if work.tunnel == NONE {
        return true;
    }
    let told = |flags: u16| flags & (TUNNEL_BACKEND | TUNNEL_REPLY_TOO_BIG) != 0;
    work.set().tunnel(work.tunnel).is_none_or(|t| told(t.flags))
}

/// Rejects a packet whose TTL expires here.
#[inline(always)]
pub fn ends_here(work: &mut Work) -> Result<(), u32> {
    if work.inner.ttl > 1 {
        return Ok(());
    }
    Err(work.answer_with(Reply::TimeExceeded))
}

/// Handles what applies to every packet that leaves a tunnel and is forwarded: congestion marks and
/// the TTL.
#[inline(always)]
pub fn take_off(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    congestion(ctx, work)?;
    if rewrite::decrement_ttl(&mut window(ctx), &work.inner).is_err() {
        return Err(work.drop(DropReason::TooShort));
    }
    Ok(())
}

/// Propagates congestion marks of the outer header to the inner packet (RFC 6040).
#[inline(always)]
pub fn congestion(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    let w = &mut window(ctx);
    if work.arrival != Arrival::Plain {
        work.inner.tos = match rewrite::take_congestion(w, &work.outer, &work.inner) {
            Ok(tos) => tos,
            Err(Congestion::Short) => return Err(work.drop(DropReason::TooShort)),
            Err(Congestion::Lost) => return Err(work.drop(DropReason::Congestion)),
        };
    }
    Ok(())
}

/// Replaces everything in front of the inner packet by `outer`.
#[inline(always)]
pub fn put_on(ctx: *mut xdp_md, work: &mut Work, outer: &Outer<'_>) -> Result<(), u32> {
    let len = usize::from(work.inner.end - work.inner.at);
    reseat(ctx, work, outer_len(outer))?;
    if write_outer(&mut window(ctx), outer, len).is_err() {
        return Err(work.drop(DropReason::TooShort));
    }
    Ok(())
}

/// Resizes the space in front of the inner packet to `front` bytes, and removes Ethernet padding
/// after it.
#[inline(always)]
fn reseat(ctx: *mut xdp_md, work: &mut Work, front: usize) -> Result<(), u32> {
    let padding = length(ctx) as i32 - i32::from(work.inner.end);
    if padding > 0 && !is_chained(ctx) {
        // Cannot fail: the frame is in one buffer and longer than the padding.
        cut_end(ctx, padding);
    }
    if !move_start(ctx, i32::from(work.inner.at) - front as i32) {
        return Err(work.drop(DropReason::NoHeadroom));
    }
    Ok(())
}

/// Reduces the frame to the inner packet with an Ethernet header.
#[inline(always)]
pub fn plain_frame(ctx: *mut xdp_md, work: &mut Work, macs: &Macs, vlan: u16) -> Result<(), u32> {
    reseat(ctx, work, ethernet::header_len(vlan))?;
    let ethertype = if work.inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    if ethernet::write(&mut window(ctx), macs, vlan, ethertype).is_err() {
        return Err(work.drop(DropReason::NoHeadroom));
    }
    Ok(())
}
