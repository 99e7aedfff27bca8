//! The usual packet from a gateway: its whole journey in one program.
//!
//! Most packets of a gateway have one format: GENEVE over IPv4 with the gateway's three options, or
//! VXLAN over IPv4, containing a whole TCP or UDP packet, in one buffer. They either match no
//! service and no flow, or belong to a known flow that continues to its backend by NAT or a GENEVE
//! tunnel. For these, this program does the work of the stages by the same functions of `packet`
//! and `tables`, but with constant offsets and without repeated lookups.
//!
//! Any other packet continues with the stages: with the first one, or after `decap` if its headers
//! were valid. Until a packet is written to, nothing is changed that the stages would not change as
//! well.
//!
//! Each format is an instance of the same functions: `VXLAN` selects the tunnel instead of GENEVE,
//! and `V6` the family of the inner packet and of the backends.

use crate::classify::between_strangers;
use crate::encap::{Way, headers, local};
use crate::familiar::{Known, era, recognise};
use crate::finish::{finish, sent};
use crate::frame::{move_start, window};
use crate::here::{flows, page};
use crate::lately;
use crate::leg::{digest_vxlan, usual_digest};
use crate::next::{CLASSIFY, FINISH, OUTER, SELECT, go, raw};
use crate::origin::options;
use crate::place::place;
use crate::ports::Place;
use crate::work::{Arrival, Work, work};
use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::checksum::ipv4_header_ok;
use packet::ethernet::{self, Ethernet};
use packet::flow::{FlowKey, Side};
use packet::ip::{Ip, L4 as Upper, UDP};
use packet::origin::Origin;
use packet::rewrite::{self, Rewrite};
use packet::tunnel::{TunnelKind, cross_in_place, ecn_decap, return_in_place, write_outer};
use packet::window::{Short, Window};
use packet::{geneve, vxlan};
use tables::counters::{ArmCounter, VerdictCounter};
use tables::flow::{Forward, Likely, Met, PATH_CROSSES, PATH_ONE_WAY, PATH_RESPONDER_LEG};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, NONE, Service, TUNNEL_CROSS, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

/// Offsets of the outer headers: Ethernet, IPv4, UDP, tunnel.
const IP: u16 = ethernet::HEADER as u16;
const L4: u16 = IP + 20;
const TUNNEL: u16 = L4 + 8;
/// Offset of GENEVE's options.
const OPTIONS: u16 = TUNNEL + geneve::HEADER as u16;
/// Offset of VXLAN's inner Ethernet header.
const INNER_ETH: u16 = TUNNEL + vxlan::HEADER as u16;

/// Offset of the inner packet.
const fn inner_at(vxlan: bool) -> u16 {
    if vxlan { INNER_ETH + ethernet::HEADER as u16 } else { OPTIONS + geneve::OWN_OPTIONS as u16 }
}

/// Bytes that a frame loses with its tunnel.
const fn tunnel_len(vxlan: bool) -> u16 {
    inner_at(vxlan) - ethernet::HEADER as u16
}

/// EtherType of the family.
pub const fn ethertype(v6: bool) -> u16 {
    if v6 { ethernet::IPV6 } else { ethernet::IPV4 }
}

/// Number of local addresses searched for the one towards a backend.
const LOCALS: usize = 4;

/// How a frame arrived.
#[derive(Clone, Copy)]
pub struct Came {
    /// Arm on which it arrived.
    pub arm: u8,
    /// Kind of arrival, as far as it is known.
    pub arrival: Arrival,
    /// Index of the interface.
    pub ifindex: u32,
    /// Time of arrival, in seconds of the region's clock.
    pub now_s: u32,
    /// Generation of the tables that apply.
    pub generation: u32,
}

