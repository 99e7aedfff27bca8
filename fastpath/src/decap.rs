//! Stage 2, decap: identifies the tunnel of a packet and parses the inner packet.
//!
//! No header is removed here: `return` sends the frame back with its outer addresses swapped, and
//! the number of bytes that new outer headers need is determined in the last stage.

use crate::burst::{Arrival, OuterHeaders, PacketState};
use crate::lcore::Lcore;
use crate::leg;
use crate::parse::reason_if_split;
use crate::port::Buffer;
use crate::snapshot::{Snapshot, SnapshotTunnel};
use packet::flow::SCOPE_PLAIN;
use packet::ip::{Fragment, IPV4_IN_IP, IPV6_IN_IP, Ip, UDP};
use packet::parsed::Malformed;
use packet::window::Window;
use packet::{ethernet, geneve, gue, vxlan};
use tables::outer::bad_geneve;
use tables::reason::DropReason;
use tables::record::TunnelKind;

/// Identifies the tunnel and parses the inner packet, or accepts a plain packet as it is.
#[inline(always)]
pub fn decap<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if !pkt.is_undecided() {
        return;
    }
    let window = &buffer.window();
    let parsed = match pkt.headers.arrival {
        Arrival::Plain => parse_tunnel(window, pkt, lcore),
        _ => Ok(()),
    };
    let parsed = parsed.and_then(|()| match pkt.headers.arrival {
        Arrival::Plain | Arrival::Kernel => {
            pkt.inner = pkt.headers.outer;
            Ok(())
        }
        Arrival::Gateway => {
            pkt.headers.leg_digest = leg::header_digest(window, pkt);
            parse_inner(window, pkt)
        }
        Arrival::Backend => parse_inner(window, pkt),
    });
    if let Err(reason) = parsed {
        reject(buffer, pkt, reason);
    }
}

#[inline(always)]
fn parse_inner(window: &Window<'_>, pkt: &mut PacketState) -> Result<(), DropReason> {
    let OuterHeaders { inner_at, inner_type, outer, .. } = &pkt.headers;
    read_inner_packet(window, *inner_at, *inner_type, outer.end, &mut pkt.inner)
}

/// Parses the inner packet at `at`; the outer one ends at `outer_end`.
#[inline(always)]
pub fn parse_inner_packet(
    window: &Window<'_>,
    at: u16,
    ethertype: u16,
    outer_end: u16,
) -> Result<Ip, DropReason> {
    // Bytes after the outer packet are Ethernet padding and not part of the inner packet.
    match Ip::parse(window, at, ethertype) {
        Ok(ip) if ip.end <= outer_end => Ok(ip),
        _ => Err(DropReason::InnerMalformed),
    }
}

/// Like [`parse_inner_packet`], but writes the result to `ip`; after an error its contents are
/// unspecified.
#[inline(always)]
pub fn read_inner_packet(
    window: &Window<'_>,
    at: u16,
    ethertype: u16,
    outer_end: u16,
    ip: &mut Ip,
) -> Result<(), DropReason> {
    let read = ip.read(window, at, ethertype);
    if read.is_err() || ip.end > outer_end {
        return Err(DropReason::InnerMalformed);
    }
    Ok(())
}

/// Drops a packet whose tunnel headers or inner packet are invalid.
#[cold]
pub fn reject<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, reason: DropReason) {
    pkt.inner = pkt.headers.outer;
    pkt.drop(reason_if_split(buffer, reason));
}

#[inline(always)]
fn parse_tunnel(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    match pkt.headers.outer.proto {
        UDP => udp_tunnel(window, pkt, lcore),
        IPV4_IN_IP | IPV6_IN_IP => ip_tunnel(pkt, lcore),
        _ => Ok(()),
    }
}

#[inline(never)]
fn ip_tunnel(pkt: &mut PacketState, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    let to = pkt.headers.outer.dst;
    // A backend may answer to the hashed source address from which it received the packet.
    let hashed_source = snapshot.settings.is_ipip_source(&to);
    let matches = |t: &SnapshotTunnel| {
        t.kind == TunnelKind::Ipip && (t.record.local == to || hashed_source && t.is_backend())
    };
    let Some(at) = snapshot.tunnels.iter().position(matches) else { return Ok(()) };
    // A fragment cannot be decapsulated: its inner headers may lie in another one.
    if pkt.headers.outer.fragment != Fragment::Whole {
        return Err(DropReason::OuterFragment);
    }
    let ethertype =
        if pkt.headers.outer.proto == IPV4_IN_IP { ethernet::IPV4 } else { ethernet::IPV6 };
    let inner = pkt.headers.outer.l4;
    set_tunnel(pkt, snapshot, at, inner, ethertype);
    Ok(())
}

