//! Why a packet could not be parsed: one variant a cause.

use crate::window::Short;

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The frame (or its first segment) ends before its headers do.
    Short,
    /// The Ethernet type is neither IPv4's nor IPv6's.
    NotIp,
    /// The IP version contradicts the Ethernet type.
    IpVersion,
    /// The IPv4 header claims fewer than 20 bytes, or more than the packet has.
    IpHeaderLength,
    /// The IP length is below the header's or beyond the frame's.
    IpLength,
    /// An IPv6 header with an IPv4-mapped address, `::ffff:a.b.c.d`.
    Mapped,
    /// IPv6 extension headers run past the packet, or there are more than eight.
    Extension,
    /// A fragment that no sender makes: past 65,535 bytes, or made to overlap the TCP header
    /// (RFC 1858, RFC 3128).
    Fragment,
    /// The TCP, UDP or ICMP header does not fit in the packet.
    Transport,
    /// An ICMP error without a packet of at least 8 payload bytes in it.
    Quote,
    /// The GENEVE version is not 0.
    GeneveVersion,
    /// GENEVE options run past the option area.
    GeneveOptions,
    /// The VXLAN header lacks the I flag.
    VxlanFlags,
    /// The GUE header is of an unknown variant, a control message, or carries no IP.
    Gue,
}

impl From<Short> for Malformed {
    #[inline(always)]
    fn from(_: Short) -> Malformed {
        Malformed::Short
    }
}