/// How a packet leaves.
pub struct Exit {
    /// Verdict under which it is counted.
    pub verdict: VerdictCounter,
    /// Arm by which it leaves.
    pub arm: u8,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Size of the frame as it leaves, in bytes.
    pub left: u64,
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident $vxlan:literal $v6:literal;)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(ctx: XdpContext) -> u32 {
            let ctx = raw(&ctx);
            let (Some(work), Some(place)) = (work(), place()) else { return go(ctx, FINISH) };
            let came = work.came_as();
            match usual::<$vxlan, $v6>(ctx, work, place, &came) {
                Ok(action) => action,
                Err(next) => go(ctx, next),
            }
        }
    )*};
}

stages! {
    /// Stage of IPv6 in GENEVE.
    geneve6 false true;
    /// Stage of IPv4 in VXLAN.
    vxlan4 true false;
    /// Stage of IPv6 in VXLAN.
    vxlan6 true true;
}

/// Forwards a usual frame and returns the XDP action; otherwise returns the next stage as an error.
/// It uses the two headers of `work`, and fills in what that stage needs.
#[inline(always)]
pub fn usual<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    work: &mut Work,
    place: &Place,
    came: &Came,
) -> Result<u32, u32> {
    let w = &mut window(ctx);
    let set = &Region.tables(came.generation);
    let era = era(place, came.now_s);
    let (known, tunnel) = read::<VXLAN, V6>(w, work, set, era).ok_or(OUTER)?;
    let strangers = between_strangers(set, tunnel, &work.inner);
    // The lookup of the flow begins before other work, to hide its latency.
    let asking = if strangers { None } else { ask::<true>(known.scope, &work.inner) };
    if !is_sound::<VXLAN, V6>(w, work, place, tunnel, came.arm) {
        return Err(OUTER);
    }
    let bytes = u64::from(work.inner.end);
    let (exit, done) = if strangers {
        let (arm, done) = send_back::<VXLAN>(w, work, set, tunnel, came.arm)?;
        let verdict = VerdictCounter::Return;
        (Exit { verdict, arm, service: NONE, backend: NONE, left: bytes }, done)
    } else {
        let onward =
            asking.as_ref().and_then(|asking| track::<VXLAN, V6>(w, work, set, known, asking));
        let Some(onward) = onward else {
            begin(work, came);
            note::<VXLAN, V6>(w, work, known, tunnel);
            return Err(unknown(work, known.scope, asking.map_or(0, |asking| asking.hash)));
        };
        flows().touch_met(&onward.met, came.now_s);
        let done = match onward.by {
            Some(by) => encap::<VXLAN, V6>(ctx, w, work, &onward, by, tunnel),
            None => nat::<VXLAN, V6>(ctx, w, work, &onward),
        };
        (onward.exit::<VXLAN, V6>(bytes), done)
    };
    Ok(leave(ctx, work, place, came, (bytes, exit, done)))
}

/// Counts and sends a packet of `bytes` bytes that was written in its final form.
#[inline(always)]
pub fn leave(
    ctx: *mut xdp_md,
    work: &mut Work,
    place: &Place,
    came: &Came,
    (bytes, exit, done): (u64, Exit, Result<(), DropReason>),
) -> u32 {
    if let Err(reason) = done {
        begin(work, came);
        (work.came, work.service) = (bytes, exit.service);
        work.drop(reason);
        return finish(ctx);
    }
    let action = sent(place, exit.arm, came.ifindex);
    if action == XDP_DROP {
        // It retries, fails again and counts the drop.
        begin(work, came);
        (work.came, work.service) = (bytes, exit.service);
        work.out(exit.verdict, exit.arm);
        return finish(ctx);
    }
    count(came.arm, &exit, bytes);
    action
}

/// Initializes the record with what is known of any frame.
#[inline(always)]
pub fn begin(work: &mut Work, came: &Came) {
    work.begin();
    (work.arm, work.arrival, work.ifindex) = (came.arm, came.arrival, came.ifindex);
    (work.now_s, work.generation) = (came.now_s, came.generation);
}

