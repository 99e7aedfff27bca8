//! The reasons for which a packet cannot be translated to the other family.

use crate::window::Short;

/// The reason for which a packet cannot be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untranslatable {
    /// The window ends before the packet's headers do.
    Short,
    /// The packet, or the packet that it quotes, has no equivalent in the other family:
    ///
    /// - a protocol other than TCP, UDP and the family's ICMP (in a later fragment, every
    ///   protocol but ICMP has an equivalent);
    /// - an ICMP message that is neither an echo nor an error that RFC 7915 translates, or a
    ///   fragment of an ICMP message;
    /// - the first fragment of a UDP datagram over IPv4 without a checksum;
    /// - an IPv4 source route or an IPv6 routing header with remaining hops;
    /// - an IPv6 extension header that must not be omitted, or, in a fragment, any extension
    ///   header after the fragment header;
    /// - more than 65,487 bytes after the IP header, so that the translation might be longer than
    ///   65,535 bytes;
    /// - a quoted IP header of more than 60 bytes.
    NoEquivalent,
    /// A whole UDP datagram over IPv4 without a checksum, which IPv6 requires (RFC 7915 §4.5). The
    /// packet is unchanged. It can be translated after
    /// [`add_udp_checksum`](super::add_udp_checksum), which fails if the datagram is not entirely
    /// in the window or its UDP length is wrong.
    ZeroUdpChecksum,
}

impl From<Short> for Untranslatable {
    #[inline(always)]
    fn from(_: Short) -> Untranslatable {
        Untranslatable::Short
    }
}
