//! Decap: identifies a tunnel packet, checks whether it is permitted, and parses the inner packet.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::frame::window;
use crate::header_cache;
use crate::next::{CLASSIFY, CONTINUE, FINISH, check_next, next_stage, raw, run_stage};
use crate::packet_state::{Arrival, PacketState, packet_state};
use crate::reason_if_split;
use crate::runtime::runtime_config;
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

/// Result in place of a tunnel id: no tunnel matches the packet.
const NO_TUNNEL: u32 = NONE;
/// Result in place of a tunnel id: tunnels match the packet, but none permits its source.
const NOT_FOR_SOURCE: u32 = NONE - 1;

const GENEVE: u8 = TunnelKind::Geneve as u8;
const VXLAN: u8 = TunnelKind::Vxlan as u8;
const IPIP: u8 = TunnelKind::Ipip as u8;
const GUE: u8 = TunnelKind::Gue as u8;

/// The stage: identifies tunnel packets, checks them and parses their inner packets. Packets
/// without a tunnel continue unchanged.
#[xdp(frags)]
pub fn decap(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let parsed = match pkt.outer.proto {
        UDP => udp_tunnel(ctx, pkt),
        _ => ip_tunnel(pkt),
    };
    let next = match parsed {
        Ok(true) => part_inner(ctx),
        Ok(false) => {
            pkt.inner = pkt.outer;
            CONTINUE
        }
        Err(reason) => {
            pkt.inner = pkt.outer;
            pkt.drop(reason_if_split(ctx, reason))
        }
    };
    run_stage(ctx, next_stage(check_next(next).map(|()| CLASSIFY)))
}

/// Parses the inner packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_inner(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let read = pkt.inner.read(&window(ctx), pkt.inner_at, pkt.inner_type);
    // Bytes after the outer packet are Ethernet padding and not part of the inner packet.
    if read.is_err() || pkt.inner.end > pkt.outer.end {
        pkt.inner = pkt.outer;
        return pkt.drop(reason_if_split(ctx, DropReason::InnerMalformed));
    }
    CONTINUE
}

/// Identifies an IP-in-IP packet; returns false if it is not for a tunnel.
#[inline(always)]
fn ip_tunnel(pkt: &mut PacketState) -> Result<bool, DropReason> {
    let id = part_ipip();
    if id == NO_TUNNEL {
        return Ok(false);
    }
    // A fragment cannot be decapsulated: its inner headers may be in another fragment.
    if pkt.outer.fragment != Fragment::Whole {
        return Err(DropReason::OuterFragment);
    }
    let v4 = pkt.outer.proto == IPV4_IN_IP;
    let ethertype = if v4 { ethernet::IPV4 } else { ethernet::IPV6 };
    set_tunnel(pkt, id, pkt.outer.l4, ethertype)
}