impl Work {
    /// Returns what [`begin`] stored.
    #[inline(always)]
    pub fn came_as(&self) -> Came {
        let Work { arm, arrival, ifindex, now_s, generation, .. } = *self;
        Came { arm, arrival, ifindex, now_s, generation }
    }
}

/// Counts a forwarded packet of `came` bytes, as [`finish`] counts any packet.
#[inline(always)]
fn count(arm: u8, exit: &Exit, came: u64) {
    let page = page();
    page.arm_packet(arm, ArmCounter::RxPackets, came);
    page.verdict(exit.verdict, 1);
    page.arm_packet(exit.arm, ArmCounter::TxPackets, exit.left);
    if exit.service != NONE {
        page.passage(exit.service, exit.backend, exit.left);
    }
}

/// Reads the headers and identifies the tunnel. [`is_sound`] validates them.
#[inline(always)]
fn read<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    work: &mut Work,
    set: &TableSet<'static>,
    era: u32,
) -> Option<(&'static Known, &'static Tunnel)> {
    let eth = Ethernet::parse(w).ok()?;
    let plain = eth.ethertype == ethernet::IPV4 && eth.l3 == IP;
    if !plain || !work.outer.read_usual(w, IP, ethernet::IPV4) {
        return None;
    }
    // The tunnel determines the class of the options, and the endpoint determines the tunnel.
    let known = recognise(era, set.generation(), &work.outer, endpoint::<VXLAN>(w))?;
    if !work.inner.read_usual(w, inner_at(VXLAN), ethertype(V6)) {
        return None;
    }
    Some((known, set.tunnel(known.tunnel.into())?))
}

/// Returns whether a frame is addressed to the port of an arm.
#[inline(always)]
pub fn is_to_us(w: &Window<'_>, place: &Place, arm: u8) -> bool {
    let ours = place.port(arm).mac;
    let first = u32::from_ne_bytes([ours[0], ours[1], ours[2], ours[3]]);
    let last = u16::from_ne_bytes([ours[4], ours[5]]);
    w.load::<u32>(0) == Ok(first) && w.load::<u16>(4) == Ok(last)
}

/// Returns whether it is a frame to this port in one buffer with valid headers and the usual
/// options.
#[inline(always)]
fn is_sound<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    work: &Work,
    place: &Place,
    tunnel: &Tunnel,
    arm: u8,
) -> bool {
    let end = work.inner.end;
    let udp_len = w.be16(usize::from(L4) + 4).unwrap_or(0);
    is_to_us(w, place, arm)
        && is_tunnel_sound::<VXLAN, V6>(w, tunnel)
        && work.outer.proto == UDP
        && ipv4_header_ok(w, &outer(work))
        && L4.wrapping_add(udp_len) == end
        && work.outer.end == end
        && usize::from(end) == w.len()
        && usize::from(end) == w.frame_len()
        && matches!(work.inner.kind, Upper::Tcp { .. } | Upper::Udp)
        && (tunnel.inner_mtu == 0 || end - inner_at(VXLAN) <= tunnel.inner_mtu)
}

/// Returns whether the tunnel header is valid and has the usual options.
#[inline(always)]
fn is_tunnel_sound<const VXLAN: bool, const V6: bool>(w: &Window<'_>, tunnel: &Tunnel) -> bool {
    if VXLAN {
        let inner = Ethernet::parse_at(w, INNER_ETH);
        return tunnel.kind == TunnelKind::Vxlan as u8
            && vxlan::parse(w, TUNNEL).is_ok()
            && inner.is_ok_and(|eth| eth.ethertype == ethertype(V6) && eth.l3 == inner_at(VXLAN));
    }
    let Ok(header) = geneve::parse(w, TUNNEL) else { return false };
    geneve::usual_options(w, OPTIONS, header.opt_len, tunnel.option_class).is_some()
        && !header.control
        && header.protocol == ethertype(V6)
}

