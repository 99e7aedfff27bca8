//! Internet checksums: full (RFC 1071), incremental (RFC 1624), and the outer UDP checksum of a
//! tunnel packet, which is derived from the inner packet's checksum without reading the payload.
//!
//! All sums are over raw words: wire order, read with the host's byte order. One's-complement
//! addition is independent of byte order (RFC 1071 §2 B), so nothing is swapped. A partial sum is a
//! `u64` that is folded once, at the end.

use crate::addr::Addr;
use crate::ip::{Fragment, Ip, L4, UDP};
use crate::ipv6;
use crate::window::{Short, Window};

/// Folds a partial sum to a raw 16-bit word by end-around carries.
#[inline(always)]
pub const fn fold(sum: u64) -> u16 {
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum + carry as u32;
    // After adding the word with its halves exchanged, both halves are high + low. The carry out of
    // the lower half is added to the upper half, which is the end-around carry.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Returns the partial sum of an address: four bytes for IPv4, sixteen for IPv6.
#[inline(always)]
pub const fn of_addr(addr: &Addr, v6: bool) -> u64 {
    let [a, b, c, d] = addr.words;
    if v6 { a as u64 + b as u64 + c as u64 + d as u64 } else { d as u64 }
}

/// Returns what to add to a sum when `old` becomes `new`: ~m + m' (RFC 1624, equation 3).
#[inline(always)]
pub const fn change32(old: u32, new: u32) -> u64 {
    !old as u64 + new as u64
}

/// Like [`change32`], for a raw 16-bit word at an even offset.
#[inline(always)]
pub const fn change16(old: u16, new: u16) -> u64 {
    !old as u64 + new as u64
}

/// Like [`change32`], for an address of the family given by `v6`.
#[inline(always)]
pub const fn change_addr(old: &Addr, new: &Addr, v6: bool) -> u64 {
    let (o, n) = (&old.words, &new.words);
    let last = change32(o[3], n[3]);
    if !v6 {
        return last;
    }
    last + change32(o[0], n[0]) + change32(o[1], n[1]) + change32(o[2], n[2])
}

/// Returns the checksum field after a `change` of the covered bytes: HC' = ~(~HC + ~m + m').
#[inline(always)]
pub const fn update(old: u16, change: u64) -> u16 {
    !fold(!old as u64 + change)
}

/// Like [`update`], for one raw word that changes from `old` to `new`.
#[inline(always)]
pub const fn update16(sum: u16, old: u16, new: u16) -> u16 {
    update(sum, change16(old, new))
}

/// Returns a UDP checksum as sent: 0 means "none", so a computed 0 is sent as 0xffff (RFC 768).
#[inline(always)]
pub const fn udp_checksum(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Returns the checksum field of an ICMPv4 echo, given the result of an update.
///
/// An update yields 0 both for a message whose words sum to 0xffff and for a message of zeros only:
/// without a pseudo-header, the update cannot distinguish the two. A message of zeros needs the
/// checksum 0xffff. A receiver sums the whole message (RFC 1071 §1), and therefore accepts 0xffff
/// for the other message as well.
#[inline(always)]
pub const fn icmpv4_echo_checksum(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Returns the sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1); `len` is the length in
/// bytes of upper-layer header and payload.
#[inline(always)]
pub const fn pseudo(src: &Addr, dst: &Addr, v6: bool, proto: u8, len: u32) -> u64 {
    of_addr(src, v6) + of_addr(dst, v6) + (proto as u32).to_be() as u64 + len.to_be() as u64
}

/// Returns true if the checksum of an IPv4 header is correct.
#[inline(always)]
pub fn ipv4_header_ok(w: &Window<'_>, ip: &Ip) -> bool {
    ipv4_ok_between(w, ip.at, ip.l4)
}

/// Like [`ipv4_header_ok`], for the header from `at` to `l4`.
#[inline(always)]
pub fn ipv4_ok_between(w: &Window<'_>, at: u16, l4: u16) -> bool {
    let start = usize::from(at);
    // Nearly all headers have no options: one load.
    if l4 == at + 20 {
        return match w.load::<[u32; 5]>(start) {
            Ok(h) => fold(sum_words(&h)) == 0xffff,
            Err(Short) => false,
        };
    }
    matches!(w.sum(start, usize::from(l4 - at)), Ok(sum) if fold(sum) == 0xffff)
}

/// Returns the sum of the five words of a header of 20 bytes.
#[inline(always)]
pub(crate) const fn sum_words(h: &[u32; 5]) -> u64 {
    h[0] as u64 + h[1] as u64 + h[2] as u64 + h[3] as u64 + h[4] as u64
}

/// Returns the words of an IPv4 header without options, including its checksum. `len` is the total
/// length in bytes, and `second` the word of identification, flags and fragment offset in host
/// order.
#[inline(always)]
pub(crate) fn ipv4_words(
    tos: u8,
    len: u32,
    second: u32,
    (ttl, proto): (u8, u8),
    src: &Addr,
    dst: &Addr,
) -> [u32; 5] {
    let mut h = [
        (0x4500_0000 | u32::from(tos) << 16 | len).to_be(),
        second.to_be(),
        u32::from_ne_bytes([ttl, proto, 0, 0]),
        src.words[3],
        dst.words[3],
    ];
    let [c0, c1] = (!fold(sum_words(&h))).to_ne_bytes();
    h[2] = u32::from_ne_bytes([ttl, proto, c0, c1]);
    h
}

/// Computes the checksum of the IPv4 header of `len` bytes at `at`; the checksum field counts as 0.
pub fn ipv4_header(w: &Window<'_>, at: usize, len: usize) -> Result<u16, Short> {
    let field: u16 = w.load(at + 10)?;
    Ok(!fold(w.sum(at, len)? + u64::from(!field)))
}

/// Returns the offset of the upper-layer checksum field, or `None` if the packet has no such field
/// or its upper layer is not parsed.
#[inline(always)]
pub fn l4_field(ip: &Ip) -> Option<u16> {
    match ip.kind {
        L4::Tcp { .. } => Some(ip.l4 + 16),
        L4::Udp => Some(ip.l4 + 6),
        L4::IcmpEcho { .. } | L4::IcmpError => Some(ip.l4 + 2),
        L4::Other if ip.proto == ipv6::ICMPV6 && ip.v6 => Some(ip.l4 + 2),
        L4::Other | L4::None => None,
    }
}

/// Returns true if the upper-layer checksum covers the pseudo-header: for all packets over IPv6,
/// and for TCP and UDP over IPv4. Meaningful only if [`l4_field`] returns an offset.
#[inline(always)]
pub fn covers_addresses(ip: &Ip) -> bool {
    ip.v6 || matches!(ip.kind, L4::Tcp { .. } | L4::Udp)
}

/// Computes the upper-layer checksum of a whole packet; the checksum field counts as 0. Returns
/// [`Short`] also if the payload continues in further segments or the packet has no such checksum.
pub fn l4_full(w: &Window<'_>, ip: &Ip) -> Result<u16, Short> {
    let field = l4_field(ip).ok_or(Short)?;
    let len = usize::from(ip.end - ip.l4);
    let mut sum = w.sum(usize::from(ip.l4), len)?;
    sum += u64::from(!w.load::<u16>(usize::from(field))?);
    if covers_addresses(ip) {
        sum += pseudo(&ip.src, &ip.dst, ip.v6, ip.proto, len as u32);
    }
    let sum = !fold(sum);
    Ok(if ip.proto == UDP { udp_checksum(sum) } else { sum })
}

/// Returns the sum of a whole IP packet, derived from its own checksums instead of its payload
/// (Linux's local checksum offload): a correct IPv4 header sums to zero, a correct ICMPv4 message
/// as well, and another correct upper layer to the complement of its pseudo-header. Returns
/// [`Short`] if neither the derivation nor a sum over the payload is possible.
///
/// If the inner checksum is wrong, so is the outer one, and the first receiver that verifies one of
/// them drops the packet.
pub fn of_packet(w: &Window<'_>, ip: &Ip) -> Result<u64, Short> {
    let (at, l4, end) = (usize::from(ip.at), usize::from(ip.l4), usize::from(ip.end));
    let derives = ip.fragment == Fragment::Whole
        && match ip.kind {
            L4::Tcp { .. } | L4::IcmpEcho { .. } | L4::IcmpError => true,
            L4::Udp => w.load::<u16>(l4 + 6)? != 0 && w.be16(l4 + 4)? == ip.end - ip.l4,
            L4::Other | L4::None => false,
        };
    if !derives {
        return w.sum(at, end - at);
    }
    let header = w.sum(at, l4 - at)?;
    if !covers_addresses(ip) {
        return Ok(header);
    }
    let upper = pseudo(&ip.src, &ip.dst, ip.v6, ip.proto, (end - l4) as u32);
    Ok(header + u64::from(!fold(upper)))
}

/// Corrects the checksums of the packet in `bytes`, if the parser accepts it, and checks that the
/// full and the derived sum then agree.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let mut w = Window::new(bytes);
    for ethertype in [crate::ethernet::IPV4, crate::ethernet::IPV6] {
        let Ok(ip) = Ip::parse(&w, 0, ethertype) else { continue };
        if !ip.v6 {
            let Ok(sum) = ipv4_header(&w, 0, usize::from(ip.l4)) else { continue };
            assert!(w.store(10, sum).is_ok());
            assert!(ipv4_header_ok(&w, &ip));
        }
        if ip.fragment != Fragment::Whole {
            continue;
        }
        let (Some(field), Ok(sum)) = (l4_field(&ip), l4_full(&w, &ip)) else { continue };
        assert!(w.store(usize::from(field), sum).is_ok());
        assert_eq!(l4_full(&w, &ip), Ok(sum));
        let total = w.sum(0, usize::from(ip.end));
        let same = |a: u64, b: u64| fold(a) % 0xffff == fold(b) % 0xffff;
        assert!(matches!((of_packet(&w, &ip), total), (Ok(a), Ok(b)) if same(a, b)));
    }
}

#[cfg(test)]
mod tests;
