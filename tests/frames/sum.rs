//! The Internet checksum (RFC 1071), always computed in full.

use std::net::IpAddr;

/// Returns the one's-complement sum of the bytes as big-endian 16-bit words; an odd last byte is
/// padded with zero.
pub fn words(bytes: &[u8]) -> u32 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Returns the checksum of the bytes.
pub fn checksum(bytes: &[u8]) -> u16 {
    !(words(bytes) as u16)
}

/// Builds the pseudo-header of UDP, TCP and ICMPv6 (RFC 768, RFC 9293 3.1, RFC 8200 8.1).
pub fn pseudo_header(src: IpAddr, dst: IpAddr, proto: u8, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            out.extend(src.octets());
            out.extend(dst.octets());
            out.extend([0, proto]);
            out.extend((len as u16).to_be_bytes());
        }
        (src, dst) => {
            out.extend(v6(src));
            out.extend(v6(dst));
            out.extend((len as u32).to_be_bytes());
            out.extend([0, 0, 0, proto]);
        }
    }
    out
}

/// Returns the sixteen bytes of an address; an IPv4 address is IPv4-mapped.
pub fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns `sum` plus `delta` in one's complement. Incremental updates preserve this difference
/// from the correct checksum.
pub fn off_by(sum: u16, delta: u16) -> u16 {
    let wide = u32::from(sum) + u32::from(delta);
    ((wide & 0xffff) + (wide >> 16)) as u16
}
