//! Translation between IPv4 and IPv6 (RFC 7915): packets, ICMP echoes, and ICMP errors with the
//! packet that they quote.
//!
//! Translation takes two steps, since the headers change their length. [`packet`] and [`error`]
//! change what stays in place (ports, checksums) and return the headers of the other family
//! ([`NewHeaders`]). The caller removes all bytes before [`NewHeaders::kept_from`], makes space for
//! [`NewHeaders::len`] bytes, and writes the headers there.
//!
//! Upper-layer checksums are updated (RFC 1624), so a wrong checksum stays wrong. The exception is
//! an IPv4 UDP datagram without a checksum: [`packet`] returns
//! [`Untranslatable::ZeroUdpChecksum`], and the caller computes the checksum by
//! [`add_udp_checksum`] and translates again.

mod errors;
mod header;
mod untranslatable;

use crate::addr::Addr;
use crate::checksum::{
    change16, change32, fold, icmpv4_echo_checksum, of_addr, pseudo, udp_checksum, update,
};
use crate::icmp;
use crate::ip::{Fragment, ICMP, ICMPV6, Ip, L4};
use crate::rewrite::{Rewrite, set_ports};
use crate::window::{Short, Window};

pub use header::{Header, fragment_bits, proto};
pub use untranslatable::Untranslatable;

/// The minimum MTU of an IPv6 link in bytes (RFC 8200 §5): no lower one is reported to senders.
const MIN_MTU_V6: u16 = 1280;
/// The length of an ICMP header in bytes.
const ICMP_HEADER: u16 = 8;
/// The maximum IP header length of a quoted packet in bytes: IPv4 with all options, the longest
/// header that [`Window::sum`] can add up under BPF.
const MAX_QUOTED: u16 = 60;

/// The headers to write in front of a translated packet's payload or upper-layer header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewHeaders {
    /// Offset of the first byte that is kept, in the packet before the translation.
    pub kept_from: u16,
    /// Whether [`NewHeaders::icmp`] and [`NewHeaders::quote`] follow the IP header.
    pub quotes: bool,
    /// IP header of the packet.
    pub ip: Header,
    /// ICMP header of the error, in words as on the wire.
    pub icmp: [u32; 2],
    /// IP header of the packet that the error quotes.
    pub quote: Header,
}

impl NewHeaders {
    /// Returns the length of all headers in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "headers are not a collection")]
    pub const fn len(&self) -> u16 {
        self.ip.len() + if self.quotes { ICMP_HEADER + self.quote.len() } else { 0 }
    }

    /// Writes the headers at `at`, so that the kept bytes follow.
    #[inline(always)]
    pub fn write(&self, w: &mut Window<'_>, at: u16) -> Result<(), Short> {
        self.ip.write(w, usize::from(at))?;
        if !self.quotes {
            return Ok(());
        }
        let head = at + self.ip.len();
        w.store(usize::from(head), self.icmp)?;
        self.quote.write(w, usize::from(head + ICMP_HEADER))
    }

    /// Updates `before`, the parsed headers of the packet before its translation, for the
    /// translated packet at `at`. The ports are not updated.
    #[inline(always)]
    pub fn update_parsed(&self, at: u16, before: &mut Ip) {
        before.end = at + self.len() + (before.end - self.kept_from);
        (before.at, before.l4) = (at, at + self.ip.len());
        before.v6 = self.ip.v6;
        (before.src, before.dst) = (self.ip.src.in_words(), self.ip.dst.in_words());
        (before.proto, before.df) = (self.ip.proto, self.ip.v6 | self.ip.df);
        before.fragment_id = self.ip.id;
    }
}

/// Returns the length in bytes of a packet after its translation, including the packet that it
/// quotes.
#[inline(always)]
pub const fn translated_len(ip: &Ip, quoted: Option<&Ip>) -> u32 {
    let len = header::len(!ip.v6, ip.fragment) as u32 + (ip.end - ip.l4) as u32;
    match quoted {
        Some(quote) => {
            len + header::len(!ip.v6, quote.fragment) as u32 - (quote.l4 - quote.at) as u32
        }
        None => len,
    }
}

/// Returns the MTU to report to a packet's sender if translated packets of at most `mtu` bytes
/// pass: the size in the sender's family (RFC 7915 §4.2, §5.2), for IPv6 at least 1,280.
#[inline(always)]
pub const fn sender_mtu(ip: &Ip, mtu: u16) -> u16 {
    let (six, four) = (header::len(true, ip.fragment), header::len(false, ip.fragment));
    let more = six - four;
    if !ip.v6 {
        return mtu.saturating_sub(more);
    }
    let size = mtu.saturating_add(more);
    if size < MIN_MTU_V6 { MIN_MTU_V6 } else { size }
}

