//! IP headers of either family as written by a translation.

use super::untranslatable::Untranslatable;
use crate::addr::Addr;
use crate::checksum::{ipv4_words, sum_words};
use crate::ip::{Fragment, ICMP, ICMPV6, Ip};
use crate::ipv6::{self, DESTINATION, EXTENSIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use crate::rewrite::Rewrite;
use crate::tunnel::datagram_id;
use crate::window::{Short, Window, mask_header};

/// IPv4 packets translated from IPv6 and longer than this number of bytes must not be fragmented
/// (RFC 7915 §5.1): their senders discover the path MTU.
const MAX_FRAGMENTABLE: u16 = 1260;
/// The maximum number of bytes after a header, so that a packet with the longest header, of 48
/// bytes, has at most 65,535.
const MAX_CARRIED: u16 = u16::MAX - 48;

/// An IP header without options; the only IPv6 extension header is the fragment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whether the header is IPv6.
    pub v6: bool,
    /// IPv4 "don't fragment" flag.
    pub df: bool,
    /// DSCP and ECN.
    pub tos: u8,
    /// IPv4 time to live, IPv6 hop limit.
    pub ttl: u8,
    /// Upper-layer protocol.
    pub proto: u8,
    /// The part of the datagram that the packet carries.
    pub fragment: Fragment,
    /// Position of the packet in its datagram, in the format of IPv6: offset in units of 8 bytes in
    /// the upper 13 bits, "more fragments" in the lowest bit.
    pub fragment_bits: u16,
    /// Number of bytes after the header.
    pub carries: u16,
    /// Identification; IPv4 uses its lower half.
    pub id: u32,
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
}

/// Returns the length of a header in bytes.
#[inline(always)]
pub(super) const fn len(v6: bool, fragment: Fragment) -> u16 {
    match (v6, fragment) {
        (false, _) => 20,
        (true, Fragment::Whole) => 40,
        (true, Fragment::First | Fragment::Later) => 48,
    }
}

/// Returns the protocol number in the other family; only ICMP's differs.
#[inline(always)]
pub const fn proto(ip: &Ip) -> u8 {
    match (ip.v6, ip.proto) {
        (false, ICMP) => ICMPV6,
        (true, ICMPV6) => ICMP,
        (_, proto) => proto,
    }
}

impl Header {
    /// A placeholder where a packet quotes no other.
    pub(super) const NONE: Header = Header {
        v6: false,
        df: false,
        tos: 0,
        ttl: 0,
        proto: 0,
        fragment: Fragment::Whole,
        fragment_bits: 0,
        carries: 0,
        id: 0,
        src: Addr::UNSPECIFIED,
        dst: Addr::UNSPECIFIED,
    };

    /// Returns the length in bytes: 20, 40, or 48 with a fragment header.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a header is not a collection")]
    pub const fn len(&self) -> u16 {
        len(self.v6, self.fragment)
    }

    /// Writes the header at `at`.
    #[inline(always)]
    pub fn write(&self, w: &mut Window<'_>, at: usize) -> Result<(), Short> {
        if !self.v6 {
            return w.store(at, self.v4_words());
        }
        w.store(at, self.v6_words())?;
        match self.fragment {
            Fragment::Whole => Ok(()),
            Fragment::First | Fragment::Later => w.store(at + 40, self.fragment_header()),
        }
    }

    /// Returns the sum of the bytes that [`Header::write`] writes; 0 for IPv4, whose header
    /// checksum makes the sum zero.
    #[inline(always)]
    pub(super) fn sum(&self) -> u64 {
        if !self.v6 {
            return 0;
        }
        let h = self.v6_words();
        let first = sum_words(&[h[0], h[1], h[2], h[3], h[4]]);
        let sum = first + sum_words(&[h[5], h[6], h[7], h[8], h[9]]);
        match self.fragment {
            Fragment::Whole => sum,
            Fragment::First | Fragment::Later => {
                let [a, b] = self.fragment_header();
                sum + u64::from(a) + u64::from(b)
            }
        }
    }

    #[inline(always)]
    fn v4_words(&self) -> [u32; 5] {
        let bits = self.fragment_bits;
        let fragment_field = bits >> 3 | (bits & 1) << 13 | u16::from(self.df) << 14;
        let len = u32::from(self.carries) + 20;
        let second = self.id << 16 | u32::from(fragment_field);
        ipv4_words(self.tos, len, second, (self.ttl, self.proto), &self.src, &self.dst)
    }

    #[inline(always)]
    fn v6_words(&self) -> [u32; 10] {
        let (next, more) = match self.fragment {
            Fragment::Whole => (self.proto, 0),
            Fragment::First | Fragment::Later => (FRAGMENT, 8),
        };
        let len = u32::from(self.carries) + more;
        let first = 0x6000_0000 | u32::from(self.tos) << 20;
        let second = len << 16 | u32::from(next) << 8 | u32::from(self.ttl);
        ipv6::words(first, second, &self.src, &self.dst)
    }