#[inline(always)]
fn udp_tunnel(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    let (snapshot, outer) = (lcore.snapshot(), &pkt.headers.outer);
    if outer.fragment != Fragment::Whole {
        return outer_fragment(snapshot, outer);
    }
    // The first tunnel on this port determines the type of the header. A tunnel without ports has
    // port 0.
    let first = snapshot.tunnels.iter().find(|t| t.record.port == outer.dport);
    let Some(first) = first.filter(|t| t.kind != TunnelKind::Ipip) else { return Ok(()) };
    let udp_len = window.be16(usize::from(outer.l4) + 4).map_err(|_| DropReason::TooShort)?;
    if outer.l4.wrapping_add(udp_len) != outer.end {
        return Err(DropReason::BadUdpLength);
    }
    let header = outer.l4 + 8;
    match first.kind {
        TunnelKind::Geneve => geneve_tunnel(window, pkt, lcore, header),
        TunnelKind::Vxlan => vxlan_tunnel(window, pkt, lcore, header),
        TunnelKind::Gue => gue_tunnel(window, pkt, lcore, header),
        TunnelKind::Ipip => Ok(()),
    }
}

#[cold]
fn outer_fragment(snapshot: &Snapshot, outer: &Ip) -> Result<(), DropReason> {
    let to_tunnel = snapshot.tunnels.iter().any(|t| t.record.local == outer.dst);
    if to_tunnel { Err(DropReason::OuterFragment) } else { Ok(()) }
}

#[inline(never)]
fn gue_tunnel(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    header: u16,
) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    let at = find_tunnel(snapshot, &pkt.headers.outer, |t| t.kind == TunnelKind::Gue)?;
    let inner = gue::parse(window, header).map_err(|_| DropReason::GueHeader)?;
    let ethertype = if inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    set_tunnel(pkt, snapshot, at, inner.payload, ethertype);
    Ok(())
}

/// Returns the index of this outer packet's tunnel among those that `accepts` selects: its port and
/// local address must match, and a gateway's tunnel must admit the source.
#[inline(always)]
fn find_tunnel(
    snapshot: &Snapshot,
    outer: &Ip,
    accepts: impl Fn(&SnapshotTunnel) -> bool,
) -> Result<usize, DropReason> {
    let mut reason = DropReason::NotOurAddress;
    for (at, tunnel) in snapshot.tunnels.iter().enumerate() {
        let record = &tunnel.record;
        if record.port != outer.dport || !accepts(tunnel) || record.local != outer.dst {
            continue;
        }
        if tunnel.is_backend() || tunnel.admits(&outer.src) {
            return Ok(at);
        }
        reason = DropReason::TunnelSource;
    }
    Err(reason)
}

#[inline(always)]
fn geneve_tunnel(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    header: u16,
) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    let at = find_tunnel(snapshot, &pkt.headers.outer, |t| t.kind == TunnelKind::Geneve)?;
    let class = snapshot.tunnels[at].record.option_class;
    let geneve = geneve::parse(window, header).map_err(bad_geneve)?;
    if geneve.control {
        return Err(DropReason::GeneveControl);
    }
    let options = geneve::options(window, header + 8, geneve.opt_len, class).map_err(bad_geneve)?;
    if options.unknown_critical {
        return Err(DropReason::GeneveCriticalOption);
    }
    if options.present != geneve::ALL_OPTIONS {
        return Err(DropReason::GeneveMissingOption);
    }
    if geneve.protocol != ethernet::IPV4 && geneve.protocol != ethernet::IPV6 {
        return Err(DropReason::TunnelProtocol);
    }
    pkt.headers.options_at = header + 8;
    pkt.headers.options_len = geneve.opt_len;
    pkt.headers.vni = geneve.vni;
    pkt.headers.scope_key = options.endpoint;
    pkt.headers.scope = scope(lcore, &snapshot.tunnels[at], options.endpoint, options.attachment)?;
    set_tunnel(pkt, snapshot, at, geneve.payload, geneve.protocol);
    if pkt.headers.arrival == Arrival::Gateway
        && geneve::are_usual(window, header + 8, geneve.opt_len, class)
    {
        pkt.headers.marks |= OuterHeaders::USUAL_OPTIONS;
    }
    Ok(())
}

