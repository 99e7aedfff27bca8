//! Parsing of packets that arrive at a gateway node, down to the inner packet.

use super::report::Check;
use crate::lab::wire::{self, GENEVE_LEN, Header};
use std::net::Ipv4Addr;

/// A packet that arrived at a node, by its layers.
pub struct IncomingPacket<'f> {
    /// The outer source.
    pub src: Ipv4Addr,
    /// The outer destination.
    pub dst: Ipv4Addr,
    /// The UDP source port.
    pub sport: u16,
    /// The UDP destination port.
    pub dport: u16,
    /// The GENEVE header with its options.
    pub geneve: &'f [u8],
    /// The inner packet.
    pub inner: &'f [u8],
}

impl<'f> IncomingPacket<'f> {
    /// Parses an IPv4 packet with UDP and GENEVE. An error is the failed check and a description.
    pub fn read(packet: &'f [u8]) -> Result<Self, (Check, String)> {
        let broken = |reason: &str| {
            (Check::OuterHeader, format!("{reason}: {:02x?}", first(packet, 28 + GENEVE_LEN)))
        };
        let outer = Header::read(packet).ok_or_else(|| broken("truncated IPv4 packet"))?;
        let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (outer.src, outer.dst) else {
            return Err(broken("not IPv4"));
        };
        if outer.fragment || wire::checksum(&[&packet[..outer.l4]]) != 0 {
            return Err(broken("fragment, or wrong IPv4 header checksum"));
        }
        let udp = &packet[outer.l4..outer.end];
        if udp.len() < 8 || wire::be16(udp, 4).map(usize::from) != Some(udp.len()) {
            return Err(broken("UDP length differs from the packet's"));
        }
        if !outer.sums_are_right(packet) {
            return Err((Check::UdpChecksum, broken("wrong UDP checksum").1));
        }
        let payload = &udp[8..];
        let len = payload.first().map_or(0, |b| 8 + usize::from(b & 0x3f) * 4);
        if len == 0 || payload.len() <= len {
            return Err((Check::GeneveHeader, broken("truncated GENEVE header or packet").1));
        }
        let port = |at| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let (geneve, inner) = payload.split_at(len);
        Ok(Self { src, dst, sport: port(0), dport: port(2), geneve, inner })
    }
}

/// Returns at most the first `len` bytes, for a message.
pub fn first(bytes: &[u8], len: usize) -> &[u8] {
    &bytes[..bytes.len().min(len)]
}