/// Returns GENEVE's endpoint from its usual position in the first option, or VXLAN's VNI.
#[inline(always)]
fn endpoint<const VXLAN: bool>(w: &Window<'_>) -> u64 {
    if VXLAN {
        return vni(w).into();
    }
    u64::from_be(w.load(usize::from(OPTIONS) + 4).unwrap_or(0))
}

/// Returns the VNI, which is at the same offset in both.
#[inline(always)]
fn vni(w: &Window<'_>) -> u32 {
    w.be32(usize::from(TUNNEL) + 4).unwrap_or(0) >> 8
}

/// Stores the remaining results of `decap`.
#[inline(always)]
fn note<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    work: &mut Work,
    known: &Known,
    tunnel: &Tunnel,
) {
    work.arrival = Arrival::Gateway;
    work.came = work.inner.end.into();
    work.eth = Ethernet { ethertype: ethernet::IPV4, vlan: 0, l3: IP };
    (work.scope, work.tunnel) = (known.scope, known.tunnel.into());
    work.vni = vni(w);
    if VXLAN {
        (work.scope_key, work.inner_eth) = (tunnel.scope_key, INNER_ETH);
    } else {
        work.scope_key = endpoint::<VXLAN>(w);
        work.attachment = u64::from_be(w.load(usize::from(OPTIONS) + 16).unwrap_or(0));
        (work.options_at, work.options_len) = (OPTIONS, geneve::OWN_OPTIONS as u8);
    }
    (work.inner_at, work.inner_type) = (inner_at(VXLAN), ethertype(V6));
}

/// The outer packet, with its offsets as constants.
#[inline(always)]
fn outer(work: &Work) -> Ip {
    Ip { at: IP, l4: L4, v6: false, ..work.outer }
}

/// The inner packet, with its offsets as constants.
#[inline(always)]
fn inner<const VXLAN: bool, const V6: bool>(work: &Work) -> Ip {
    let at = inner_at(VXLAN);
    Ip { at, l4: at + if V6 { 40 } else { 20 }, v6: V6, ..work.inner }
}

/// `return`, as in the stage `encap`.
#[inline(always)]
fn send_back<const VXLAN: bool>(
    w: &mut Window<'_>,
    work: &Work,
    set: &TableSet<'static>,
    tunnel: &Tunnel,
    arm: u8,
) -> Result<(u8, Result<(), DropReason>), u32> {
    let outer = outer(work);
    let (arm, done) = match tunnel.flags & TUNNEL_CROSS {
        0 => (arm, return_in_place(w, &outer)),
        _ if VXLAN => {
            let peer = set.tunnel(tunnel.peer).ok_or(OUTER)?;
            (peer.arm, cross_in_place(w, &outer, peer.port, peer.vni))
        }
        _ => return Err(OUTER),
    };
    Ok((arm, done.map_err(|Short| DropReason::TooShort)))
}

/// A packet of a known flow and its route to the backend.
struct Onward {
    met: Met<'static>,
    path: Forward,
    way: Way,
    hash: u64,
    /// Service and local address for a tunnel; `None` for NAT.
    by: Option<(&'static Service, &'static Addr)>,
}

impl Onward {
    #[inline(always)]
    fn exit<const VXLAN: bool, const V6: bool>(&self, came: u64) -> Exit {
        let inner = came - u64::from(inner_at(VXLAN));
        let (verdict, front) = match self.by {
            Some(_) => (VerdictCounter::Tunnel, front_len(V6)),
            None => (VerdictCounter::Nat, ethernet::HEADER as u16),
        };
        let (service, backend) = (self.path.service, self.path.backend);
        let left = inner + u64::from(front);
        Exit { verdict, arm: self.way.arm, service, backend, left }
    }
}

/// Bytes in front of a packet in Weir's GENEVE to a backend of this family.
pub const fn front_len(v6: bool) -> u16 {
    (ethernet::HEADER + if v6 { 40 } else { 20 } + 8 + geneve::HEADER + geneve::OWN_OPTIONS) as u16
}