/// Translates a packet that is not an ICMP error to the addresses and ports of `to`: changes in
/// place what is kept, and returns the headers to write. TTL and traffic class are taken from `ip`,
/// not from the packet's bytes.
#[inline(always)]
pub fn packet(w: &mut Window<'_>, ip: &Ip, to: &Rewrite) -> Result<NewHeaders, Untranslatable> {
    let fragment_bits = fragment_bits(w, ip)?;
    packet_as(w, ip, fragment_bits, to)
}

/// Like [`packet`], with the result of [`fragment_bits`] given.
#[inline(always)]
pub fn packet_as(
    w: &mut Window<'_>,
    ip: &Ip,
    fragment_bits: u16,
    to: &Rewrite,
) -> Result<NewHeaders, Untranslatable> {
    if ip.kind == L4::Udp && !ip.v6 && w.load::<u16>(usize::from(ip.l4) + 6)? == 0 {
        return Err(match ip.fragment {
            Fragment::Whole => Untranslatable::ZeroUdpChecksum,
            _ => Untranslatable::NoEquivalent,
        });
    }
    let carries = ip.end - ip.l4;
    let header = header::translated(w, ip, fragment_bits, to, carries, header::SENT)?;
    translate_upper(w, ip, to, carries)?;
    Ok(NewHeaders {
        kept_from: ip.l4,
        quotes: false,
        ip: header,
        icmp: [0; 2],
        quote: Header::NONE,
    })
}

