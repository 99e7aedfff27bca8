//! Fast path of the usual packet from a gateway, in one program.
//!
//! Most packets of a gateway have one format: GENEVE over IPv4 with the gateway's three options, or
//! VXLAN over IPv4, containing a whole TCP or UDP packet, in one buffer. They either match no
//! service and no flow, or belong to a known flow that continues to its backend by NAT or a GENEVE
//! tunnel. For these, this program does the work of the stages by the same functions of `packet`
//! and `tables`, but with constant offsets and without repeated lookups.
//!
//! Any other packet continues with the stages: with `outer`, or with `classify` or `select` if its
//! headers were valid. Until a packet is written to, nothing is changed that the stages would not
//! change as well.
//!
//! Each format is an instance of the same functions: `VXLAN` selects VXLAN instead of GENEVE, and
//! `V6` selects IPv6 for the inner packet and the backends.

use crate::classify::is_unmatched;
use crate::cpu_views::{flows, page};
use crate::encap::{Route, headers, local};
use crate::finish::{finish, send_action};
use crate::flow_hints;
use crate::frame::{move_start, window};
use crate::header_cache::{self, CachedTunnel, cache_epoch};
use crate::leg::{digest_vxlan, usual_digest};
use crate::next::{CLASSIFY, FINISH, OUTER, SELECT, raw, run_stage};
use crate::observe::{is_observed, run_observed};
use crate::origin::options;
use crate::packet_state::{Arrival, PacketState, RxInfo, packet_state};
use crate::runtime::runtime_config;
use crate::runtime_config::RuntimeConfig;
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
use tables::flow::{
    Forward, PATH_CROSSES, PATH_ONE_WAY, PATH_RESPONDER_LEG, PathCandidate, PathHit,
};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, NONE, Service, TUNNEL_CROSS, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

/// Offsets of the outer IPv4 header, the UDP header and the tunnel header.
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

/// Number of local addresses that are searched for the one towards a backend. If it is not among
/// them, the packet continues with the stages.
const LOCALS: usize = 4;

/// How a packet leaves.
pub struct TxInfo {
    /// Verdict under which it is counted.
    pub verdict: VerdictCounter,
    /// Arm by which it leaves.
    pub arm: u8,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Size of the frame as it leaves, in bytes.
    pub tx_len: u64,
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident $vxlan:literal $v6:literal;)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(ctx: XdpContext) -> u32 {
            let ctx = raw(&ctx);
            let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else {
                return run_stage(ctx, FINISH);
            };
            let rx = pkt.rx_info();
            match forward::<$vxlan, $v6>(ctx, pkt, config, &rx) {
                Ok(action) => action,
                Err(next) => run_observed(ctx, pkt, config, &rx, next),
            }
        }
    )*};
}

// The arguments are the stage's name, `VXLAN` and `V6`.
stages! {
    /// Stage of IPv6 in GENEVE.
    geneve6 false true;
    /// Stage of IPv4 in VXLAN.
    vxlan4 true false;
    /// Stage of IPv6 in VXLAN.
    vxlan6 true true;
}

/// Forwards a usual frame and returns the XDP action; otherwise returns the next stage as an error.
/// Uses the outer and the inner header of `pkt`. If the next stage is not the first one (`OUTER`),
/// fills in all fields of `pkt` that it needs.
#[inline(always)]
pub fn forward<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    pkt: &mut PacketState,
    config: &RuntimeConfig,
    rx: &RxInfo,
) -> Result<u32, u32> {
    let w = &mut window(ctx);
    let set = &Region.tables(rx.generation);
    let cache_epoch = cache_epoch(config, rx.now_s);
    let (cached, tunnel) = parse::<VXLAN, V6>(w, pkt, set, cache_epoch).ok_or(OUTER)?;
    let unmatched = is_unmatched(set, tunnel, &pkt.inner);
    // The lookup of the flow begins before other work, to hide its latency.
    let lookup = if unmatched { None } else { begin_lookup::<true>(cached.scope, &pkt.inner) };
    if !is_well_formed::<VXLAN, V6>(w, pkt, config, tunnel, rx.arm) {
        return Err(OUTER);
    }
    let bytes = u64::from(pkt.inner.end);
    let (exit, written) = if unmatched {
        if is_observed(config, rx.arm, NONE, true) {
            return Err(OUTER);
        }
        let (arm, written) = send_back::<VXLAN>(w, pkt, set, tunnel, rx.arm)?;
        let verdict = VerdictCounter::Return;
        (TxInfo { verdict, arm, service: NONE, backend: NONE, tx_len: bytes }, written)
    } else {
        let forwarding = lookup
            .as_ref()
            .and_then(|lookup| track::<VXLAN, V6>(w, pkt, set, cached, lookup, (config, rx.arm)));
        let Some(forwarding) = forwarding else {
            pkt.init(rx);
            record_decap::<VXLAN, V6>(w, pkt, cached, tunnel);
            return Err(stage_without_flow(
                pkt,
                cached.scope,
                lookup.map_or(0, |lookup| lookup.hash),
            ));
        };
        flows().touch_path_hit(&forwarding.hit, rx.now_s);
        let written = match forwarding.tunnel {
            Some(service) => encap::<VXLAN, V6>(ctx, w, pkt, &forwarding, service, tunnel),
            None => nat::<VXLAN, V6>(ctx, w, pkt, &forwarding),
        };
        (forwarding.exit::<VXLAN, V6>(bytes), written)
    };
    Ok(leave(ctx, pkt, config, rx, (bytes, exit, written)))
}

