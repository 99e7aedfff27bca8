//! Outer headers: how a packet arrived, and the headers to prepend towards a service's backend or
//! back to a flow's gateway.

use crate::flow::GatewayLeg;
use crate::reason::DropReason;
use crate::record::{SERVICE_DF, Service, Tunnel, TunnelKind};
use packet::addr::Addr;
use packet::ethernet::Macs;
use packet::ip::Ip;
use packet::parsed::Malformed;
use packet::tunnel::{OUTER_TTL, Outer, source_port};

/// How a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Arrival {
    /// Without one of the configured tunnels.
    Plain,
    /// In a gateway's tunnel.
    Gateway,
    /// In a backend's tunnel, on its return leg.
    Backend,
    /// From this host's kernel: through the exception port or the device for probes.
    Kernel,
}

/// Returns the drop reason of a packet with a malformed GENEVE header.
pub const fn bad_geneve(cause: Malformed) -> DropReason {
    match cause {
        Malformed::GeneveVersion => DropReason::GeneveVersion,
        Malformed::GeneveOptions => DropReason::GeneveOptionOverrun,
        _ => DropReason::TooShort,
    }
}

/// Returns the outer headers of a service's tunnel from the local address `src` to the backend
/// `dst`, for the packet `inner` of a flow with this hash. `options` apply to GENEVE only. The
/// field `checksum` is false; the caller sets it if the UDP checksum is configured.
#[inline(always)]
pub fn to_backend<'a>(
    kind: TunnelKind,
    service: &Service,
    macs: &Macs,
    (src, dst): (Addr, Addr),
    hash: u64,
    options: &'a [u8],
    inner: &Ip,
) -> Outer<'a> {
    Outer {
        kind,
        macs: *macs,
        vlan: 0,
        src,
        dst,
        sport: source_port(hash),
        dport: service.tunnel_port,
        vni: service.vni,
        options: if matches!(kind, TunnelKind::Geneve) { options } else { &[] },
        inner_v6: inner.v6,
        inner_eth: if matches!(kind, TunnelKind::Vxlan) { Some(*macs) } else { None },
        tos: inner.tos,
        ttl: OUTER_TTL,
        df: service.flags & SERVICE_DF != 0,
        checksum: false,
    }
}

/// Returns the outer headers towards a flow's gateway: those of the flow's latest packet, with
/// source and destination exchanged. `own` is the MAC address of the sending port. The field
/// `checksum` is false; the caller sets it if the UDP checksum is configured.
///
/// For VXLAN, the port, the VNI and the inner MAC addresses depend on the tunnel:
///
/// - Without `peer`, the packet leaves by `tunnel` and has its port and VNI. These differ from the
///   leg's if `tunnel` replaced the leg's. The inner MAC addresses are exchanged.
/// - With `peer`, the other tunnel of the gateway's pair, the packet leaves by that tunnel and has
///   its port and VNI. The inner MAC addresses stay as they were received.
#[inline(always)]
pub fn to_gateway<'a>(
    kind: TunnelKind,
    leg: &GatewayLeg,
    own: [u8; 6],
    options: &'a [u8],
    inner: &Ip,
    (tunnel, peer): (&Tunnel, Option<&Tunnel>),
) -> Outer<'a> {
    let (dport, vni) = match (kind, peer) {
        (TunnelKind::Vxlan, Some(peer)) => (peer.port, peer.vni),
        (TunnelKind::Vxlan, None) => (tunnel.port, tunnel.vni),
        _ => (leg.local_port, leg.vni),
    };
    let inner_eth = match (kind, peer.is_some()) {
        (TunnelKind::Vxlan, true) => Some(Macs::new(leg.inner_dst, leg.inner_src)),
        (TunnelKind::Vxlan, false) => Some(Macs::new(leg.inner_src, leg.inner_dst)),
        _ => None,
    };
    Outer {
        kind,
        macs: Macs::new(leg.gateway_mac, own),
        vlan: leg.vlan,
        src: leg.local,
        dst: leg.node,
        sport: leg.node_port,
        dport,
        vni,
        options,
        inner_v6: inner.v6,
        inner_eth,
        tos: inner.tos,
        ttl: OUTER_TTL,
        df: false,
        checksum: false,
    }
}
