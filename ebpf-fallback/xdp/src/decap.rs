//! Decap: identifies a tunnel packet, checks whether it is permitted, and parses the inner packet.

use crate::familiar;
use crate::frame::window;
use crate::next::{CLASSIFY, FINISH, OPEN, done, either, go, raw};
use crate::or_split;
use crate::place::place;
use crate::work::{Arrival, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet::{self, Ethernet};
use packet::flow::SCOPE_PLAIN;
use packet::geneve::{self, GatewayOptions};
use packet::ip::{Fragment, IPV4_IN_IP, UDP};
use packet::parsed::Malformed;
use packet::{gue, vxlan};
use tables::layout::MAX_TUNNELS;
use tables::outer::bad_geneve;
use tables::reason::DropReason;
use tables::record::{NONE, TUNNEL_BACKEND, Tunnel, TunnelKind};
use tables::region::Region;
use tables::scope::Scopes;

/// Result in place of a tunnel id: no tunnel has this address.
const NOT_OURS: u32 = NONE;
/// Result in place of a tunnel id: the tunnel does not permit this source.
const NOT_FOR_SOURCE: u32 = NONE - 1;

const GENEVE: u8 = TunnelKind::Geneve as u8;
const VXLAN: u8 = TunnelKind::Vxlan as u8;
const IPIP: u8 = TunnelKind::Ipip as u8;
const GUE: u8 = TunnelKind::Gue as u8;

/// The stage: decapsulates tunnel packets, and passes others on.
#[xdp(frags)]
pub fn decap(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let opened = match work.outer.proto {
        UDP => udp_tunnel(ctx, work),
        _ => ip_tunnel(work),
    };
    let next = match opened {
        Ok(true) => part_inner(ctx),
        Ok(false) => {
            work.inner = work.outer;
            OPEN
        }
        Err(reason) => {
            work.inner = work.outer;
            work.drop(or_split(ctx, reason))
        }
    };
    go(ctx, either(done(next).map(|()| CLASSIFY)))
}

/// Parses the inner packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_inner(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let read = work.inner.read(&window(ctx), work.inner_at, work.inner_type);
    // Bytes after the outer packet are Ethernet padding and not part of the inner packet.
    if read.is_err() || work.inner.end > work.outer.end {
        work.inner = work.outer;
        return work.drop(or_split(ctx, DropReason::InnerMalformed));
    }
    OPEN
}

#[inline(always)]
fn ip_tunnel(work: &mut Work) -> Result<bool, DropReason> {
    let id = part_ipip();
    if id == NOT_OURS {
        return Ok(false);
    }
    // A fragment cannot be decapsulated: its inner headers may be in another one.
    if work.outer.fragment != Fragment::Whole {
        return Err(DropReason::OuterFragment);
    }
    let v4 = work.outer.proto == IPV4_IN_IP;
    let ethertype = if v4 { ethernet::IPV4 } else { ethernet::IPV6 };
    enter(work, id, work.outer.l4, ethertype)
}

#[inline(always)]
fn udp_tunnel(ctx: *mut xdp_md, work: &mut Work) -> Result<bool, DropReason> {
    if work.outer.fragment != Fragment::Whole {
        return if part_ours() == NOT_OURS { Ok(false) } else { Err(DropReason::OuterFragment) };
    }
    // The first tunnel on this port determines the header format.
    let kind = part_port() as u8;
    if kind == 0 || kind == IPIP {
        return Ok(false);
    }
    let w = window(ctx);
    let len = w.be16(usize::from(work.outer.l4) + 4).map_err(|_| DropReason::TooShort)?;
    if work.outer.l4.wrapping_add(len) != work.outer.end {
        return Err(DropReason::BadUdpLength);
    }
    let header = work.outer.l4 + 8;
    match kind {
        GENEVE => geneve_tunnel(ctx, work, header),
        VXLAN => vxlan_tunnel(ctx, work, header),
        _ => gue_tunnel(ctx, work, header),
    }
}

/// Records that the packet arrived through tunnel `id`, with the inner packet at offset `inner`.
#[inline(always)]
fn enter(work: &mut Work, id: u32, inner: u16, ethertype: u16) -> Result<bool, DropReason> {
    let tunnel = work.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    let backend = tunnel.flags & TUNNEL_BACKEND != 0;
    work.tunnel = id;
    work.arrival = if backend { Arrival::Backend } else { Arrival::Gateway };
    work.inner_at = inner;
    work.inner_type = ethertype;
    Ok(true)
}

