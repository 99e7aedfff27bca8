//! `Ip`: one IP packet of either family, with all that Weir ever asks of its headers.

mod parse;

use crate::addr::Addr;
use crate::ethernet;
#[cfg(any(test, feature = "fuzz"))]
use crate::window::Window;

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMP for IPv4.
pub const ICMP: u8 = 1;
/// Protocol number of ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// Protocol number of IPv4 in IP.
pub const IPV4_IN_IP: u8 = 4;
/// Protocol number of IPv6 in IP.
pub const IPV6_IN_IP: u8 = 41;

/// Which part of a datagram the packet is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Fragment {
    /// All of it. An IPv6 "atomic" fragment (RFC 6946) counts as whole.
    #[default]
    Whole,
    /// The first of several fragments: the only one with ports.
    First,
    /// A later one: no upper header.
    Later,
}

/// What the upper header is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum L4 {
    /// TCP, with the flag bits FIN to CWR; none in a quote that is cut before them.
    Tcp {
        /// Byte 13 of the header.
        flags: u8,
    },
    /// UDP.
    Udp,
    /// An ICMP echo; `sport` and `dport` both are its identifier.
    IcmpEcho {
        /// False for the reply.
        request: bool,
    },
    /// An ICMP error that quotes a packet: v4 types 3, 4, 5, 11, 12; v6 types 1 to 4.
    IcmpError,
    /// Anything else, taken as it is.
    Other,
    /// None to be seen: a later fragment.
    #[default]
    None,
}

impl L4 {
    /// What it says to the state of its flow: TCP's flags, of another protocol none. An error and a
    /// later fragment say nothing.
    #[inline(always)]
    pub const fn flow_flags(&self) -> Option<u8> {
        match self {
            L4::Tcp { flags } => Some(*flags),
            L4::Udp | L4::IcmpEcho { .. } | L4::Other => Some(0),
            L4::IcmpError | L4::None => None,
        }
    }
}

/// What is known of an IP packet. Offsets count from the start of the window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ip {
    /// Offset of the IP header.
    pub at: u16,
    /// Offset of what follows the IP header and its options or extensions.
    pub l4: u16,
    /// Offset behind the packet's last byte, from the IP length; Ethernet padding may follow. For a
    /// quoted packet, at most the end of the quote.
    pub end: u16,
    /// Source port, host order; echo identifier; 0 for protocols without ports.
    pub sport: u16,
    /// Destination port, host order; echo identifier; 0 for protocols without ports.
    pub dport: u16,
    /// Upper protocol; for IPv6 the one behind the extension headers.
    pub proto: u8,
    /// IPv6.
    pub v6: bool,
    /// DSCP and ECN: type of service, traffic class.
    pub tos: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Which part of the datagram.
    pub fragment: Fragment,
    /// The upper header.
    pub kind: L4,
    /// IPv4: "don't fragment". Always true for IPv6.
    pub df: bool,
    /// Identification that the datagram's fragments share; host order. IPv6 without a fragment
    /// header has 0.
    pub fragment_id: u32,
    /// Sender.
    pub src: Addr,
    /// Receiver.
    pub dst: Addr,
}

impl Ip {
    /// Bytes of the packet, headers and all.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet is no collection")]
    pub const fn len(&self) -> u16 {
        self.end - self.at
    }

    /// The Ethernet type of its family.
    #[inline(always)]
    pub const fn ethertype(&self) -> u16 {
        if self.v6 { ethernet::IPV6 } else { ethernet::IPV4 }
    }
}

/// What any accepted packet keeps to, whatever the bytes.
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
