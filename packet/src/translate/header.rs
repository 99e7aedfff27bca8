//! IP headers of either family as a translation writes them, and what they are made of.

use super::untranslatable::Untranslatable;
use crate::addr::Addr;
use crate::checksum::{ipv4_words, words};
use crate::ip::{Fragment, ICMP, ICMPV6, Ip};
use crate::ipv6::{self, DESTINATION, EXTENSIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use crate::rewrite::Rewrite;
use crate::tunnel::datagram_id;
use crate::window::{Short, Window, mask_header};

/// Translated IPv4 packets above so many bytes are not to be cut (RFC 7915 §5.1): their senders
/// find out what passes.
const CUT: u16 = 1260;
/// The most that may follow a header: with the longest one, 65,535 bytes.
const MOST: u16 = u16::MAX - 48;

/// A header without options; of IPv6's extension headers it has at most that of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// IPv6.
    pub v6: bool,
    /// IPv4: "don't fragment".
    pub df: bool,
    /// DSCP and ECN.
    pub tos: u8,
    /// TTL, hop limit.
    pub ttl: u8,
    /// The protocol that it carries.
    pub proto: u8,
    /// Which part of its datagram.
    pub fragment: Fragment,
    /// Where that part lies, as IPv6 writes it: offset in units of 8 bytes in the upper 13 bits,
    /// "more follow" in the lowest.
    pub part: u16,
    /// Bytes that follow it.
    pub carries: u16,
    /// Identification; for IPv4 its lower half.
    pub id: u32,
    /// Sender.
    pub src: Addr,
    /// Receiver.
    pub dst: Addr,
}

/// Bytes of a header.
#[inline(always)]
pub(super) const fn len(v6: bool, fragment: Fragment) -> u16 {
    match (v6, fragment) {
        (false, _) => 20,
        (true, Fragment::Whole) => 40,
        (true, Fragment::First | Fragment::Later) => 48,
    }
}

/// The protocol of the other family that carries the same: ICMP has one in each.
#[inline(always)]
pub const fn proto(ip: &Ip) -> u8 {
    match (ip.v6, ip.proto) {
        (false, ICMP) => ICMPV6,
        (true, ICMPV6) => ICMP,
        (_, proto) => proto,
    }
}

impl Header {
    /// Nobody's.
    pub(super) const NONE: Header = Header {
        v6: false,
        df: false,
        tos: 0,
        ttl: 0,
        proto: 0,
        fragment: Fragment::Whole,
        part: 0,
        carries: 0,
        id: 0,
        src: Addr::UNSPECIFIED,
        dst: Addr::UNSPECIFIED,
    };

    /// Bytes of it: 20, 40, or 48 with a fragment header.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a header is no collection")]
    pub const fn len(&self) -> u16 {
        len(self.v6, self.fragment)
    }

    /// Writes it at `at`.
    #[inline(always)]
    pub fn write(&self, w: &mut Window<'_>, at: usize) -> Result<(), Short> {
        if !self.v6 {
            return w.store(at, self.four());
        }
        w.store(at, self.six())?;
        match self.fragment {
            Fragment::Whole => Ok(()),
            Fragment::First | Fragment::Later => w.store(at + 40, self.piece()),
        }
    }

    /// The sum of what [`Header::write`] writes. IPv4's checksum makes its own nothing.
    #[inline(always)]
    pub(super) fn sum(&self) -> u64 {
        if !self.v6 {
            return 0;
        }
        let h = self.six();
        let first = words(&[h[0], h[1], h[2], h[3], h[4]]);
        let sum = first + words(&[h[5], h[6], h[7], h[8], h[9]]);
        match self.fragment {
            Fragment::Whole => sum,
            Fragment::First | Fragment::Later => {
                let [a, b] = self.piece();
                sum + u64::from(a) + u64::from(b)
            }
        }
    }

    #[inline(always)]
    fn four(&self) -> [u32; 5] {
        let place = self.part >> 3 | (self.part & 1) << 13 | u16::from(self.df) << 14;
        let len = u32::from(self.carries) + 20;
        let second = self.id << 16 | u32::from(place);
        ipv4_words(self.tos, len, second, (self.ttl, self.proto), &self.src, &self.dst)
    }