/// Identifies a UDP tunnel packet; returns false if it is not for a tunnel.
#[inline(always)]
fn udp_tunnel(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<bool, DropReason> {
    if pkt.outer.fragment != Fragment::Whole {
        return if part_tunnel_to_address() == NO_TUNNEL {
            Ok(false)
        } else {
            Err(DropReason::OuterFragment)
        };
    }
    // The first tunnel on this port determines the header format.
    let kind = match TunnelKind::from_u8(part_kind_on_port() as u8) {
        None | Some(TunnelKind::Ipip) => return Ok(false),
        Some(kind) => kind,
    };
    let w = window(ctx);
    let len = w.be16(usize::from(pkt.outer.l4) + 4).map_err(|_| DropReason::TooShort)?;
    if pkt.outer.l4.wrapping_add(len) != pkt.outer.end {
        return Err(DropReason::BadUdpLength);
    }
    let header = pkt.outer.l4 + 8;
    match kind {
        TunnelKind::Geneve => geneve_tunnel(ctx, pkt, header),
        TunnelKind::Vxlan => vxlan_tunnel(ctx, pkt, header),
        TunnelKind::Gue => gue_tunnel(ctx, pkt, header),
        // IP-in-IP has no port: the `match` above has returned.
        TunnelKind::Ipip => Ok(false),
    }
}

/// Records that the packet arrived through tunnel `id`, with the inner packet at offset `inner`.
/// Returns `Ok(true)`, or [`DropReason::NotOurAddress`] if the tunnel does not exist.
#[inline(always)]
fn set_tunnel(
    pkt: &mut PacketState,
    id: u32,
    inner: u16,
    ethertype: u16,
) -> Result<bool, DropReason> {
    let tunnel = pkt.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    let backend = tunnel.flags & TUNNEL_BACKEND != 0;
    pkt.tunnel = id;
    pkt.arrival = if backend { Arrival::Backend } else { Arrival::Gateway };
    pkt.inner_at = inner;
    pkt.inner_type = ethertype;
    Ok(true)
}

/// Returns the tunnel of this kind for the outer packet, or the reason for which it is rejected.
#[inline(always)]
fn find_tunnel(kind: u8) -> Result<u32, DropReason> {
    match part_admit(u32::from(kind)) {
        NO_TUNNEL => Err(DropReason::NotOurAddress),
        NOT_FOR_SOURCE => Err(DropReason::TunnelSource),
        id => Ok(id),
    }
}

#[inline(always)]
fn gue_tunnel(ctx: *mut xdp_md, pkt: &mut PacketState, header: u16) -> Result<bool, DropReason> {
    let id = find_tunnel(GUE)?;
    let inner = gue::parse(&window(ctx), header).map_err(|_| DropReason::GueHeader)?;
    let ethertype = if inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    set_tunnel(pkt, id, inner.payload, ethertype)
}

#[inline(always)]
fn geneve_tunnel(ctx: *mut xdp_md, pkt: &mut PacketState, header: u16) -> Result<bool, DropReason> {
    let id = find_tunnel(GENEVE)?;
    let tunnel = pkt.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    let w = window(ctx);
    let geneve = geneve::parse(&w, header).map_err(bad_geneve)?;
    if geneve.control {
        return Err(DropReason::GeneveControl);
    }
    pkt.options_at = header + 8;
    pkt.options_len = geneve.opt_len;
    pkt.vni = geneve.vni;
    match geneve::usual_options(&w, header + 8, geneve.opt_len, tunnel.option_class) {
        Some(options) => store_options(pkt, &options),
        None => {
            pkt.tunnel = id;
            let reason = part_options(ctx);
            if reason != CONTINUE {
                return Err(pkt.reason);
            }
        }
    }
    if geneve.protocol != ethernet::IPV4 && geneve.protocol != ethernet::IPV6 {
        return Err(DropReason::TunnelProtocol);
    }
    set_scope(pkt, tunnel)?;
    pkt.tunnel = id;
    if let Some(config) = runtime_config() {
        if tunnel.flags & TUNNEL_BACKEND != 0 {
            header_cache::insert_backend(config, pkt);
        } else if !pkt.outer.v6 {
            header_cache::insert(config, pkt, pkt.scope_key);
        }
    }
    set_tunnel(pkt, id, geneve.payload, geneve.protocol)
}

/// Parses GENEVE options other than exactly endpoint ID, attachment ID and flow cookie in this
/// order. Rejects packets without one of the three, or with an unknown critical option.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_options(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let Some(tunnel) = pkt.set().tunnel(pkt.tunnel) else { return FINISH };
    let class = tunnel.option_class;
    let options = geneve::any_options(&window(ctx), pkt.options_at, pkt.options_len, class);
    match options {
        Err(cause) => pkt.drop(bad_geneve(cause)),
        Ok(options) if options.unknown_critical => pkt.drop(DropReason::GeneveCriticalOption),
        Ok(options) if options.present != geneve::ALL_OPTIONS => {
            pkt.drop(DropReason::GeneveMissingOption)
        }
        Ok(options) => {
            store_options(pkt, &options);
            CONTINUE
        }
    }
}

#[inline(always)]
fn store_options(pkt: &mut PacketState, options: &GatewayOptions) {
    pkt.scope_key = options.endpoint;
    pkt.attachment = options.attachment;
}

#[inline(always)]
fn vxlan_tunnel(ctx: *mut xdp_md, pkt: &mut PacketState, header: u16) -> Result<bool, DropReason> {
    let w = window(ctx);
    let vxlan = vxlan::parse(&w, header).map_err(|cause| match cause {
        Malformed::Short => DropReason::TooShort,
        _ => DropReason::VxlanFlags,
    })?;
    pkt.vni = vxlan.vni;
    let id = find_tunnel(VXLAN);
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
    let tunnel = pkt.set().tunnel(id).ok_or(DropReason::NotOurAddress)?;
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        pkt.scope_key = tunnel.scope_key;
        intern(pkt, VXLAN, tunnel.gateway)?;
        if !pkt.outer.v6
            && let Some(config) = runtime_config()
        {
            pkt.tunnel = id;
            header_cache::insert(config, pkt, pkt.vni.into());
        }
    }
    pkt.inner_eth = vxlan.payload;
    set_tunnel(pkt, id, inner.l3, inner.ethertype)
}

/// Sets the scope of a GENEVE packet. A gateway's packet has the scope of the endpoint in its
/// options. A backend's packet carries the options of Weir's tunnel: the endpoint (`scope_key`) and
/// the gateway's number (`attachment`), which give the scope of the flow.
#[inline(always)]
fn set_scope(pkt: &mut PacketState, tunnel: &Tunnel) -> Result<(), DropReason> {
    if tunnel.flags & TUNNEL_BACKEND == 0 {
        return intern(pkt, GENEVE, tunnel.gateway);
    }
    if pkt.scope_key == 0 {
        pkt.scope = SCOPE_PLAIN;
        return Ok(());
    }
    // The flow may belong to a gateway of another kind.
    let kind = part_gateway_kind() as u8;
    intern(pkt, kind, pkt.attachment as u16)
}