/// A flow lookup in progress.
pub struct Asking {
    /// Key of the packet.
    pub key: FlowKey,
    /// End of the key that sent the packet.
    pub side: Side,
    /// Hash of the key.
    pub hash: u64,
    /// Candidate path of the flow.
    pub likely: Likely<'static>,
}

/// Returns the flow key of a packet in a scope, and the end of it that sent the packet.
#[inline(always)]
fn key(scope: u32, ip: &Ip) -> (FlowKey, Side) {
    FlowKey::new(scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport)
}

/// Begins the lookup of a packet's flow. If such packets begin flows (`BEGINS`) and there is no
/// hint, it also prefetches what a new flow writes.
#[inline(always)]
pub fn ask<const BEGINS: bool>(scope: u32, ip: &Ip) -> Option<Asking> {
    let (key, side) = key(scope, ip);
    let hash = key.hash(&Region.hash_key());
    let likely = flows().likely(lately::path(hash).unwrap_or(NONE));
    if !likely.is_there() {
        flows().prefetch(hash);
        if BEGINS {
            flows().prefetch_new();
        }
    }
    Some(Asking { key, side, hash, likely })
}

/// The work of the stage `track` and of the exits to a backend, for a packet of a known flow in an
/// unchanged state.
#[inline(always)]
fn track<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    work: &Work,
    set: &TableSet<'static>,
    known: &Known,
    asking: &Asking,
) -> Option<Onward> {
    // Computed before the lookup's results are used, to hide their latency.
    let digest = digest::<VXLAN>(w, work, known);
    let hash = asking.hash;
    let met = meet(asking)?;
    let path = met.forward;
    let from_initiator = met.initiator == asking.side;
    let backend = set.backend(path.backend)?;
    let stays = met.stays(tcp_flags(&work.inner), from_initiator);
    let next = set.next_hop(backend.next_hop)?;
    let goes = backend.incarnation == path.incarnation
        && !BackendState::is_failed(backend.state)
        && stays
        && is_known_leg::<VXLAN>(&met, from_initiator, digest)
        && work.inner.ttl > 1
        && next.known
        && ecn_decap(work.outer.tos, work.inner.tos).is_some();
    if !goes {
        return None;
    }
    let way = Way::by(backend.next_hop, &next);
    let len = work.inner.end - inner_at(VXLAN);
    if path.mode == Mode::Nat as u8 {
        let same = path.flags & PATH_CROSSES == 0;
        let goes = from_initiator && same && len <= way.mtu;
        return goes.then_some(Onward { met, path, way, hash, by: None });
    }
    let service = set.service(path.service)?;
    let ours = local(set.settings(), u32::from(way.arm) << 1 | u32::from(V6), LOCALS)?;
    let same = service.tunnel == TunnelKind::Geneve as u8 && path.backend_addr.is_v4() != V6;
    let fits = len <= way.mtu.saturating_sub(front_len(V6) - ethernet::HEADER as u16);
    (same && fits).then_some(Onward { met, path, way, hash, by: Some((service, ours)) })
}

/// Returns the flags of a TCP segment; 0 for other packets.
#[inline(always)]
pub fn tcp_flags(ip: &Ip) -> u8 {
    match ip.kind {
        Upper::Tcp { flags } => flags,
        _ => 0,
    }
}

/// Returns the digest of the gateway leg.
#[inline(always)]
fn digest<const VXLAN: bool>(w: &Window<'_>, work: &Work, known: &Known) -> u32 {
    let tunnel = known.tunnel.into();
    if VXLAN {
        return digest_vxlan(w, &work.outer, tunnel, vni(w), INNER_ETH);
    }
    usual_digest(w, &work.outer, tunnel, vni(w), OPTIONS)
}