/// Counts and sends a packet that was received with `bytes` bytes. `written` is the result of
/// writing it in its final form; on an error, the packet is dropped.
#[inline(always)]
pub fn leave(
    ctx: *mut xdp_md,
    pkt: &mut PacketState,
    config: &RuntimeConfig,
    rx: &RxInfo,
    (bytes, exit, written): (u64, TxInfo, Result<(), DropReason>),
) -> u32 {
    if let Err(reason) = written {
        pkt.init(rx);
        (pkt.rx_len, pkt.service) = (bytes, exit.service);
        pkt.drop(reason);
        return finish(ctx);
    }
    let action = send_action(config, exit.arm, rx.ifindex);
    if action == XDP_DROP {
        // `finish` tries to send again, fails as well and counts the drop.
        pkt.init(rx);
        (pkt.rx_len, pkt.service) = (bytes, exit.service);
        pkt.transmit(exit.verdict, exit.arm);
        return finish(ctx);
    }
    count(rx.arm, &exit, bytes);
    action
}

/// Counts a forwarded packet of `rx_len` bytes, as [`finish`] counts any packet.
#[inline(always)]
fn count(arm: u8, exit: &TxInfo, rx_len: u64) {
    let page = page();
    page.arm_packet(arm, ArmCounter::RxPackets, rx_len);
    page.verdict(exit.verdict, 1);
    page.arm_packet(exit.arm, ArmCounter::TxPackets, exit.tx_len);
    if exit.service != NONE {
        page.forwarded(exit.service, exit.backend, exit.tx_len);
    }
}

/// Reads the headers and identifies the tunnel. [`is_well_formed`] validates them.
#[inline(always)]
fn parse<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &mut PacketState,
    set: &TableSet<'static>,
    cache_epoch: u32,
) -> Option<(&'static CachedTunnel, &'static Tunnel)> {
    let eth = Ethernet::parse(w).ok()?;
    let plain = eth.ethertype == ethernet::IPV4 && eth.l3 == IP;
    if !plain || !pkt.outer.read_usual(w, IP, ethernet::IPV4) {
        return None;
    }
    // The tunnel determines the class of the options, and the endpoint determines the tunnel.
    let cached =
        header_cache::lookup(cache_epoch, set.generation(), &pkt.outer, endpoint::<VXLAN>(w))?;
    if !pkt.inner.read_usual(w, inner_at(VXLAN), ethertype(V6)) {
        return None;
    }
    Some((cached, set.tunnel(cached.tunnel.into())?))
}

/// Returns whether a frame is addressed to the port of an arm.
#[inline(always)]
pub fn is_own_mac(w: &Window<'_>, config: &RuntimeConfig, arm: u8) -> bool {
    let mac = config.port(arm).mac;
    let first = u32::from_ne_bytes([mac[0], mac[1], mac[2], mac[3]]);
    let last = u16::from_ne_bytes([mac[4], mac[5]]);
    w.load::<u32>(0) == Ok(first) && w.load::<u16>(4) == Ok(last)
}

