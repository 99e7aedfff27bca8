//! The IPv6 header (RFC 8200) and its extension headers, of which up to eight are walked.

use crate::addr::Addr;
use crate::ip::{Fragment, Ip};
use crate::ipv4;
use crate::parsed::Malformed;
use crate::window::Window;

pub(crate) use crate::ip::ICMPV6;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
pub(crate) const DESTINATION: u8 = 60;

/// How many extension headers are walked at most.
pub(crate) const EXTENSIONS: usize = 8;

/// A header as words: the first two numbers of it, and its ends.
#[inline(always)]
pub(crate) fn words(first: u32, second: u32, src: &Addr, dst: &Addr) -> [u32; 10] {
    let (s, d) = (&src.words, &dst.words);
    [first.to_be(), second.to_be(), s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3]]
}

/// Reads the header at `at`, without `end` and what lies above; the packet's length. Out of line
/// on a host, so that the two families don't compete for registers.
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

/// As [`header`], of a packet without extension headers; nothing for any other.
#[inline(always)]
pub(crate) fn fixed(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<Option<u32>, Malformed> {
    let len = fields(w, at, ip)?;
    Ok((!is_extension(ip.proto)).then_some(len))
}

/// Reads the forty bytes of the header alone.
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
    // IPv4 addresses in IPv6 form never travel (RFC 4942 §2.2), and would meet the keys of IPv4
    // flows.
    if ip.src.is_v4() | ip.dst.is_v4() {
        return Err(Malformed::Mapped);
    }
    Ok(len)
}

#[inline(always)]
const fn is_extension(proto: u8) -> bool {
    matches!(proto, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

/// What the extension headers say, and what is behind them.
struct Behind {
    l4: u16,
    proto: u8,
    fragment: Fragment,
    fragment_id: u32,
}

/// Goes through the extension headers from `l4`, the first being `proto`, of a packet that ends at
/// `end`. Takes and gives values only, so that the header above can stay in registers.
fn walk(w: &Window<'_>, proto: u8, l4: u16, end: u32) -> Result<Behind, Malformed> {
    let mut found = Behind { l4, proto, fragment: Fragment::Whole, fragment_id: 0 };
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
            // Offset 0 without "more": a datagram in one piece (RFC 6946).
            if word & 0xfff9 != 0 {
                found.fragment = ipv4::fragment(word >> 3, end - at, next)?;
            }
        }
        // What follows a later fragment's header is payload.
        if found.fragment == Fragment::Later || !is_extension(next) {
            return Ok(found);
        }
    }
    Err(Malformed::Extension)
}

#[cfg(test)]
mod tests;