    #[inline(always)]
    fn six(&self) -> [u32; 10] {
        let (next, more) = match self.fragment {
            Fragment::Whole => (self.proto, 0),
            Fragment::First | Fragment::Later => (FRAGMENT, 8),
        };
        let len = u32::from(self.carries) + more;
        let first = 0x6000_0000 | u32::from(self.tos) << 20;
        let second = len << 16 | u32::from(next) << 8 | u32::from(self.ttl);
        ipv6::words(first, second, &self.src, &self.dst)
    }

    /// The fragment header.
    #[inline(always)]
    fn piece(&self) -> [u32; 2] {
        [(u32::from(self.proto) << 24 | u32::from(self.part)).to_be(), self.id.to_be()]
    }
}

/// Where a packet lies in its datagram ([`Header::part`]), if its header has a translation.
#[inline(always)]
pub fn piece(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    if ip.v6 { part_of_six(w, ip) } else { part_of_four(w, ip) }
}

/// The header of the other family for `ip`, a part of its datagram that says that it carries so
/// many bytes, between the addresses of `to`. `sent` is false for a packet that is only quoted.
#[inline(always)]
pub(super) fn of(
    w: &Window<'_>,
    ip: &Ip,
    part: u16,
    to: &Rewrite,
    carries: u16,
    sent: bool,
) -> Result<Header, Untranslatable> {
    if carries > MOST {
        return Err(Untranslatable::Nothing);
    }
    let whole = ip.fragment == Fragment::Whole;
    let df = ip.v6 && whole && carries > CUT - 20;
    // What may be cut needs an identification; a packet in one piece that came over IPv6 has none.
    let id = match whole && ip.v6 {
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
        part,
        carries,
        id,
        src: to.src.in_words(),
        dst: to.dst.in_words(),
    })
}

/// Which part of its datagram an IPv4 packet is. Options are left out (§4.1), but for a source
/// route that is not at its end.
#[inline(always)]
fn part_of_four(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    let at = usize::from(ip.at);
    if ip.l4 - ip.at > 20 && is_routed(w, at, usize::from(ip.l4 - ip.at))? {
        return Err(Untranslatable::Nothing);
    }
    let word = w.be16(at + 6)?;
    Ok((word & 0x1fff) << 3 | word >> 13 & 1)
}

/// Loose and strict source route (RFC 791 §3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// Whether an IPv4 header of so many bytes names routers that the packet has not been to.
#[inline(always)]
fn is_routed(w: &Window<'_>, at: usize, header: usize) -> Result<bool, Short> {
    let mut off = 20;
    // An option has at least one byte: 40 turns reach the end of any header.
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
        // It changes nothing but what a verifier knows of it: the same at the end of each turn.
        off = mask_header(off);
    }
    Ok(false)
}

/// Which part of its datagram an IPv6 packet is. Of extension headers only those may be left out
/// that are done with (§5.1), and a piece of a datagram may have none in what was cut.
#[inline(always)]
fn part_of_six(w: &Window<'_>, ip: &Ip) -> Result<u16, Untranslatable> {
    let (mut at, l4) = (usize::from(ip.at) + 40, usize::from(ip.l4));
    if at == l4 {
        return Ok(0);
    }
    let (mut next, mut part) = (w.byte(usize::from(ip.at) + 6)?, 0);
    for _ in 0..EXTENSIONS {
        if at >= l4 {
            break;
        }
        let [following, size, high, low] = w.load::<u32>(at)?.to_ne_bytes();
        let bytes = match next {
            FRAGMENT => 8,
            HOP_BY_HOP | DESTINATION => (usize::from(size) + 1) * 8,
            // Its fourth byte says to how many more nodes it is to go.
            ROUTING if low == 0 => (usize::from(size) + 1) * 8,
            _ => return Err(Untranslatable::Nothing),
        };
        if next == FRAGMENT && ip.fragment != Fragment::Whole {
            part = u16::from_be_bytes([high, low]) & 0xfff9;
            if at + 8 != l4 {
                return Err(Untranslatable::Nothing);
            }
        }
        at += bytes;
        next = following;
    }
    if at == l4 { Ok(part) } else { Err(Untranslatable::Nothing) }
}