/// Returns whether the frame is addressed to this port, is in one buffer, and has valid headers and
/// the usual options.
#[inline(always)]
fn is_well_formed<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &PacketState,
    config: &RuntimeConfig,
    tunnel: &Tunnel,
    arm: u8,
) -> bool {
    let end = pkt.inner.end;
    let udp_len = w.be16(usize::from(L4) + 4).unwrap_or(0);
    is_own_mac(w, config, arm)
        && is_tunnel_well_formed::<VXLAN, V6>(w, tunnel)
        && pkt.outer.proto == UDP
        && ipv4_header_ok(w, &outer(pkt))
        && L4.wrapping_add(udp_len) == end
        && pkt.outer.end == end
        && usize::from(end) == w.len()
        && usize::from(end) == w.frame_len()
        && matches!(pkt.inner.kind, Upper::Tcp { .. } | Upper::Udp)
        && (tunnel.inner_mtu == 0 || end - inner_at(VXLAN) <= tunnel.inner_mtu)
}

/// Returns whether the tunnel header is valid and has the usual options.
#[inline(always)]
fn is_tunnel_well_formed<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    tunnel: &Tunnel,
) -> bool {
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

/// Returns the VNI, which GENEVE and VXLAN have at the same offset.
#[inline(always)]
fn vni(w: &Window<'_>) -> u32 {
    w.be32(usize::from(TUNNEL) + 4).unwrap_or(0) >> 8
}

/// Stores the remaining results of `decap`.
#[inline(always)]
fn record_decap<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &mut PacketState,
    cached: &CachedTunnel,
    tunnel: &Tunnel,
) {
    pkt.arrival = Arrival::Gateway;
    pkt.rx_len = pkt.inner.end.into();
    pkt.eth = Ethernet { ethertype: ethernet::IPV4, vlan: 0, l3: IP };
    (pkt.scope, pkt.tunnel) = (cached.scope, cached.tunnel.into());
    pkt.vni = vni(w);
    if VXLAN {
        (pkt.scope_key, pkt.inner_eth) = (tunnel.scope_key, INNER_ETH);
    } else {
        pkt.scope_key = endpoint::<VXLAN>(w);
        pkt.attachment = u64::from_be(w.load(usize::from(OPTIONS) + 16).unwrap_or(0));
        (pkt.options_at, pkt.options_len) = (OPTIONS, geneve::OWN_OPTIONS as u8);
    }
    (pkt.inner_at, pkt.inner_type) = (inner_at(VXLAN), ethertype(V6));
}

/// Returns the outer packet, with its offsets as constants.
#[inline(always)]
fn outer(pkt: &PacketState) -> Ip {
    Ip { at: IP, l4: L4, v6: false, ..pkt.outer }
}

/// Returns the inner packet, with its offsets as constants.
#[inline(always)]
fn inner<const VXLAN: bool, const V6: bool>(pkt: &PacketState) -> Ip {
    let at = inner_at(VXLAN);
    Ip { at, l4: at + if V6 { 40 } else { 20 }, v6: V6, ..pkt.inner }
}

/// Sends the frame back to its gateway (verdict `return`), as in the stage `encap`. Returns the arm
/// by which it leaves, and the result of the rewrite.
#[inline(always)]
fn send_back<const VXLAN: bool>(
    w: &mut Window<'_>,
    pkt: &PacketState,
    set: &TableSet<'static>,
    tunnel: &Tunnel,
    arm: u8,
) -> Result<(u8, Result<(), DropReason>), u32> {
    let outer = outer(pkt);
    let (arm, written) = match tunnel.flags & TUNNEL_CROSS {
        0 => (arm, return_in_place(w, &outer)),
        _ if VXLAN => {
            let peer = set.tunnel(tunnel.peer).ok_or(OUTER)?;
            (peer.arm, cross_in_place(w, &outer, peer.port, peer.vni))
        }
        _ => return Err(OUTER),
    };
    Ok((arm, written.map_err(|Short| DropReason::TooShort)))
}

/// A packet of a known flow and its route to the backend.
struct Forwarding {
    hit: PathHit<'static>,
    path: Forward,
    route: Route,
    hash: u64,
    /// Service and local address for a tunnel; `None` for NAT.
    tunnel: Option<(&'static Service, &'static Addr)>,
}

impl Forwarding {
    /// Returns how the packet leaves; it was received in a frame of `rx_len` bytes.
    #[inline(always)]
    fn exit<const VXLAN: bool, const V6: bool>(&self, rx_len: u64) -> TxInfo {
        let inner = rx_len - u64::from(inner_at(VXLAN));
        let (verdict, front) = match self.tunnel {
            Some(_) => (VerdictCounter::Tunnel, front_len(V6)),
            None => (VerdictCounter::Nat, ethernet::HEADER as u16),
        };
        let (service, backend) = (self.path.service, self.path.backend);
        let tx_len = inner + u64::from(front);
        TxInfo { verdict, arm: self.route.arm, service, backend, tx_len }
    }
}

