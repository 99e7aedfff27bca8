//! Packet parsing and building for the emulated gateway, independent of the crate `packet`, so that
//! both do not have the same defect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// GENEVE's UDP port (RFC 8926, section 3.3).
pub const GENEVE_PORT: u16 = 6081;
/// The option class of AWS (IANA "NVO3" registry, Amazon.com).
pub const AWS_CLASS: u16 = 0x0108;
/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;
/// ICMP's protocol number.
pub const ICMP: u8 = 1;
/// ICMPv6's protocol number.
pub const ICMP6: u8 = 58;
/// SCTP's protocol number.
const SCTP: u8 = 132;

/// Returns the big-endian 16-bit number at offset `at`, if `bytes` contain it.
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the big-endian 32-bit number at offset `at`, if `bytes` contain it.
pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Computes the Internet checksum (RFC 1071) over several pieces, each of even length but the
/// last. Over bytes that contain a correct checksum the result is 0.
pub fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for piece in pieces {
        for pair in piece.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Builds the pseudo-header of RFC 8200, section 8.1. Between IPv4 addresses it has the same sum as
/// that of RFC 768.
pub fn pseudo(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
        }
        _ => {
            for address in [src, dst] {
                match address {
                    IpAddr::V4(v4) => bytes.extend(v4.to_ipv6_mapped().octets()),
                    IpAddr::V6(v6) => bytes.extend(v6.octets()),
                }
            }
        }
    }
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The fields of an IP header that a gateway needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The source address.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
    /// The protocol after the header (after IPv6 extension headers).
    pub protocol: u8,
    /// The offset of the protocol's header.
    pub l4: usize,
    /// The offset of the packet's end, from its length field: a frame may be longer. At most the
    /// number of bytes parsed, which is less for a truncated packet.
    pub end: usize,
    /// Whether the packet is a fragment other than the first, and so has no ports.
    pub later_fragment: bool,
    /// Whether the packet is a fragment, the first included.
    pub fragment: bool,
}

impl Header {
    /// Parses the header at the beginning of `packet`; `None` if the header is invalid or the
    /// packet is truncated.
    pub fn read(packet: &[u8]) -> Option<Self> {
        Self::parse(packet, false)
    }

    /// As [`Header::read`], but the packet may be shorter than its length field, as the quote in an
    /// ICMP error is.
    pub fn read_truncated(packet: &[u8]) -> Option<Self> {
        Self::parse(packet, true)
    }

    fn parse(packet: &[u8], may_be_truncated: bool) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read4(packet, may_be_truncated),
            6 => Self::read6(packet, may_be_truncated),
            _ => None,
        }
    }

    fn read4(packet: &[u8], may_be_truncated: bool) -> Option<Self> {
        let l4 = usize::from(packet[0] & 15) * 4;
        let end = usize::from(be16(packet, 2)?);
        let truncated = packet.len() < end;
        if l4 < 20 || end < l4 || packet.len() < l4 || (truncated && !may_be_truncated) {
            return None;
        }
        let fragment_field = be16(packet, 6)?;
        Some(Self {
            src: Ipv4Addr::from(be32(packet, 12)?).into(),
            dst: Ipv4Addr::from(be32(packet, 16)?).into(),
            protocol: packet[9],
            l4,
            end: end.min(packet.len()),
            later_fragment: fragment_field & 0x1fff != 0,
            fragment: fragment_field & 0x3fff != 0,
        })
    }

    fn read6(packet: &[u8], may_be_truncated: bool) -> Option<Self> {
        let end = 40 + usize::from(be16(packet, 4)?);
        if packet.len() < 40 || (packet.len() < end && !may_be_truncated) {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        };
        let (mut protocol, mut l4) = (packet[6], 40);
        let (mut later_fragment, mut fragment) = (false, false);
        // Hop-by-hop options, routing, fragment and destination options (RFC 8200, section 4).
        while let 0 | 43 | 44 | 60 = protocol {
            if protocol == 44 {
                later_fragment = be16(packet, l4 + 2)? & 0xfff8 != 0;
                fragment = true;
            }
            let len = if protocol == 44 { 8 } else { 8 + 8 * usize::from(*packet.get(l4 + 1)?) };
            protocol = *packet.get(l4)?;
            l4 += len;
            if later_fragment {
                break;
            }
        }
        let end = end.min(packet.len());
        (l4 <= end).then_some(Self {
            src: address(8)?,
            dst: address(24)?,
            protocol,
            l4,
            end,
            later_fragment,
            fragment,
        })
    }

    /// Returns whether the checksums of header and payload are correct. The payload of a fragment
    /// is not checked. A UDP checksum of 0 over IPv4 means "none".
    pub fn sums_are_right(&self, packet: &[u8]) -> bool {
        if self.src.is_ipv4() && checksum(&[&packet[..self.l4]]) != 0 {
            return false;
        }
        if self.fragment {
            return true;
        }
        let body = &packet[self.l4..self.end];
        match self.protocol {
            ICMP => checksum(&[body]) == 0,
            UDP if self.src.is_ipv4() && be16(body, 6) == Some(0) => true,
            TCP | UDP | ICMP6 => {
                checksum(&[&pseudo(self.src, self.dst, self.protocol, body.len()), body]) == 0
            }
            _ => true,
        }
    }
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The source address.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The source port, an ICMP echo's identifier, or 0.
    pub sport: u16,
    /// The destination port, an ICMP echo's identifier, or 0.
    pub dport: u16,
}