/// Interns the scope of the packet's endpoint behind a gateway of this kind and number.
#[inline(always)]
fn intern(pkt: &mut PacketState, kind: u8, gateway: u16) -> Result<(), DropReason> {
    match part_scope(u32::from(kind) << 16 | u32::from(gateway)) {
        0 => Err(DropReason::ScopeTableFull),
        scope => {
            pkt.scope = scope;
            Ok(())
        }
    }
}

/// Returns the scope of the packet's endpoint behind a gateway, or 0 if the scope table is full.
/// `gateway` contains the gateway's number in the low 16 bits and its kind above.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_scope(gateway: u32) -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let scopes = Scopes::new(&Region);
    let (kind, gateway) = ((gateway >> 16) as u8, gateway as u16);
    scopes.intern(kind, gateway, pkt.scope_key, pkt.now_s).unwrap_or(0)
}

/// Returns the id of the first tunnel for which `matches` returns true, or [`NO_TUNNEL`].
#[inline(always)]
fn first_tunnel(pkt: &PacketState, matches: impl Fn(&Tunnel) -> bool) -> u32 {
    let (set, tunnels) = (pkt.set(), Region.tunnels());
    for id in 0..MAX_TUNNELS {
        if id >= tunnels {
            break;
        }
        if set.tunnel(id).is_some_and(&matches) {
            return id;
        }
    }
    NO_TUNNEL
}

/// Returns the kind of the first tunnel on the packet's outer UDP destination port; 0 if there is
/// none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_kind_on_port() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let id = first_tunnel(pkt, |t| t.port == pkt.outer.dport);
    pkt.set().tunnel(id).map_or(0, |t| u32::from(t.kind))
}

/// Returns the id of the first tunnel, of any kind, whose local address is the packet's outer
/// destination, or [`NO_TUNNEL`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_tunnel_to_address() -> u32 {
    let Some(pkt) = packet_state() else { return NO_TUNNEL };
    first_tunnel(pkt, |t| t.local == pkt.outer.dst)
}

/// Returns the id of the first IP-in-IP tunnel whose local address is the packet's outer
/// destination, or [`NO_TUNNEL`]. If that address is a source address of Weir's IP-in-IP tunnels,
/// returns the first IP-in-IP tunnel of backends: a backend may reply to the outer source of the
/// packets that it receives.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_ipip() -> u32 {
    let Some(pkt) = packet_state() else { return NO_TUNNEL };
    if pkt.set().settings().is_ipip_source(&pkt.outer.dst) {
        return first_tunnel(pkt, |t| t.kind == IPIP && t.flags & TUNNEL_BACKEND != 0);
    }
    first_tunnel(pkt, |t| t.kind == IPIP && t.local == pkt.outer.dst)
}

/// Returns the kind of the gateway that a backend's GENEVE packet names; GENEVE if there is no such
/// gateway.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_gateway_kind() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let gateway = pkt.attachment as u16;
    let id = first_tunnel(pkt, |t| t.flags & TUNNEL_BACKEND == 0 && t.gateway == gateway);
    pkt.set().tunnel(id).map_or(u32::from(GENEVE), |t| u32::from(t.kind))
}

/// Returns 2 if a VXLAN tunnel has the packet's VNI and port, 1 if one has only the VNI, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_vni() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let has_vni = |t: &Tunnel| t.kind == VXLAN && t.vni == pkt.vni;
    if first_tunnel(pkt, |t| has_vni(t) && t.port == pkt.outer.dport) != NO_TUNNEL {
        return 2;
    }
    u32::from(first_tunnel(pkt, has_vni) != NO_TUNNEL)
}

/// Returns the tunnel of `kind` for the packet's port, address and (for VXLAN) VNI that permits its
/// source, or else [`NO_TUNNEL`] or [`NOT_FOR_SOURCE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_admit(kind: u32) -> u32 {
    let Some(pkt) = packet_state() else { return NO_TUNNEL };
    let matches = |t: &Tunnel| {
        t.port == pkt.outer.dport
            && u32::from(t.kind) == kind
            && t.local == pkt.outer.dst
            && (kind != u32::from(VXLAN) || t.vni == pkt.vni)
    };
    let (set, tunnels) = (pkt.set(), Region.tunnels());
    let mut reason = NO_TUNNEL;
    for id in 0..MAX_TUNNELS {
        if id >= tunnels {
            break;
        }
        if set.tunnel(id).is_some_and(matches) {
            if part_source_permitted(id) != 0 {
                return id;
            }
            reason = NOT_FOR_SOURCE;
        }
    }
    reason
}

/// Returns 1 if a tunnel permits the packet's source, else 0. A tunnel of backends permits all
/// sources here: `track` and `select` compare the source with the flow's backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_source_permitted(id: u32) -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let source = &pkt.outer.src;
    let permitted = |t: &Tunnel| t.flags & TUNNEL_BACKEND != 0 || t.admits(source);
    u32::from(pkt.set().tunnel(id).is_some_and(permitted))
}