/// Bytes in front of a packet in Weir's GENEVE to a backend of this family.
pub const fn front_len(v6: bool) -> u16 {
    (ethernet::HEADER + if v6 { 40 } else { 20 } + 8 + geneve::HEADER + geneve::OWN_OPTIONS) as u16
}

/// A flow lookup in progress.
pub struct FlowLookup {
    /// Key of the packet.
    pub key: FlowKey,
    /// End of the key that sent the packet.
    pub side: Side,
    /// Hash of the key.
    pub hash: u64,
    /// Candidate path of the flow.
    pub candidate: PathCandidate<'static>,
}

/// Returns the flow key of a packet in a scope, and the end of it that sent the packet.
#[inline(always)]
fn key(scope: u32, ip: &Ip) -> (FlowKey, Side) {
    FlowKey::new(scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport)
}

/// Begins the lookup of a packet's flow. Without a hint, prefetches the flow's index entry and, if
/// such packets can begin flows (`BEGINS`), the memory that a new flow writes.
#[inline(always)]
pub fn begin_lookup<const BEGINS: bool>(scope: u32, ip: &Ip) -> Option<FlowLookup> {
    let (key, side) = key(scope, ip);
    let hash = key.hash(&Region.hash_key());
    let candidate = flows().candidate(flow_hints::path(hash).unwrap_or(NONE));
    if !candidate.is_valid() {
        flows().prefetch(hash);
        if BEGINS {
            flows().prefetch_new();
        }
    }
    Some(FlowLookup { key, side, hash, candidate })
}

/// Does the work of the stage `track` and of the checks before a packet leaves to a backend.
/// Returns `None` unless the packet belongs to a known flow and leaves its state unchanged, or if a
/// capture or a trace may match it.
#[inline(always)]
fn track<const VXLAN: bool, const V6: bool>(
    w: &Window<'_>,
    pkt: &PacketState,
    set: &TableSet<'static>,
    cached: &CachedTunnel,
    lookup: &FlowLookup,
    (config, arm): (&RuntimeConfig, u8),
) -> Option<Forwarding> {
    // Computed before the lookup's results are used, to hide their latency.
    let digest = digest::<VXLAN>(w, pkt, cached);
    let hash = lookup.hash;
    let hit = find_flow(lookup)?;
    let path = hit.forward;
    let from_initiator = hit.initiator == lookup.side;
    if is_observed(config, arm, path.service, from_initiator) {
        return None;
    }
    let backend = set.backend(path.backend)?;
    let stays = hit.keeps_state(tcp_flags(&pkt.inner), from_initiator);
    let next = set.next_hop(backend.next_hop)?;
    let can_forward = backend.incarnation == path.incarnation
        && !BackendState::is_failed(backend.state)
        && stays
        && is_known_leg::<VXLAN>(&hit, from_initiator, digest)
        && pkt.inner.ttl > 1
        && next.known
        && ecn_decap(pkt.outer.tos, pkt.inner.tos).is_some();
    if !can_forward {
        return None;
    }
    let route = Route::through(backend.next_hop, &next);
    let len = pkt.inner.end - inner_at(VXLAN);
    if path.mode == Mode::Nat as u8 {
        let same_family = path.flags & PATH_CROSSES == 0;
        let can_forward = from_initiator && same_family && len <= route.mtu;
        return can_forward.then_some(Forwarding { hit, path, route, hash, tunnel: None });
    }
    let service = set.service(path.service)?;
    let local_addr = local(set.settings(), u32::from(route.arm) << 1 | u32::from(V6), LOCALS)?;
    let usual = service.tunnel == TunnelKind::Geneve as u8 && path.backend_addr.is_v4() != V6;
    let fits = len <= route.mtu.saturating_sub(front_len(V6) - ethernet::HEADER as u16);
    let tunnel = Some((service, local_addr));
    (usual && fits).then_some(Forwarding { hit, path, route, hash, tunnel })
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
fn digest<const VXLAN: bool>(w: &Window<'_>, pkt: &PacketState, cached: &CachedTunnel) -> u32 {
    let tunnel = cached.tunnel.into();
    if VXLAN {
        return digest_vxlan(w, &pkt.outer, tunnel, vni(w), INNER_ETH);
    }
    usual_digest(w, &pkt.outer, tunnel, vni(w), OPTIONS)
}

/// Returns whether the gateway leg of the packet is that of the flow in this direction.
#[inline(always)]
fn is_known_leg<const VXLAN: bool>(hit: &PathHit<'_>, from_initiator: bool, digest: u32) -> bool {
    let path = &hit.forward;
    if path.flags & PATH_ONE_WAY != 0 {
        return true;
    }
    if from_initiator {
        return digest == hit.digest;
    }
    // A VXLAN gateway has one tunnel per direction; replies use that of the client's direction.
    VXLAN || path.flags & PATH_RESPONDER_LEG != 0 && digest == path.responder_digest()
}

/// Finds the flow through its recent-flow hint. Without a hint, finds it through the index, and
/// stores a hint.
#[inline(always)]
fn find_flow(lookup: &FlowLookup) -> Option<PathHit<'static>> {
    let (flows, hash) = (flows(), lookup.hash);
    if lookup.candidate.is_valid() {
        let hit = flows.find_by_path(&lookup.candidate, &lookup.key);
        if hit.is_none() {
            flow_hints::forget(hash);
        }
        return hit;
    }
    let hit = flows.find_likely(&flows.begin_lookup(hash)?, &lookup.key)?;
    if !hit.is_front() {
        return None;
    }
    flow_hints::remember(hash, hit.path);
    flows.find_by_path(&flows.candidate(hit.path), &lookup.key)
}

