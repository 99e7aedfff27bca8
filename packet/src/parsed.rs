//! The reasons for which a packet cannot be parsed.

use crate::window::Short;

/// The reason for which a packet is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The frame (or its first segment) ends before its headers do.
    Short,
    /// The Ethernet type is neither IPv4's nor IPv6's.
    NotIp,
    /// The IP version contradicts the Ethernet type.
    IpVersion,
    /// The IPv4 header length is below 20 bytes, or exceeds the packet's total length.
    IpHeaderLength,
    /// The IP length is shorter than the header, or exceeds the frame.
    IpLength,
    /// An address in an IPv6 header is IPv4-mapped, `::ffff:a.b.c.d`.
    Mapped,
    /// IPv6 extension headers run past the packet, or there are more than eight.
    Extension,
    /// The fragment is invalid: it ends past 65,535 bytes, or overlaps the TCP header (RFC 3128).
    Fragment,
    /// The TCP, UDP or ICMP header does not fit in the packet.
    Transport,
    /// The packet is not an ICMP error, or what it quotes is not an IP packet with at least the
    /// first 8 bytes of its TCP, UDP or ICMP header.
    Quote,
    /// The GENEVE version is not 0.
    GeneveVersion,
    /// GENEVE options exceed the option area.
    GeneveOptions,
    /// The VXLAN header lacks the I flag.
    VxlanFlags,
    /// The GUE header has an unknown variant, is a control message, or does not carry IP.
    Gue,
}

impl From<Short> for Malformed {
    #[inline(always)]
    fn from(_: Short) -> Malformed {
        Malformed::Short
    }
}