/// Translates an ICMP `error` to the addresses of `to`, and the packet that it quotes to the
/// addresses and ports of `quote`. Returns [`Untranslatable::NoEquivalent`] if the other family has
/// no equivalent of the error or of the quoted packet.
#[inline(always)]
pub fn error(
    w: &mut Window<'_>,
    error: &Ip,
    quoted: &Ip,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<NewHeaders, Untranslatable> {
    fragment_bits(w, error)?;
    let fragment_bits = fragment_bits(w, quoted)?;
    let inside = quoted_header(w, quoted, fragment_bits, quote)?;
    error_around(w, error, quoted, to, quote, &inside)
}

/// Returns the translated header of a quoted packet; `fragment_bits` is the result of
/// [`fragment_bits`].
#[inline(always)]
pub fn quoted_header(
    w: &Window<'_>,
    quoted: &Ip,
    fragment_bits: u16,
    to: &Rewrite,
) -> Result<Header, Untranslatable> {
    let old_header_len = quoted.l4 - quoted.at;
    if old_header_len > MAX_QUOTED {
        return Err(Untranslatable::NoEquivalent);
    }
    // The quote may be shorter than the length that the quoted packet's header states.
    let carries = icmp::stated_len(w, quoted)?.saturating_sub(old_header_len);
    header::translated(w, quoted, fragment_bits, to, carries, header::QUOTED)
}

/// Like [`error`], for an error that [`fragment_bits`] accepts, with `inside`, the translated
/// header of the quoted packet, given.
#[inline(always)]
pub fn error_around(
    w: &mut Window<'_>,
    error: &Ip,
    quoted: &Ip,
    to: &Rewrite,
    quote: &Rewrite,
    inside: &Header,
) -> Result<NewHeaders, Untranslatable> {
    if error.fragment != Fragment::Whole {
        return Err(Untranslatable::NoEquivalent);
    }
    let old_header_len = quoted.l4 - quoted.at;
    let old_header = fold(w.sum(usize::from(quoted.at), usize::from(old_header_len))?);
    let carries = (ICMP_HEADER + inside.len()).saturating_add(error.end - quoted.l4);
    let header = header::translated(w, error, 0, to, carries, header::SENT)?;
    let mut change = translate_upper(w, quoted, quote, inside.carries)?;
    change += u64::from(!old_header) + inside.sum();
    change += pseudo_header_change(error, error.end - error.l4, to, carries);
    // The ICMP header is translated last, since this step has the most outcomes for the BPF
    // verifier to follow.
    let old: [u32; 2] = w.load(usize::from(error.l4))?;
    let [kind, code, c0, c1] = old[0].to_ne_bytes();
    let icmp = errors::IcmpHeader { kind, code, rest: u32::from_be(old[1]) };
    let stated = inside.carries.saturating_add(old_header_len);
    let icmp = errors::translated(error.v6, icmp, stated).ok_or(Untranslatable::NoEquivalent)?;
    let first = [u16::from_ne_bytes([kind, code]), u16::from_ne_bytes([icmp.kind, icmp.code])];
    change += change16(first[0], first[1]) + change32(old[1], icmp.rest.to_be());
    let [c0, c1] = update(u16::from_ne_bytes([c0, c1]), change).to_ne_bytes();
    let head = [u32::from_ne_bytes([icmp.kind, icmp.code, c0, c1]), icmp.rest.to_be()];
    Ok(NewHeaders { kept_from: quoted.l4, quotes: true, ip: header, icmp: head, quote: *inside })
}

/// Computes the checksum of a UDP datagram that came without one. Returns [`Short`] also if its
/// payload continues in further segments or its length differs from the packet's.
pub fn add_udp_checksum(w: &mut Window<'_>, ip: &Ip) -> Result<(), Short> {
    let sum = w.sum(usize::from(ip.l4), usize::from(ip.end - ip.l4))?;
    add_udp_checksum_from(w, ip, sum)
}

/// Like [`add_udp_checksum`], with the `sum` of the datagram's bytes given.
#[inline(always)]
pub fn add_udp_checksum_from(w: &mut Window<'_>, ip: &Ip, sum: u64) -> Result<(), Short> {
    let (l4, len) = (usize::from(ip.l4), ip.end - ip.l4);
    if w.be16(l4 + 4)? != len {
        return Err(Short);
    }
    let ends = pseudo(&ip.src, &ip.dst, ip.v6, ip.proto, u32::from(len));
    w.store(l4 + 6, udp_checksum(!fold(sum + ends)))
}

/// Changes ports, identifier, ICMP type and checksum in place. `carries` is the length in bytes
/// that the headers state for everything after the IP header. Returns the change to the sum of
/// these bytes.
#[inline(always)]
fn translate_upper(
    w: &mut Window<'_>,
    ip: &Ip,
    to: &Rewrite,
    carries: u16,
) -> Result<u64, Untranslatable> {
    let l4 = usize::from(ip.l4);
    let field = match ip.kind {
        L4::Tcp { .. } => l4 + 16,
        L4::Udp => l4 + 6,
        L4::IcmpEcho { request } if ip.fragment == Fragment::Whole => {
            return translate_echo(w, ip, to, carries, request);
        }
        L4::None if !is_icmp(ip) => return Ok(0),
        // The checksum of a fragmented ICMP message cannot be updated: the change of the
        // pseudo-header includes the length of the whole message.
        _ => return Err(Untranslatable::NoEquivalent),
    };
    let ports = set_ports(w, ip, to)?;
    // A quote may end before the checksum.
    if field + 2 > usize::from(ip.end) {
        return Ok(ports);
    }
    let old: u16 = w.load(field)?;
    if ip.kind == L4::Udp && old == 0 {
        return Ok(ports);
    }
    let new = update(old, address_change(ip, to) + ports);
    let new = if ip.kind == L4::Udp { udp_checksum(new) } else { new };
    w.store(field, new)?;
    Ok(ports + change16(old, new))
}

/// Like [`translate_upper`], for an ICMP echo.
#[inline(always)]
fn translate_echo(
    w: &mut Window<'_>,
    ip: &Ip,
    to: &Rewrite,
    carries: u16,
    request: bool,
) -> Result<u64, Untranslatable> {
    let l4 = usize::from(ip.l4);
    let kind = match (ip.v6, request) {
        (false, true) => 128,
        (false, false) => 129,
        (true, true) => 8,
        (true, false) => 0,
    };
    let id = if request { to.sport } else { to.dport };
    let [first, old]: [u16; 2] = w.load(l4)?;
    let type_code = u16::from_ne_bytes([kind, first.to_ne_bytes()[1]]);
    let body = change16(first, type_code) + change16(ip.sport.to_be(), id.to_be());
    let new = update(old, body + pseudo_header_change(ip, carries, to, carries));
    // The translation of an IPv6 packet is an ICMPv4 message.
    let new = if ip.v6 { icmpv4_echo_checksum(new) } else { new };
    w.store(l4, [type_code, new])?;
    w.set_be16(l4 + 4, id)?;
    Ok(body + change16(old, new))
}

/// Returns the change of an ICMP checksum by the pseudo-header, which only ICMPv6 has. `before` and
/// `after` are the lengths of the ICMP message in bytes.
#[inline(always)]
fn pseudo_header_change(ip: &Ip, before: u16, to: &Rewrite, after: u16) -> u64 {
    if ip.v6 {
        return u64::from(!fold(pseudo(&ip.src, &ip.dst, true, ICMPV6, u32::from(before))));
    }
    pseudo(&to.src, &to.dst, true, ICMPV6, u32::from(after))
}

/// Returns the change of a TCP or UDP checksum's sum from the addresses of one family to those of
/// the other. The rest of the pseudo-header, length and protocol, is equal in both families.
#[inline(always)]
fn address_change(ip: &Ip, to: &Rewrite) -> u64 {
    let both = |src: &Addr, dst: &Addr, v6| of_addr(src, v6) + of_addr(dst, v6);
    u64::from(!fold(both(&ip.src, &ip.dst, ip.v6))) + both(&to.src, &to.dst, !ip.v6)
}

#[inline(always)]
const fn is_icmp(ip: &Ip) -> bool {
    ip.proto == if ip.v6 { ICMPV6 } else { ICMP }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod harness;
#[cfg(any(test, feature = "fuzz"))]
pub use harness::harness;

#[cfg(test)]
mod tests;