/// Returns the tunnel of this kind for the outer packet, or the reason for which it is rejected.
#[inline(always)]
fn admitted(kind: u8) -> Result<u32, DropReason> {
    match part_admit(u32::from(kind)) {
        NOT_OURS => Err(DropReason::NotOurAddress),
        NOT_FOR_SOURCE => Err(DropReason::TunnelSource),
        id => Ok(id),
    }
}

#[inline(always)]
fn gue_tunnel(ctx: *mut xdp_md, work: &mut Work, header: u16) -> Result<bool, DropReason> {
    let id = admitted(GUE)?;
    let inner = gue::parse(&window(ctx), header).map_err(|_| DropReason::GueHeader)?;
    let ethertype = if inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    enter(work, id, inner.payload, ethertype)
}

#[inline(always)]
fn geneve_tunnel(ctx: *mut xdp_md, work: &mut Work, header: u16) -> Result<bool, DropReason> {
    let id = admitted(GENEVE)?;
    let tunnel = work.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    let w = window(ctx);
    let geneve = geneve::parse(&w, header).map_err(bad_geneve)?;
    if geneve.control {
        return Err(DropReason::GeneveControl);
    }
    work.options_at = header + 8;
    work.options_len = geneve.opt_len;
    work.vni = geneve.vni;
    match geneve::usual_options(&w, header + 8, geneve.opt_len, tunnel.option_class) {
        Some(options) => note_options(work, &options),
        None => {
            work.tunnel = id;
            let reason = part_options(ctx);
            if reason != OPEN {
                return Err(work.reason);
            }
        }
    }
    if geneve.protocol != ethernet::IPV4 && geneve.protocol != ethernet::IPV6 {
        return Err(DropReason::TunnelProtocol);
    }
    scope(work, tunnel)?;
    work.tunnel = id;
    if let Some(place) = place() {
        if tunnel.flags & TUNNEL_BACKEND != 0 {
            familiar::remember_backend(place, work);
        } else if !work.outer.v6 {
            familiar::remember(place, work, work.scope_key);
        }
    }
    enter(work, id, geneve.payload, geneve.protocol)
}

/// Parses GENEVE options in an unusual order.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_options(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let Some(tunnel) = work.set().tunnel(work.tunnel) else { return FINISH };
    let class = tunnel.option_class;
    let options = geneve::any_options(&window(ctx), work.options_at, work.options_len, class);
    match options {
        Err(cause) => work.drop(bad_geneve(cause)),
        Ok(options) if options.unknown_critical => work.drop(DropReason::GeneveCriticalOption),
        Ok(options) if options.present != geneve::ALL_OPTIONS => {
            work.drop(DropReason::GeneveMissingOption)
        }
        Ok(options) => {
            note_options(work, &options);
            OPEN
        }
    }
}

#[inline(always)]
fn note_options(work: &mut Work, options: &GatewayOptions) {
    work.scope_key = options.endpoint;
    work.attachment = options.attachment;
}

#[inline(always)]
fn vxlan_tunnel(ctx: *mut xdp_md, work: &mut Work, header: u16) -> Result<bool, DropReason> {
    let w = window(ctx);
    let vxlan = vxlan::parse(&w, header).map_err(|cause| match cause {
        Malformed::Short => DropReason::TooShort,
        _ => DropReason::VxlanFlags,
    })?;
    work.vni = vxlan.vni;
    let id = admitted(VXLAN);
    if id.is_err() {
        match part_vni() {
            0 => return Err(DropReason::WrongVni),
            1 => return Err(DropReason::WrongPort),
            _ => {}
        }
    }
    let id = id?;
    let inner = Ethernet::parse_at(&w, vxlan.payload).map_err(|_| DropReason::InnerMalformed)?;
    if inner.ethertype != ethernet::IPV4 && inner.ethertype != ethernet::IPV6 {
        return Err(DropReason::TunnelProtocol);
    }
    let tunnel = work.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        work.scope_key = tunnel.scope_key;
        intern(work, VXLAN, tunnel.gateway)?;
        if !work.outer.v6
            && let Some(place) = place()
        {
            work.tunnel = id;
            familiar::remember(place, work, work.vni.into());
        }
    }
    work.inner_eth = vxlan.payload;
    enter(work, id, inner.l3, inner.ethertype)
}

/// Determines the scope of a GENEVE packet: that of its endpoint behind its gateway. A backend's
/// packet in Weir's tunnel contains both, and thereby matches its flow.
#[inline(always)]
fn scope(work: &mut Work, tunnel: &Tunnel) -> Result<(), DropReason> {
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        return intern(work, GENEVE, tunnel.gateway);
    }
    if work.scope_key == 0 {
        work.scope = SCOPE_PLAIN;
        return Ok(());
    }
    // The flow may belong to a gateway of another kind.
    let kind = part_gateway() as u8;
    intern(work, kind, work.attachment as u16)
}

