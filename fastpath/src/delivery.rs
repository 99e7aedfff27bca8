//! Steps that the outgoing paths share: next hop lookup, MTU and TTL checks, and the Ethernet
//! header.

use crate::burst::{Arrival, PacketState};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Reply;
use packet::ethernet::{self, Macs};
use packet::rewrite::{self, EcnError};
use packet::translate::Untranslatable;
use packet::window::Short;
use tables::reason::DropReason;
use tables::record::{SERVICE_REPLY_TOO_BIG, TUNNEL_REPLY_TOO_BIG};

/// The length of an Ethernet header without a VLAN tag, in bytes.
pub const ETHERNET: usize = 14;

/// The reason for which a verdict could not be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet is turned into this reply to its sender.
    Reply(Reply),
}

impl From<Short> for Rejection {
    fn from(_: Short) -> Rejection {
        Rejection::Drop(DropReason::TooShort)
    }
}

impl From<EcnError> for Rejection {
    fn from(cause: EcnError) -> Rejection {
        Rejection::Drop(match cause {
            EcnError::Short => DropReason::TooShort,
            EcnError::NotEcnCapable => DropReason::Congestion,
        })
    }
}

impl From<Untranslatable> for Rejection {
    fn from(cause: Untranslatable) -> Rejection {
        Rejection::Drop(match cause {
            Untranslatable::Short => DropReason::TooShort,
            Untranslatable::NoEquivalent | Untranslatable::ZeroUdpChecksum => {
                DropReason::NotTranslatable
            }
        })
    }
}

/// The path to a next hop, packed into two words so that no load spans several stores (see
/// [`Macs`]).
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The first 8 bytes of the MAC addresses.
    first: u64,
    /// The remaining 4 bytes of the MAC addresses, the MTU and the arm.
    second: u64,
}

impl Route {
    #[inline(always)]
    fn new(macs: Macs, mtu: u16, arm: u8) -> Route {
        let second = u64::from(macs.rest) | u64::from(mtu) << 32 | u64::from(arm) << 48;
        Route { first: macs.first, second }
    }

    /// Returns the MAC addresses of the next hop and of the sending port.
    #[inline(always)]
    pub fn macs(&self) -> Macs {
        Macs { first: self.first, rest: self.second as u32 }
    }

    /// Returns the maximum size of an IP packet on this path, in bytes.
    #[inline(always)]
    pub fn mtu(&self) -> u16 {
        (self.second >> 32) as u16
    }

    /// Returns the arm through which the next hop is reached.
    #[inline(always)]
    pub fn arm(&self) -> u8 {
        (self.second >> 48) as u8
    }
}

/// Returns the path to the packet's backend. If the next hop's MAC address is unknown, requests
/// neighbor resolution and rejects the packet.
#[inline(always)]
pub fn next_hop(pkt: &PacketState, lcore: &Lcore<'_>) -> Result<Route, Rejection> {
    let backend = lcore.set().backend(pkt.backend);
    let backend = backend.ok_or(Rejection::Drop(DropReason::NoBackend))?;
    let next = lcore.set().next_hop(backend.next_hop);
    let next = next.ok_or(Rejection::Drop(DropReason::NoRoute))?;
    if !next.known {
        lcore.control().request_neighbor(backend.next_hop);
        return Err(Rejection::Drop(DropReason::NoNeighbor));
    }
    let mtu = next.path_mtu(lcore.learned_mtu(backend.next_hop));
    Ok(Route::new(Macs::new(next.mac, next.src_mac), mtu, next.arm))
}

/// Checks that a packet has at most `mtu` bytes. The error is the MTU to report to its sender.
#[inline(always)]
pub fn check_mtu(pkt: &PacketState, mtu: u16) -> Result<(), u16> {
    match pkt.inner.end - pkt.inner.at <= mtu {
        true => Ok(()),
        false => Err(mtu),
    }
}

/// Rejects a packet to a backend that exceeds `mtu` bytes.
#[inline(always)]
pub fn check_backend_mtu(pkt: &PacketState, lcore: &Lcore<'_>, mtu: u16) -> Result<(), Rejection> {
    check_mtu(pkt, mtu).map_err(|mtu| too_big(pkt, lcore, mtu))
}

/// Returns how a packet that exceeds the path MTU to a backend is rejected: with an ICMP error that
/// reports `mtu`, unless its service requires a silent drop.
#[cold]
pub fn too_big(pkt: &PacketState, lcore: &Lcore<'_>, mtu: u16) -> Rejection {
    let service = lcore.set().service(pkt.service);
    match service.is_none_or(|service| service.flags & SERVICE_REPLY_TOO_BIG != 0) {
        true => Rejection::Reply(Reply::TooBig(mtu)),
        false => Rejection::Drop(DropReason::TooBig),
    }
}

/// Returns true if senders of oversized packets of the packet's tunnel are to be sent ICMP errors.
pub fn reports_too_big(pkt: &PacketState, lcore: &Lcore<'_>) -> bool {
    let tunnel = lcore.snapshot().tunnels.get(usize::from(pkt.headers.tunnel));
    tunnel.is_none_or(|t| t.is_backend() || t.record.flags & TUNNEL_REPLY_TOO_BIG != 0)
}

/// Rejects a packet whose TTL expires at this hop.
#[inline(always)]
pub fn check_ttl(pkt: &PacketState) -> Result<(), Rejection> {
    if pkt.inner.ttl > 1 {
        return Ok(());
    }
    Err(Rejection::Reply(Reply::TimeExceeded))
}

/// Reduces the frame to the inner packet with an Ethernet header in front.
#[inline(always)]
pub fn plain_frame<B: Buffer>(
    buffer: &mut B,
    pkt: &PacketState,
    macs: &Macs,
    vlan: u16,
) -> Result<(), Rejection> {
    let header = ETHERNET + if vlan == 0 { 0 } else { 4 };
    trim(buffer, pkt);
    if !buffer.strip(usize::from(pkt.inner.at)) || !buffer.grow(header) {
        return Err(Rejection::Drop(DropReason::NoHeadroom));
    }
    let ethertype = if pkt.inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    ethernet::write(&mut buffer.window(), macs, vlan, ethertype)?;
    Ok(())
}

/// Removes Ethernet padding after the inner packet, so that it is not tunneled.
#[inline(always)]
pub fn trim<B: Buffer>(buffer: &mut B, pkt: &PacketState) {
    let end = usize::from(pkt.inner.end);
    if buffer.len() > end && !buffer.is_chained() {
        // Cannot fail: the frame is one segment and longer than `end`.
        let _ = buffer.truncate(end);
    }
}

/// Transfers the outer congestion mark to the inner packet, and decrements its TTL in the frame
/// (`pkt.inner.ttl` keeps its value). Applies to every packet that is forwarded by tunnel or to its
/// client.
#[inline(always)]
pub fn update_ecn_and_ttl<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
) -> Result<(), Rejection> {
    let window = &mut buffer.window();
    if pkt.headers.arrival != Arrival::Plain {
        pkt.inner.tos = rewrite::propagate_ecn(window, &pkt.headers.outer, &pkt.inner)?;
    }
    rewrite::decrement_ttl(window, &pkt.inner)?;
    Ok(())
}
