//! `Ip`: the parsed headers of one IP packet of either family.

mod parse;

use crate::addr::Addr;
use crate::ethernet;
#[cfg(any(test, feature = "fuzz"))]
use crate::window::Window;

/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The protocol number of ICMP for IPv4.
pub const ICMP: u8 = 1;
/// The protocol number of ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// The protocol number of IPv4 in IP.
pub const IPV4_IN_IP: u8 = 4;
/// The protocol number of IPv6 in IP.
pub const IPV6_IN_IP: u8 = 41;

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Fragment {
    /// The whole datagram. An IPv6 "atomic" fragment (RFC 6946) counts as whole.
    #[default]
    Whole,
    /// The first of several fragments, the only one with an upper-layer header.
    First,
    /// A later fragment, without an upper-layer header.
    Later,
}

/// The kind of the upper-layer header.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum L4 {
    /// TCP. `flags` is 0 in a quoted packet that is cut before the flags byte.
    Tcp {
        /// Byte 13 of the TCP header: the flags FIN (bit 0) to CWR (bit 7).
        flags: u8,
    },
    /// UDP.
    Udp,
    /// An ICMP echo; `sport` and `dport` are both its identifier.
    IcmpEcho {
        /// True for a request, false for a reply.
        request: bool,
    },
    /// An ICMP error, which quotes a packet: ICMP types 3, 4, 5, 11 and 12, ICMPv6 types 1 to 4.
    IcmpError,
    /// Any other protocol or ICMP message, which is not parsed.
    Other,
    /// No upper-layer header: the packet is a later fragment.
    #[default]
    None,
}

impl L4 {
    /// Returns the TCP flags with which this packet updates its flow's state: 0 for protocols other
    /// than TCP, `None` for ICMP errors and later fragments, which do not update it.
    #[inline(always)]
    pub const fn flow_flags(&self) -> Option<u8> {
        match self {
            L4::Tcp { flags } => Some(*flags),
            L4::Udp | L4::IcmpEcho { .. } | L4::Other => Some(0),
            L4::IcmpError | L4::None => None,
        }
    }
}

/// The parsed headers of an IP packet. Offsets count from the start of the window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ip {
    /// Offset of the IP header.
    pub at: u16,
    /// Offset of the byte after the IP header and its options or extension headers.
    pub l4: u16,
    /// Offset of the byte after the packet's last one, by the IP length; Ethernet padding may
    /// follow. For a quoted packet, at most the end of the quote.
    pub end: u16,
    /// Source port, host order; echo identifier; 0 for protocols without ports.
    pub sport: u16,
    /// Destination port, host order; echo identifier; 0 for protocols without ports.
    pub dport: u16,
    /// Upper-layer protocol; for IPv6 the one after the extension headers.
    pub proto: u8,
    /// Whether the packet is IPv6.
    pub v6: bool,
    /// DSCP and ECN: IPv4 type of service, IPv6 traffic class.
    pub tos: u8,
    /// IPv4 time to live, IPv6 hop limit.
    pub ttl: u8,
    /// The part of the datagram that the packet carries.
    pub fragment: Fragment,
    /// The kind of the upper-layer header.
    pub kind: L4,
    /// IPv4 "don't fragment" flag. Always true for IPv6, which routers never fragment.
    pub df: bool,
    /// Identification shared by the datagram's fragments, host order. 0 for IPv6 without a fragment
    /// header.
    pub fragment_id: u32,
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
}

impl Ip {
    /// Returns the length of the packet in bytes, headers included.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet is not a collection")]
    pub const fn len(&self) -> u16 {
        self.end - self.at
    }

    /// Returns the Ethernet type of the packet's family.
    #[inline(always)]
    pub const fn ethertype(&self) -> u16 {
        if self.v6 { ethernet::IPV6 } else { ethernet::IPV4 }
    }
}

/// Checks the invariants of every packet that the parser accepts, for arbitrary bytes.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let w = Window::new(bytes);
    for (at, ethertype) in [(0, ethernet::IPV4), (0, ethernet::IPV6), (14, ethernet::IPV4)] {
        let Ok(ip) = Ip::parse(&w, at, ethertype) else { continue };
        assert!(ip.at < ip.l4 && ip.l4 <= ip.end && usize::from(ip.end) <= w.len());
        assert!(ip.src.is_v4() != ip.v6 && ip.dst.is_v4() != ip.v6);
        assert_eq!(ip.kind == L4::None, ip.fragment == Fragment::Later);
        if let Ok(quoted) = crate::icmp::quoted(&w, &ip) {
            assert!(quoted.at == ip.l4 + 8 && quoted.end <= ip.end && quoted.l4 <= quoted.end);
        }
    }
}

#[cfg(test)]
mod tests;