/// Interns the scope of the packet's endpoint behind a gateway of this kind and number.
#[inline(always)]
fn intern(work: &mut Work, kind: u8, gateway: u16) -> Result<(), DropReason> {
    match part_scope(u32::from(kind) << 16 | u32::from(gateway)) {
        0 => Err(DropReason::ScopeTableFull),
        scope => {
            work.scope = scope;
            Ok(())
        }
    }
}

/// Returns the scope of the packet's endpoint behind a gateway, or 0 if there is none. `gateway`
/// contains its number in the low 16 bits and its kind above.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_scope(gateway: u32) -> u32 {
    let Some(work) = work() else { return 0 };
    let scopes = Scopes::new(&Region);
    let (kind, gateway) = ((gateway >> 16) as u8, gateway as u16);
    scopes.intern(kind, gateway, work.scope_key, work.now_s).unwrap_or(0)
}

/// Returns the id of the first tunnel for which `of` returns true, or [`NOT_OURS`].
#[inline(always)]
fn first(work: &Work, of: impl Fn(&Tunnel) -> bool) -> u32 {
    let (set, tunnels) = (work.set(), Region.tunnels());
    for id in 0..MAX_TUNNELS {
        if id >= tunnels {
            break;
        }
        if set.tunnel(id).is_some_and(&of) {
            return id;
        }
    }
    NOT_OURS
}

/// Returns the kind of the first tunnel on the packet's port; 0 if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_port() -> u32 {
    let Some(work) = work() else { return 0 };
    let id = first(work, |t| t.port == work.outer.dport);
    work.set().tunnel(id).map_or(0, |t| u32::from(t.kind))
}

/// Returns a tunnel of any kind to the packet's address.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_ours() -> u32 {
    let Some(work) = work() else { return NOT_OURS };
    first(work, |t| t.local == work.outer.dst)
}

/// Returns the IP-in-IP tunnel to the packet's address. A backend may reply to the outer source of
/// the packets that it receives.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_ipip() -> u32 {
    let Some(work) = work() else { return NOT_OURS };
    if work.set().settings().is_ipip_source(&work.outer.dst) {
        return first(work, |t| t.kind == IPIP && t.flags & TUNNEL_BACKEND != 0);
    }
    first(work, |t| t.kind == IPIP && t.local == work.outer.dst)
}

/// Returns the kind of the gateway that a backend's GENEVE packet names; GENEVE if there is no such
/// gateway.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_gateway() -> u32 {
    let Some(work) = work() else { return 0 };
    let gateway = work.attachment as u16;
    let id = first(work, |t| t.flags & TUNNEL_BACKEND == 0 && t.gateway == gateway);
    work.set().tunnel(id).map_or(u32::from(GENEVE), |t| u32::from(t.kind))
}

/// Returns 2 if a VXLAN tunnel has the packet's VNI and port, 1 if one has its VNI, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_vni() -> u32 {
    let Some(work) = work() else { return 0 };
    let ours = |t: &Tunnel| t.kind == VXLAN && t.vni == work.vni;
    if first(work, |t| ours(t) && t.port == work.outer.dport) != NOT_OURS {
        return 2;
    }
    u32::from(first(work, ours) != NOT_OURS)
}

/// Returns the tunnel of `kind` for the packet's port, address and (for VXLAN) VNI that permits its
/// source, or else [`NOT_OURS`] or [`NOT_FOR_SOURCE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_admit(kind: u32) -> u32 {
    let Some(work) = work() else { return NOT_OURS };
    let ours = |t: &Tunnel| {
        t.port == work.outer.dport
            && u32::from(t.kind) == kind
            && t.local == work.outer.dst
            && (kind != u32::from(VXLAN) || t.vni == work.vni)
    };
    let (set, tunnels) = (work.set(), Region.tunnels());
    let mut reason = NOT_OURS;
    for id in 0..MAX_TUNNELS {
        if id >= tunnels {
            break;
        }
        if set.tunnel(id).is_some_and(ours) {
            if part_open(id) != 0 {
                return id;
            }
            reason = NOT_FOR_SOURCE;
        }
    }
    reason
}

/// Returns 1 if a tunnel permits the packet's source, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_open(id: u32) -> u32 {
    let Some(work) = work() else { return 0 };
    let source = &work.outer.src;
    let open = |t: &Tunnel| t.flags & TUNNEL_BACKEND != 0 || t.admits(source);
    u32::from(work.set().tunnel(id).is_some_and(open))
}