/// Returns whether the gateway leg of the packet is that of the flow in this direction.
#[inline(always)]
fn is_known_leg<const VXLAN: bool>(met: &Met<'_>, from_initiator: bool, digest: u32) -> bool {
    let path = &met.forward;
    if path.flags & PATH_ONE_WAY != 0 {
        return true;
    }
    if from_initiator {
        return digest == met.digest;
    }
    // A VXLAN gateway has one tunnel per direction; replies use that of the client's direction.
    VXLAN || path.flags & PATH_RESPONDER_LEG != 0 && digest == path.responder_digest()
}

/// Finds the flow through its recent-flow hint, or else through the index, and then stores a hint.
#[inline(always)]
fn meet(asking: &Asking) -> Option<Met<'static>> {
    let (flows, hash) = (flows(), asking.hash);
    if asking.likely.is_there() {
        let met = flows.meet(&asking.likely, &asking.key);
        if met.is_none() {
            lately::forget(hash);
        }
        return met;
    }
    let hit = flows.find_likely(&flows.ask(hash)?, &asking.key)?;
    if !hit.is_front() {
        return None;
    }
    lately::remember(hash, hit.path);
    flows.meet(&flows.likely(hit.path), &asking.key)
}

/// Returns the stage for a packet whose flow was not found here. If there is certainly none, stores
/// the results of `classify`.
#[inline(always)]
fn unknown(work: &mut Work, scope: u32, hash: u64) -> u32 {
    if !flows().lacks(hash) {
        return CLASSIFY;
    }
    (work.key, work.side) = key(scope, &work.inner);
    work.hash = hash;
    SELECT
}

/// Tunnel to tunnel: replaces the gateway's headers by Weir's.
#[inline(always)]
fn encap<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    w: &mut Window<'_>,
    work: &mut Work,
    onward: &Onward,
    (service, ours): (&Service, &Addr),
    tunnel: &Tunnel,
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let hash = onward.hash;
    let (outer, mut inner) = (outer(work), inner::<VXLAN, V6>(work));
    inner.tos = rewrite::take_congestion(w, &outer, &inner).or(Err(DropReason::TooShort))?;
    rewrite::decrement_ttl(w, &inner).map_err(short)?;
    let (endpoint, origin) = if VXLAN {
        (tunnel.scope_key, None)
    } else {
        let cookie = w.be32(usize::from(inner.at) - 4).map_err(short)?;
        let origin = Origin::new(tunnel.gateway, &outer.src, outer.sport, cookie);
        (endpoint::<VXLAN>(w), origin)
    };
    // Not on the stack, which is too small.
    work.usual.options = options(endpoint, tunnel.gateway, origin, hash);
    let options = &work.usual.options;
    let ends = (ours.in_words(), onward.path.backend_addr);
    let outer = headers(TunnelKind::Geneve, service, &onward.way.macs, ends, hash, options, &inner);
    let len = usize::from(inner.end - inner.at);
    let more = i32::from(inner_at(VXLAN)) - i32::from(front_len(V6));
    if more == 0 {
        return write_outer(w, &outer, len).map_err(short);
    }
    if !move_start(ctx, more) {
        return Err(DropReason::NoHeadroom);
    }
    write_outer(&mut window(ctx), &outer, len).map_err(short)
}

/// NAT: removes the tunnel and rewrites addresses and ports.
#[inline(always)]
fn nat<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    w: &mut Window<'_>,
    work: &Work,
    onward: &Onward,
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let (outer, inner, path) = (outer(work), inner::<VXLAN, V6>(work), &onward.path);
    rewrite::take_congestion(w, &outer, &inner).or(Err(DropReason::TooShort))?;
    rewrite::decrement_ttl(w, &inner).map_err(short)?;
    let (src, sport) = (*path.nat_addr(), path.nat_port);
    let (dst, dport) = (path.backend_addr, path.backend_port);
    rewrite::nat(w, &inner, &Rewrite { src, sport, dst, dport }).map_err(short)?;
    if !move_start(ctx, tunnel_len(VXLAN).into()) {
        return Err(DropReason::TooShort);
    }
    ethernet::write(&mut window(ctx), &onward.way.macs, 0, ethertype(V6)).map_err(short)
}
