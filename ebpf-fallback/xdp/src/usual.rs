//! The usual packet: all of its journey in one program.
//!
//! Most of what a gateway sends is of one build: GENEVE over IPv4 with the gateway's three options,
//! a whole TCP or UDP packet over IPv4 inside, in one buffer; between strangers, or of a known flow
//! that goes on to its backend as before, by NAT or by a tunnel of the same build. For that the
//! stages' work is done here, by the same functions of `packet` and `tables`, but with every place
//! a constant, and without asking twice. What is not quite so goes on with the stages: from the
//! first one, or behind `decap` where the headers were in order. Until a packet is written to,
//! nothing is changed that they wouldn't change too.

use crate::classify::between_strangers;
use crate::encap::{Way, headers, local};
use crate::familiar::{Known, era, recognise};
use crate::finish::{finish, sent};
use crate::frame::{move_start, window};
use crate::here::{flows, page};
use crate::lately;
use crate::leg::usual_digest;
use crate::next::{CLASSIFY, OUTER};
use crate::origin::options;
use crate::ports::Place;
use crate::work::{Arrival, Work};
use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::bindings::xdp_md;
use packet::addr::Addr;
use packet::checksum::ipv4_header_ok;
use packet::ethernet::{self, Ethernet};
use packet::flow::{FlowKey, Side};
use packet::geneve;
use packet::ip::{Ip, L4 as Upper, UDP};
use packet::origin::Origin;
use packet::rewrite::{self, Rewrite};
use packet::tunnel::{Kind, ecn_decap, return_in_place, write_outer};
use packet::window::{Short, Window};
use tables::counters::{ArmCounter, VerdictCounter};
use tables::flow::{Forward, Likely, Met, PATH_CROSSES, PATH_ONE_WAY, PATH_RESPONDER_LEG};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, NONE, Service, TUNNEL_CROSS, Tunnel, TunnelKind};
use tables::region::Region;
use tables::set::TableSet;

/// Where the outer headers begin: Ethernet, IPv4, UDP, GENEVE, the options, and what is inside.
const IP: u16 = ethernet::HEADER as u16;
const L4: u16 = IP + 20;
const GENEVE: u16 = L4 + 8;
const OPTIONS: u16 = GENEVE + geneve::HEADER as u16;
const INNER: u16 = OPTIONS + geneve::OWN_OPTIONS as u16;
/// Bytes that a frame has less without its tunnel.
const TUNNEL: u16 = INNER - ethernet::HEADER as u16;

/// How many of our addresses are looked through for the one towards a backend.
const LOCALS: usize = 4;

/// How a frame came.
#[derive(Clone, Copy)]
pub struct Came {
    /// By which arm.
    pub arm: u8,
    /// How, as far as that is known.
    pub arrival: Arrival,
    /// By which interface.
    pub ifindex: u32,
    /// When, in seconds of the region's clock.
    pub now_s: u32,
    /// Under which tables.
    pub generation: u32,
}

/// Where a packet goes on to.
struct Exit {
    verdict: VerdictCounter,
    arm: u8,
    service: u32,
    backend: u32,
    /// Bytes that the frame has less than before.
    less: u16,
}

/// Does the whole journey of a frame, if it is a usual one, and says what becomes of it; else the
/// stage that it goes on with. Of `work` it uses the two headers, and fills in what that stage
/// wants to find.
#[inline(always)]
pub fn usual(ctx: *mut xdp_md, work: &mut Work, place: &Place, came: &Came) -> Result<u32, u32> {
    let w = &mut window(ctx);
    let set = &Region.tables(came.generation);
    let (known, tunnel) = read(w, work, set, era(place, came.now_s)).ok_or(OUTER)?;
    let strangers = between_strangers(set, tunnel, &work.inner);
    // A flow's entry is asked for before anything else that takes time.
    let asking = if strangers { None } else { ask(known, &work.inner) };
    if !is_sound(w, work, place, tunnel, came.arm) {
        return Err(OUTER);
    }
    let (exit, done) = if strangers {
        if tunnel.flags & TUNNEL_CROSS != 0 {
            return Err(OUTER);
        }
        let (verdict, arm) = (VerdictCounter::Return, came.arm);
        let exit = Exit { verdict, arm, service: NONE, backend: NONE, less: 0 };
        (exit, return_in_place(w, &outer(work)))
    } else {
        let onward = asking.and_then(|asking| track(w, work, set, known, &asking));
        let Some(onward) = onward else {
            begin(work, came);
            note(w, work, known);
            return Err(CLASSIFY);
        };
        flows().touch_met(&onward.met, came.now_s);
        let done = match onward.by {
            Some(by) => encap(w, work, &onward, by, tunnel.gateway),
            None => nat(ctx, w, work, &onward),
        };
        (onward.exit(), done)
    };
    let bytes = u64::from(work.inner.end);
    if done.is_err() {
        begin(work, came);
        (work.came, work.service) = (bytes, exit.service);
        work.drop(DropReason::TooShort);
        return Ok(finish(ctx));
    }
    let action = sent(place, exit.arm, came.ifindex);
    if action == XDP_DROP {
        // It tries once more, in vain, and says so.
        begin(work, came);
        (work.came, work.service) = (bytes, exit.service);
        work.out(exit.verdict, exit.arm);
        return Ok(finish(ctx));
    }
    count(came.arm, &exit, bytes);
    Ok(action)
}

