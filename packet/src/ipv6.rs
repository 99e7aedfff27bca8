//! Parsing of the IPv6 header (RFC 8200) and of up to eight extension headers.

use crate::addr::Addr;
use crate::ip::{Fragment, Ip};
use crate::ipv4;
use crate::parsed::Malformed;
use crate::window::Window;

pub(crate) use crate::ip::ICMPV6;

// The protocol numbers of extension headers.
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
pub(crate) const DESTINATION: u8 = 60;

/// The maximum number of extension headers that are parsed.
pub(crate) const EXTENSIONS: usize = 8;

/// Returns a header as words in wire order, from its first two words in host order and its
/// addresses.
#[inline(always)]
pub(crate) fn words(first: u32, second: u32, src: &Addr, dst: &Addr) -> [u32; 10] {
    let (s, d) = (&src.words, &dst.words);
    [first.to_be(), second.to_be(), s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3]]
}

/// Reads the header at `at`: all fields of `ip` but `end` and those of the upper-layer header.
/// Returns the packet's length. Not inlined on the host, so that the two families do not compete
/// for registers.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), inline(never))]
pub(crate) fn header(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<u32, Malformed> {
    let len = fields(w, at, ip)?;
    if is_extension(ip.proto) {
        let found = walk(w, ip.proto, at + 40, u32::from(at) + len)?;
        ip.l4 = found.l4;
        ip.proto = found.proto;
        ip.fragment = found.fragment;
        ip.fragment_id = found.fragment_id;
    }
    Ok(len)
}

/// Like [`header`], but returns `None` if the packet has extension headers.
#[inline(always)]
pub(crate) fn usual_header(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<Option<u32>, Malformed> {
    let len = fields(w, at, ip)?;
    Ok((!is_extension(ip.proto)).then_some(len))
}

/// Reads the fixed 40-byte header. Returns the packet's length.
#[inline(always)]
fn fields(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<u32, Malformed> {
    let h: [u32; 10] = w.load(usize::from(at))?;
    let first = u32::from_be(h[0]);
    if first >> 28 != 6 {
        return Err(Malformed::IpVersion);
    }
    let second = u32::from_be(h[1]);
    let len = 40 + (second >> 16);
    ip.at = at;
    ip.l4 = at + 40;
    ip.proto = (second >> 8) as u8;
    ip.v6 = true;
    ip.tos = (first >> 20) as u8;
    ip.ttl = second as u8;
    ip.df = true;
    ip.fragment = Fragment::Whole;
    ip.fragment_id = 0;
    ip.src = Addr { words: [h[2], h[3], h[4], h[5]] };
    ip.dst = Addr { words: [h[6], h[7], h[8], h[9]] };
    // IPv4-mapped addresses must not appear on the wire (RFC 4942 §2.2), and would collide with the
    // keys of IPv4 flows.
    if ip.src.is_v4() | ip.dst.is_v4() {
        return Err(Malformed::Mapped);
    }
    Ok(len)
}

#[inline(always)]
const fn is_extension(proto: u8) -> bool {
    matches!(proto, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

/// The offset and protocol of the upper-layer header after the extension headers, and the fields
/// of the fragment header.
struct WalkResult {
    l4: u16,
    proto: u8,
    fragment: Fragment,
    fragment_id: u32,
}

/// Walks the extension headers of a packet that ends at `end`, from the one at `l4` with number
/// `proto`. Arguments and result are values, so that the caller's header stays in registers.
fn walk(w: &Window<'_>, proto: u8, l4: u16, end: u32) -> Result<WalkResult, Malformed> {
    let mut found = WalkResult { l4, proto, fragment: Fragment::Whole, fragment_id: 0 };
    let mut at = u32::from(l4);
    for _ in 0..EXTENSIONS {
        let [next, size, high, low] = w.load::<u32>(at as usize)?.to_ne_bytes();
        let bytes = match found.proto {
            FRAGMENT => 8,
            AUTHENTICATION => (u32::from(size) + 2) * 4,
            _ => (u32::from(size) + 1) * 8,
        };
        if at + bytes > end {
            return Err(Malformed::Extension);
        }
        w.holds(at as usize, bytes as usize)?;
        let fragment = found.proto == FRAGMENT;
        if fragment {
            found.fragment_id = w.be32(at as usize + 4)?;
        }
        at += bytes;
        found.l4 = at as u16;
        found.proto = next;
        if fragment {
            let word = u16::from_be_bytes([high, low]);
            // Offset 0 without "more fragments": a whole datagram (RFC 6946).
            if word & 0xfff9 != 0 {
                found.fragment = ipv4::fragment(word >> 3, end - at, next)?;
            }
        }
        // In a later fragment, the fragment header is followed by payload, not by a header.
        if found.fragment == Fragment::Later || !is_extension(next) {
            return Ok(found);
        }
    }
    Err(Malformed::Extension)
}

#[cfg(test)]
mod tests;