impl std::fmt::Display for Tuple {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { src, dst, protocol, sport, dport } = self;
        write!(f, "{src} port {sport} to {dst} port {dport} protocol {protocol}")
    }
}

impl Tuple {
    /// Returns the flow of `packet`.
    pub fn of(packet: &[u8], header: &Header) -> Self {
        let Header { src, dst, protocol, l4, .. } = *header;
        let at = |at: usize| be16(packet, l4 + at).unwrap_or(0);
        let (sport, dport) = match (protocol, packet.get(l4).copied()) {
            _ if header.later_fragment => (0, 0),
            (TCP | UDP | SCTP, _) => (at(0), at(2)),
            (ICMP, Some(0 | 8)) | (ICMP6, Some(128 | 129)) => (at(4), at(4)),
            _ => (0, 0),
        };
        Self { src, dst, protocol, sport, dport }
    }

    /// Returns the flow's other direction.
    pub fn reversed(self) -> Self {
        let Self { src, dst, protocol, sport, dport } = self;
        Self { src: dst, dst: src, protocol, sport: dport, dport: sport }
    }

    /// Returns the flow that an ICMP error in `packet` quotes, and the quote itself.
    pub fn quoted<'p>(packet: &'p [u8], header: &Header) -> Option<(Self, &'p [u8])> {
        let kind = *packet.get(header.l4)?;
        let error = match header.protocol {
            ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
            ICMP6 => matches!(kind, 1..=4),
            _ => false,
        };
        let quote = packet.get(header.l4 + 8..header.end)?;
        let inner = error.then(|| Header::read_truncated(quote))??;
        Some((Self::of(quote, &inner), quote))
    }
}

/// The three options of a gateway, in the order in which AWS sends them (class 0x0108, types 1 to
/// 3 of 8, 8 and 4 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Type 1: the id of the gateway endpoint's interface.
    pub endpoint: u64,
    /// Type 2: the attachment id; AWS sends 0.
    pub attachment: u64,
    /// Type 3: the cookie that identifies the flow to the gateway.
    pub cookie: u32,
}

/// The length of a GENEVE header with the three options.
pub const GENEVE_LEN: usize = 40;

impl Options {
    /// Builds the GENEVE header, with VNI 0, for an inner packet whose first byte is `first`, which
    /// has the IP version.
    pub fn geneve(&self, class: u16, first: u8) -> [u8; GENEVE_LEN] {
        let protocol: u16 = if first >> 4 == 6 { 0x86dd } else { 0x0800 };
        let mut header = [0; GENEVE_LEN];
        header[0] = 8; // version 0; eight words of options
        header[2..4].copy_from_slice(&protocol.to_be_bytes());
        let mut option = |at: usize, kind: u8, value: &[u8]| {
            header[at..at + 2].copy_from_slice(&class.to_be_bytes());
            header[at + 2] = kind;
            header[at + 3] = (value.len() / 4) as u8;
            header[at + 4..at + 4 + value.len()].copy_from_slice(value);
        };
        option(8, 1, &self.endpoint.to_be_bytes());
        option(20, 2, &self.attachment.to_be_bytes());
        option(32, 3, &self.cookie.to_be_bytes());
        header
    }
}

/// Returns the packet after this many hops: with a lower TTL or hop limit, and the IPv4 header's
/// checksum updated.
pub fn aged(packet: &[u8], hops: u8) -> Box<[u8]> {
    let mut aged: Box<[u8]> = packet.into();
    match aged[0] >> 4 {
        _ if hops == 0 => {}
        6 => aged[7] = aged[7].saturating_sub(hops),
        _ => {
            let len = usize::from(aged[0] & 15) * 4;
            aged[8] = aged[8].saturating_sub(hops);
            aged[10..12].copy_from_slice(&[0, 0]);
            let sum = checksum(&[&aged[..len]]);
            aged[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    aged
}

/// Prepends IPv4 and UDP to `payload` (given in pieces). The UDP checksum is computed if
/// `with_checksum`; otherwise it is 0, which means "none" (RFC 768) and is what gateways send.
pub fn udp4(
    (src, sport): (Ipv4Addr, u16),
    (dst, dport): (Ipv4Addr, u16),
    payload: &[&[u8]],
    with_checksum: bool,
) -> Vec<u8> {
    let len: usize = 8 + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let mut packet = Vec::with_capacity(20 + len);
    packet.extend([0x45, 0]);
    packet.extend(((20 + len) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]); // id 0, don't fragment, TTL 64
    packet.extend(src.octets());
    packet.extend(dst.octets());
    let header = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    packet.extend(sport.to_be_bytes());
    packet.extend(dport.to_be_bytes());
    packet.extend((len as u16).to_be_bytes());
    packet.extend([0, 0]);
    payload.iter().for_each(|piece| packet.extend_from_slice(piece));
    if with_checksum {
        let body = &packet[20..];
        let made = checksum(&[&pseudo(src.into(), dst.into(), UDP, len), body]);
        let made = if made == 0 { 0xffff } else { made };
        packet[26..28].copy_from_slice(&made.to_be_bytes());
    }
    packet
}
