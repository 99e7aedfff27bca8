//! What an UPDATE is read with.

/// What of the session decides how an UPDATE is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// Numbers in AS_PATH have four octets.
    pub four_octet: bool,
    /// The peer is of our own autonomous system.
    pub internal: bool,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
}