/// Returns the stage for a packet whose flow was not found here. If there is certainly none, stores
/// the results of `classify`.
#[inline(always)]
fn stage_without_flow(pkt: &mut PacketState, scope: u32, hash: u64) -> u32 {
    if !flows().lacks(hash) {
        return CLASSIFY;
    }
    (pkt.key, pkt.side) = key(scope, &pkt.inner);
    pkt.hash = hash;
    SELECT
}

/// Tunnel to tunnel: replaces the gateway's headers by Weir's.
#[inline(always)]
fn encap<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    w: &mut Window<'_>,
    pkt: &mut PacketState,
    forwarding: &Forwarding,
    (service, local_addr): (&Service, &Addr),
    tunnel: &Tunnel,
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let hash = forwarding.hash;
    let (outer, mut inner) = (outer(pkt), inner::<VXLAN, V6>(pkt));
    inner.tos = rewrite::propagate_ecn(w, &outer, &inner).or(Err(DropReason::TooShort))?;
    rewrite::decrement_ttl(w, &inner).map_err(short)?;
    let (endpoint, origin) = if VXLAN {
        (tunnel.scope_key, None)
    } else {
        // The cookie is the last option.
        let cookie = w.be32(usize::from(inner.at) - 4).map_err(short)?;
        let origin = Origin::new(tunnel.gateway, &outer.src, outer.sport, cookie);
        (endpoint::<VXLAN>(w), origin)
    };
    // Not on the stack, which is too small.
    pkt.reply_path.options = options(endpoint, tunnel.gateway, origin, hash);
    let options = &pkt.reply_path.options;
    let ends = (local_addr.in_words(), forwarding.path.backend_addr);
    let outer =
        headers(TunnelKind::Geneve, service, &forwarding.route.macs, ends, hash, options, &inner);
    let len = usize::from(inner.end - inner.at);
    let start = i32::from(inner_at(VXLAN)) - i32::from(front_len(V6));
    if start == 0 {
        return write_outer(w, &outer, len).map_err(short);
    }
    if !move_start(ctx, start) {
        return Err(DropReason::NoHeadroom);
    }
    write_outer(&mut window(ctx), &outer, len).map_err(short)
}

/// NAT: removes the tunnel and rewrites addresses and ports.
#[inline(always)]
fn nat<const VXLAN: bool, const V6: bool>(
    ctx: *mut xdp_md,
    w: &mut Window<'_>,
    pkt: &PacketState,
    forwarding: &Forwarding,
) -> Result<(), DropReason> {
    let short = |_: Short| DropReason::TooShort;
    let (outer, inner, path) = (outer(pkt), inner::<VXLAN, V6>(pkt), &forwarding.path);
    rewrite::propagate_ecn(w, &outer, &inner).or(Err(DropReason::TooShort))?;
    rewrite::decrement_ttl(w, &inner).map_err(short)?;
    let (src, sport) = (*path.nat_addr(), path.nat_port);
    let (dst, dport) = (path.backend_addr, path.backend_port);
    rewrite::nat(w, &inner, &Rewrite { src, sport, dst, dport }).map_err(short)?;
    if !move_start(ctx, tunnel_len(VXLAN).into()) {
        return Err(DropReason::TooShort);
    }
    ethernet::write(&mut window(ctx), &forwarding.route.macs, 0, ethertype(V6)).map_err(short)
}