/// Fills in what is known of any frame.
#[inline(always)]
pub fn begin(work: &mut Work, came: &Came) {
    work.begin();
    (work.arm, work.arrival, work.ifindex) = (came.arm, came.arrival, came.ifindex);
    (work.now_s, work.generation) = (came.now_s, came.generation);
}

/// Counts a packet of so many bytes that goes, as [`finish`] does it of any.
#[inline(always)]
fn count(arm: u8, exit: &Exit, came: u64) {
    let (page, left) = (page(), came - u64::from(exit.less));
    page.arm_packet(arm, ArmCounter::RxPackets, came);
    page.verdict(exit.verdict, 1);
    page.arm_packet(exit.arm, ArmCounter::TxPackets, left);
    if exit.service != NONE {
        page.passage(exit.service, exit.backend, left);
    }
}

/// Reads the headers, and recognises the tunnel. Whether all of it is in order, [`is_sound`] asks.
#[inline(always)]
fn read(
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
    // Which class the options have to be of, only the tunnel says; of which tunnel, the endpoint.
    let known = recognise(era, set.generation(), &work.outer, endpoint(w))?;
    if !work.inner.read_usual(w, INNER, ethernet::IPV4) {
        return None;
    }
    Some((known, set.tunnel(known.tunnel.into())?))
}

/// Whether it is a frame to us in one buffer, its headers in order and its options as usual.
#[inline(always)]
fn is_sound(w: &Window<'_>, work: &Work, place: &Place, tunnel: &Tunnel, arm: u8) -> bool {
    let Ok(header) = geneve::parse(w, GENEVE) else { return false };
    let options = geneve::usual_options(w, OPTIONS, header.opt_len, tunnel.option_class);
    let end = work.inner.end;
    let ours = place.port(arm).mac;
    let first = u32::from_ne_bytes([ours[0], ours[1], ours[2], ours[3]]);
    let last = u16::from_ne_bytes([ours[4], ours[5]]);
    let to_us = w.load::<u32>(0) == Ok(first) && w.load::<u16>(4) == Ok(last);
    let udp_len = w.be16(usize::from(L4) + 4).unwrap_or(0);
    to_us
        && options.is_some()
        && work.outer.proto == UDP
        && ipv4_header_ok(w, &outer(work))
        && L4.wrapping_add(udp_len) == end
        && work.outer.end == end
        && usize::from(end) == w.len()
        && usize::from(end) == w.frame_len()
        && !header.control
        && header.protocol == ethernet::IPV4
        && matches!(work.inner.kind, Upper::Tcp { .. } | Upper::Udp)
        && (tunnel.inner_mtu == 0 || end - INNER <= tunnel.inner_mtu)
}

/// GENEVE's endpoint, where the first option has it.
#[inline(always)]
fn endpoint(w: &Window<'_>) -> u64 {
    u64::from_be(w.load(usize::from(OPTIONS) + 4).unwrap_or(0))
}

/// Notes what else `decap` finds out.
#[inline(always)]
fn note(w: &Window<'_>, work: &mut Work, known: &Known) {
    work.arrival = Arrival::Gateway;
    work.came = work.inner.end.into();
    work.eth = Ethernet { ethertype: ethernet::IPV4, vlan: 0, l3: IP };
    (work.scope, work.tunnel) = (known.scope, known.tunnel.into());
    work.scope_key = endpoint(w);
    work.attachment = u64::from_be(w.load(usize::from(OPTIONS) + 16).unwrap_or(0));
    work.vni = w.be32(usize::from(GENEVE) + 4).unwrap_or(0) >> 8;
    (work.options_at, work.options_len) = (OPTIONS, geneve::OWN_OPTIONS as u8);
    (work.inner_at, work.inner_type) = (INNER, ethernet::IPV4);
}

/// The outer packet, with its places as constants.
#[inline(always)]
fn outer(work: &Work) -> Ip {
    Ip { at: IP, l4: L4, v6: false, ..work.outer }
}

/// The packet inside, likewise.
#[inline(always)]
fn inner(work: &Work) -> Ip {
    Ip { at: INNER, l4: INNER + 20, v6: false, ..work.inner }
}

/// A packet of a known flow, and its way to the backend.
struct Onward {
    met: Met<'static>,
    path: Forward,
    way: Way,
    hash: u64,
    /// By a service's tunnel from our address; else by NAT.
    by: Option<(&'static Service, &'static Addr)>,
}

impl Onward {
    #[inline(always)]
    fn exit(&self) -> Exit {
        let (verdict, less) = match self.by {
            Some(_) => (VerdictCounter::Tunnel, 0),
            None => (VerdictCounter::Nat, TUNNEL),
        };
        let (service, backend) = (self.path.service, self.path.backend);
        Exit { verdict, arm: self.way.arm, service, backend, less }
    }
}