    /// Returns the IPv6 fragment header.
    #[inline(always)]
    fn fragment_header(&self) -> [u32; 2] {
        [(u32::from(self.proto) << 24 | u32::from(self.fragment_bits)).to_be(), self.id.to_be()]
    }
}

/// Returns a packet's position in its datagram ([`Header::fragment_bits`]), or an error if its IP
/// header cannot be translated.
#[inline(always)]
pub fn fragment_bits(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    if ip.v6 { v6_fragment_bits(w, ip) } else { v4_fragment_bits(w, ip) }
}

/// The argument `sent` of [`translated`] for a packet that is sent.
pub(super) const SENT: bool = true;
/// The argument `sent` of [`translated`] for a packet that an ICMP error quotes.
pub(super) const QUOTED: bool = false;

/// Returns the header of the other family for `ip`, with the position `fragment_bits`, `carries`
/// bytes after the header, and the addresses of `to`. `sent` is [`SENT`] or [`QUOTED`]: a packet
/// that is only quoted needs no identification.
#[inline(always)]
pub(super) fn translated(
    w: &Window<'_>,
    ip: &Ip,
    fragment_bits: u16,
    to: &Rewrite,
    carries: u16,
    sent: bool,
) -> Result<Header, Untranslatable> {
    if carries > MAX_CARRIED {
        return Err(Untranslatable::NoEquivalent);
    }
    let unfragmented = ip.fragment == Fragment::Whole;
    let df = ip.v6 && unfragmented && carries > MAX_FRAGMENTABLE - 20;
    // An IPv4 packet that may be fragmented needs an identification; a whole IPv6 packet has none.
    let id = match unfragmented && ip.v6 {
        true if df || !sent => 0,
        true => u32::from(datagram_id(w, usize::from(ip.at), true)),
        false => ip.fragment_id,
    };
    Ok(Header {
        v6: !ip.v6,
        df,
        tos: ip.tos,
        ttl: ip.ttl,
        proto: proto(ip),
        fragment: ip.fragment,
        fragment_bits,
        carries,
        id,
        src: to.src.in_words(),
        dst: to.dst.in_words(),
    })
}

/// Returns the position of an IPv4 packet in its datagram. The translation omits options (RFC 7915
/// §4.1); a source route with remaining hops is an error.
#[inline(always)]
fn v4_fragment_bits(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    let at = usize::from(ip.at);
    if ip.l4 - ip.at > 20 && has_pending_source_route(w, at, usize::from(ip.l4 - ip.at))? {
        return Err(Untranslatable::NoEquivalent);
    }
    let word = w.be16(at + 6)?;
    Ok((word & 0x1fff) << 3 | word >> 13 & 1)
}

/// The option types of loose and strict source route (RFC 791 §3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// Returns true if an IPv4 header of `header` bytes has a source route with remaining hops.
#[inline(always)]
fn has_pending_source_route(w: &Window<'_>, at: usize, header: usize) -> Result<bool, Short> {
    let mut off = 20;
    // Each option has at least one byte: 40 iterations reach the end of any header.
    for _ in 0..40 {
        if off + 3 > header {
            break;
        }
        let (kind, len) = (w.byte(at + off)?, w.byte(at + off + 1)?);
        off += match (kind, len) {
            (0, _) => break,
            (1, _) => 1,
            (_, 0 | 1) => break,
            _ if SOURCE_ROUTES.contains(&kind) => return Ok(w.byte(at + off + 2)? <= len),
            _ => usize::from(len),
        };
        if off > 60 {
            break;
        }
        // The mask changes no value that occurs. It bounds `off` for the BPF verifier at the end of
        // each iteration.
        off = mask_header(off);
    }
    Ok(false)
}

/// Returns the position of an IPv6 packet in its datagram. The translation omits extension headers,
/// which is permitted only for those without further effect (RFC 7915 §5.1). A fragment must have
/// none after the fragment header.
#[inline(always)]
fn v6_fragment_bits(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    let (mut at, l4) = (usize::from(ip.at) + 40, usize::from(ip.l4));
    if at == l4 {
        return Ok(0);
    }
    let (mut next, mut fragment_bits) = (w.byte(usize::from(ip.at) + 6)?, 0);
    for _ in 0..EXTENSIONS {
        if at >= l4 {
            break;
        }
        let [following, size, high, low] = w.load::<u32>(at)?.to_ne_bytes();
        let bytes = match next {
            FRAGMENT => 8,
            HOP_BY_HOP | DESTINATION => (usize::from(size) + 1) * 8,
            // The fourth byte is the number of remaining segments.
            ROUTING if low == 0 => (usize::from(size) + 1) * 8,
            _ => return Err(Untranslatable::NoEquivalent),
        };
        if next == FRAGMENT && ip.fragment != Fragment::Whole {
            fragment_bits = u16::from_be_bytes([high, low]) & 0xfff9;
            if at + 8 != l4 {
                return Err(Untranslatable::NoEquivalent);
            }
        }
        at += bytes;
        next = following;
    }
    if at == l4 { Ok(fragment_bits) } else { Err(Untranslatable::NoEquivalent) }
}
