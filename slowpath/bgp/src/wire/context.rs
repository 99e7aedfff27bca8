//! Context for decoding UPDATEs.

/// Negotiated parameters that affect the decoding of an UPDATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DecodeContext {
    /// AS numbers in AS_PATH have four octets (RFC 6793).
    pub four_octet: bool,
    /// The peer is internal (iBGP).
    pub internal: bool,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
}
