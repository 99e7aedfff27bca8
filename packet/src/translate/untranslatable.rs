//! Why a packet has no translation into the other family.

use crate::window::Short;

/// Why a packet has no translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untranslatable {
    /// The window ends before its headers do.
    Short,
    /// RFC 7915 names none: another ICMP message or a piece of one, a source route or a routing
    /// header that is not through, an extension header that can't be left out.
    Nothing,
    /// A whole UDP datagram over IPv4 without a checksum, which IPv6 demands (§4.5). Nothing has
    /// been changed; with [`complete`](super::complete) it can be translated.
    Unsummed,
}

impl From<Short> for Untranslatable {
    #[inline(always)]
    fn from(_: Short) -> Untranslatable {
        Untranslatable::Short
    }
}