/// A packet's flow, which is being asked for.
struct Asking {
    key: FlowKey,
    side: Side,
    hash: u64,
    likely: Likely<'static>,
}

#[inline(always)]
fn ask(known: &Known, ip: &Ip) -> Option<Asking> {
    let (key, side) = FlowKey::new(known.scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    let hash = key.hash(&Region.hash_key());
    let likely = flows().likely(lately::path(hash).unwrap_or(NONE));
    Some(Asking { key, side, hash, likely })
}

/// The stage `track`, and what the ways to a backend ask, of a packet of a known flow that goes on
/// as those before it.
#[inline(always)]
fn track(
    w: &Window<'_>,
    work: &Work,
    set: &TableSet<'static>,
    known: &Known,
    asking: &Asking,
) -> Option<Onward> {
    let flows = flows();
    // Before what was asked for is looked at: it may be on its way still.
    let digest = digest(w, work, known);
    let hash = asking.hash;
    let met = meet(asking)?;
    let path = met.forward;
    let from_initiator = met.initiator == asking.side;
    let backend = set.backend(path.backend)?;
    let stays = match work.inner.kind {
        Upper::Tcp { flags } => met.stays(flags, from_initiator),
        _ => met.stays(0, from_initiator),
    };
    let next = set.next_hop(backend.next_hop)?;
    let goes = backend.incarnation == path.incarnation
        && !BackendState::is_failed(backend.state)
        && stays
        && is_known_leg(&met, from_initiator, digest)
        && work.inner.ttl > 1
        && next.known
        && ecn_decap(work.outer.tos, work.inner.tos).is_some();
    if !goes {
        return None;
    }
    let way = Way::by(backend.next_hop, &next);
    let len = work.inner.end - INNER;
    if path.mode == Mode::Nat as u8 {
        let same = path.flags & PATH_CROSSES == 0;
        let goes = from_initiator && same && len <= way.mtu;
        return goes.then_some(Onward { met, path, way, hash, by: None });
    }
    let service = set.service(path.service)?;
    let ours = local(set.settings(), u32::from(way.arm) << 1, LOCALS)?;
    let same = service.tunnel == TunnelKind::Geneve as u8 && path.backend_addr.is_v4();
    let fits = len <= way.mtu.saturating_sub(TUNNEL);
    (same && fits).then_some(Onward { met, path, way, hash, by: Some((service, ours)) })
}

/// The digest of the gateway's side.
#[inline(always)]
fn digest(w: &Window<'_>, work: &Work, known: &Known) -> u32 {
    let vni = w.be32(usize::from(GENEVE) + 4).unwrap_or(0) >> 8;
    usual_digest(w, &work.outer, known.tunnel.into(), vni, OPTIONS)
}

/// Whether the gateway's side of the packet is what the flow has of this direction.
#[inline(always)]
fn is_known_leg(met: &Met<'_>, from_initiator: bool, digest: u32) -> bool {
    let path = &met.forward;
    if path.flags & PATH_ONE_WAY != 0 {
        return true;
    }
    if from_initiator {
        return digest == met.digest;
    }
    path.flags & PATH_RESPONDER_LEG != 0 && digest == path.responder_digest()
}

/// The flow, by the path that it went by lately, or else by the index; then that is remembered.
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

/// Tunnel to tunnel: the new headers have as many bytes as the old ones.
#[inline(always)]
fn encap(
    w: &mut Window<'_>,
    work: &Work,
    onward: &Onward,
    (service, ours): (&Service, &Addr),
    gateway: u16,
) -> Result<(), Short> {
    let hash = onward.hash;
    let (outer, mut inner) = (outer(work), inner(work));
    inner.tos = rewrite::take_congestion(w, &outer, &inner).or(Err(Short))?;
    rewrite::decrement_ttl(w, &inner)?;
    let cookie = w.be32(usize::from(INNER) - 4)?;
    let origin = Origin::new(gateway, &outer.src, outer.sport, cookie);
    let options = options(endpoint(w), gateway, origin, hash);
    let ends = (ours.in_words(), onward.path.backend_addr);
    let outer = headers(Kind::Geneve, service, &onward.way.macs, ends, hash, &options, &inner);
    write_outer(w, &outer, usize::from(inner.end - INNER))
}

/// NAT: without the tunnel, with other ends.
#[inline(always)]
fn nat(ctx: *mut xdp_md, w: &mut Window<'_>, work: &Work, onward: &Onward) -> Result<(), Short> {
    let (outer, inner, path) = (outer(work), inner(work), &onward.path);
    rewrite::take_congestion(w, &outer, &inner).or(Err(Short))?;
    rewrite::decrement_ttl(w, &inner)?;
    let (src, sport) = (path.nat_addr, path.nat_port);
    let (dst, dport) = (path.backend_addr, path.backend_port);
    rewrite::nat(w, &inner, &Rewrite { src, sport, dst, dport })?;
    if !move_start(ctx, TUNNEL.into()) {
        return Err(Short);
    }
    ethernet::write(&mut window(ctx), &onward.way.macs, 0, ethernet::IPV4)
}
