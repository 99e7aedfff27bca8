//! What stands in front of a packet: how it came, and outer headers as records ask for them: those
//! towards a service's backend, and those back to the gateway that a flow came from.

use crate::flow::GatewayLeg;
use crate::reason::DropReason;
use crate::record::{SERVICE_DF, Service, Tunnel, TunnelKind};
use packet::addr::Addr;
use packet::ethernet::Macs;
use packet::ip::Ip;
use packet::parsed::Malformed;
use packet::tunnel::{OUTER_TTL, Outer, source_port};

/// How a packet reached us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Arrival {
    /// Not in a tunnel of ours.
    Plain,
    /// In a gateway's tunnel.
    Gateway,
    /// In the tunnel of a backend, on its return leg.
    Backend,
    /// From this machine's kernel: by the exception port, or by the device for its probes.
    Kernel,
}

/// Why a packet is dropped whose GENEVE header is malformed.
pub const fn bad_geneve(cause: Malformed) -> DropReason {
    match cause {
        Malformed::GeneveVersion => DropReason::GeneveVersion,
        Malformed::GeneveOptions => DropReason::GeneveOptionOverrun,
        _ => DropReason::TooShort,
    }
}

/// The headers of a service's tunnel from our address to a backend's, in front of `inner`, which is
/// of a flow with this hash. Their UDP checksum is not asked for; `options` are GENEVE's alone.
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

/// The headers towards a flow's gateway: those of the latest packet, turned around. What crosses to
/// a `peer` of the tunnel that it came by has that one's port and VNI, and the MAC addresses inside
/// as they were. Their UDP checksum is not asked for.
#[inline(always)]
pub fn to_gateway<'a>(
    kind: TunnelKind,
    leg: &GatewayLeg,
    own: [u8; 6],
    options: &'a [u8],
    inner: &Ip,
    peer: Option<&Tunnel>,
) -> Outer<'a> {
    let (dport, vni) = match peer {
        Some(peer) => (peer.port, peer.vni),
        None => (leg.local_port, leg.vni),
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