#[inline(never)]
fn vxlan_tunnel(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    header: u16,
) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    let vxlan = vxlan::parse(window, header).map_err(|cause| match cause {
        Malformed::Short => DropReason::TooShort,
        _ => DropReason::VxlanFlags,
    })?;
    let outer = &pkt.headers.outer;
    let known = snapshot.tunnels.iter().any(|t| {
        t.kind == TunnelKind::Vxlan && t.record.port == outer.dport && t.record.vni == vxlan.vni
    });
    if !known {
        let tunnels = snapshot.tunnels.iter();
        let others = tunnels.filter(|t| t.kind == TunnelKind::Vxlan && t.record.vni == vxlan.vni);
        return Err(match others.count() {
            0 => DropReason::WrongVni,
            _ => DropReason::WrongPort,
        });
    }
    let same_vni = |t: &SnapshotTunnel| t.kind == TunnelKind::Vxlan && t.record.vni == vxlan.vni;
    let at = find_tunnel(snapshot, outer, same_vni)?;
    let inner = ethernet::Ethernet::parse_at(window, vxlan.payload)
        .map_err(|_| DropReason::InnerMalformed)?;
    if inner.ethertype != ethernet::IPV4 && inner.ethertype != ethernet::IPV6 {
        return Err(DropReason::TunnelProtocol);
    }
    let tunnel = &snapshot.tunnels[at];
    if !tunnel.is_backend() {
        let key = tunnel.record.scope_key;
        let scope = lcore.scope(TunnelKind::Vxlan, tunnel.record.gateway, key);
        pkt.headers.scope = scope.ok_or(DropReason::ScopeTableFull)?;
        pkt.headers.scope_key = key;
    }
    pkt.headers.inner_eth = vxlan.payload;
    pkt.headers.vni = vxlan.vni;
    set_tunnel(pkt, snapshot, at, inner.l3, inner.ethertype);
    Ok(())
}

/// Returns the scope of a GENEVE packet, which identifies an endpoint of a gateway. A backend's
/// answer through Weir's own tunnel carries the endpoint and the gateway's number, so that it
/// matches its flow.
#[inline(always)]
fn scope(
    lcore: &Lcore<'_>,
    tunnel: &SnapshotTunnel,
    endpoint: u64,
    attachment: u64,
) -> Result<u32, DropReason> {
    let (kind, gateway) = match tunnel.is_backend() {
        false => (TunnelKind::Geneve, tunnel.record.gateway),
        true if endpoint == 0 => return Ok(SCOPE_PLAIN),
        true => {
            // The flow may have come from a gateway of another kind.
            let gateway = attachment as u16;
            let mut tunnels = lcore.snapshot().tunnels.iter();
            let from = tunnels.find(|t| !t.is_backend() && t.record.gateway == gateway);
            (from.map_or(TunnelKind::Geneve, |t| t.kind), gateway)
        }
    };
    lcore.scope(kind, gateway, endpoint).ok_or(DropReason::ScopeTableFull)
}

/// Records that the packet arrived through the tunnel with index `at`, with the inner packet at
/// `inner`.
#[inline(always)]
fn set_tunnel(pkt: &mut PacketState, snapshot: &Snapshot, at: usize, inner: u16, ethertype: u16) {
    let tunnel = snapshot.tunnels.get(at);
    let backend = tunnel.is_some_and(SnapshotTunnel::is_backend);
    pkt.headers.max_returned_len = tunnel.map_or(0, SnapshotTunnel::max_returned_len);
    let crosses = tunnel.is_some_and(SnapshotTunnel::returns_through_peer);
    pkt.headers.marks = if crosses { OuterHeaders::CROSSES } else { 0 };
    pkt.headers.tunnel = at as u8;
    pkt.headers.arrival = if backend { Arrival::Backend } else { Arrival::Gateway };
    pkt.headers.inner_at = inner;
    pkt.headers.inner_type = ethertype;
}
