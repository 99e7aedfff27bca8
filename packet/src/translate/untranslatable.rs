//! The reasons for which a packet cannot be translated to the other family.

use crate::window::Short;

/// The reason for which a packet cannot be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untranslatable {
    /// The window ends before the packet's headers do.
    Short,
    /// RFC 7915 defines no translation: an untranslatable ICMP message or a fragment of one, a
    /// source route or routing header with remaining hops, or an extension header that cannot be
    /// omitted.
    Nothing,
    /// A whole UDP datagram over IPv4 without a checksum, which IPv6 requires (§4.5). The packet is
    /// unchanged; it can be translated after [`complete`](super::complete).
    Unsummed,
}

impl From<Short> for Untranslatable {
    #[inline(always)]
    fn from(_: Short) -> Untranslatable {
        Untranslatable::Short
    }
}
