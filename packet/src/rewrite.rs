//! In-place changes of a packet: addresses and ports, TTL, DSCP and ECN, MSS.
//!
//! Checksums are updated (RFC 1624), never recomputed, so that a wrong checksum stays wrong and the
//! receiver detects the damage.

use crate::addr::Addr;
use crate::checksum::{
    change_addr, change16, change32, icmpv4_echo_checksum, udp_checksum, update,
};
use crate::ip::{ICMPV6, Ip, L4};
use crate::tunnel::ecn_decap;
use crate::window::{Short, Window, mask_header};

/// The TCP flag FIN.
pub const FIN: u8 = 1;
/// The TCP flag SYN.
pub const SYN: u8 = 2;
/// The TCP flag RST.
pub const RST: u8 = 4;
/// The TCP flag ACK.
pub const ACK: u8 = 16;

/// The new addresses and ports of a packet: in the same family for [`nat`], in the other one for
/// [`translate`](crate::translate). Ports are in host order; the identifier of an ICMP echo request
/// is the source port, that of a reply the destination port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewrite {
    /// New source address.
    pub src: Addr,
    /// New source port.
    pub sport: u16,
    /// New destination address.
    pub dst: Addr,
    /// New destination port.
    pub dport: u16,
}

impl Rewrite {
    /// Returns unspecified addresses and port 0, to be filled in.
    #[inline(always)]
    pub const fn none() -> Rewrite {
        Rewrite { src: Addr::UNSPECIFIED, sport: 0, dst: Addr::UNSPECIFIED, dport: 0 }
    }
}

/// The reason for which the outer header's congestion mark cannot be transferred to the inner
/// header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcnError {
    /// The header is not in the window.
    Short,
    /// The packet is marked but its endpoints do not support ECN: it must be dropped, so that they
    /// notice the congestion (RFC 6040 §4.2).
    NotEcnCapable,
}

impl From<Short> for EcnError {
    #[inline(always)]
    fn from(_: Short) -> EcnError {
        EcnError::Short
    }
}

/// Replaces addresses and ports, and updates the checksums. In later fragments and in protocols
/// other than TCP, UDP and ICMP, only the addresses are replaced. The upper-layer checksum of a
/// fragmented datagram, which is in its first fragment, thereby stays correct.
#[inline(always)]
pub fn nat(w: &mut Window<'_>, ip: &Ip, to: &Rewrite) -> Result<(), Short> {
    rewrite_packet(w, ip, to).map(|_| ())
}

/// Replaces the addresses of an ICMP `error` by those of `to`, and addresses and ports of the
/// packet that it quotes by those of `quote`. Updates the error's checksum, and the quoted packet's
/// checksums that the quote contains.
pub fn nat_quoted(
    w: &mut Window<'_>,
    error: &Ip,
    quoted: &Ip,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Short> {
    let change = rewrite_packet(w, quoted, quote)?;
    rewrite_packet(w, error, to)?;
    let field = usize::from(error.l4) + 2;
    let sum: u16 = w.load(field)?;
    w.store(field, update(sum, change))
}

/// Implements [`nat`]; returns the change to the sum of the packet's bytes.
#[inline(always)]
fn rewrite_packet(w: &mut Window<'_>, ip: &Ip, to: &Rewrite) -> Result<u64, Short> {
    let at = usize::from(ip.at);
    let ends = change_addr(&ip.src, &to.src, ip.v6) + change_addr(&ip.dst, &to.dst, ip.v6);
    let mut change = ends;
    if ip.v6 {
        w.store(at + 8, to.src)?;
        w.store(at + 24, to.dst)?;
    } else {
        w.store(at + 12, [to.src.words[3], to.dst.words[3]])?;
        let old: u16 = w.load(at + 10)?;
        let new = update(old, ends);
        w.store(at + 10, new)?;
        change += change16(old, new);
    }
    let l4 = usize::from(ip.l4);
    match ip.kind {
        L4::Tcp { .. } => {
            let ports = set_ports(w, ip, to)?;
            // A quote may end before the checksum.
            if ip.l4 + 18 <= ip.end {
                let old: u16 = w.load(l4 + 16)?;
                let new = update(old, ends + ports);
                w.store(l4 + 16, new)?;
                change += change16(old, new);
            }
            change += ports;
        }
        L4::Udp => {
            let ports = set_ports(w, ip, to)?;
            let old: u16 = w.load(l4 + 6)?;
            if old != 0 {
                let new = udp_checksum(update(old, ends + ports));
                w.store(l4 + 6, new)?;
                change += change16(old, new);
            }
            change += ports;
        }
        L4::IcmpEcho { request } => {
            let new = if request { to.sport } else { to.dport };
            let id = change16(ip.sport.to_be(), new.to_be());
            w.set_be16(l4 + 4, new)?;
            change += id + icmp_sum(w, ip, id, ends)?;
        }
        L4::IcmpError => change += icmp_sum(w, ip, 0, ends)?,
        L4::Other if ip.v6 && ip.proto == ICMPV6 => change += icmp_sum(w, ip, 0, ends)?,
        L4::Other | L4::None => {}
    }
    Ok(change)
}

/// Writes the ports of TCP or UDP; returns the change to the sum.
#[inline(always)]
pub(crate) fn set_ports(w: &mut Window<'_>, ip: &Ip, to: &Rewrite) -> Result<u64, Short> {
    let old = (u32::from(ip.sport) << 16 | u32::from(ip.dport)).to_be();
    let new = (u32::from(to.sport) << 16 | u32::from(to.dport)).to_be();
    w.store(usize::from(ip.l4), new)?;
    Ok(change32(old, new))
}

/// Updates the checksum of an ICMP message after the changes `body` to the message and `ends` to
/// its addresses, which only the checksum of ICMPv6 covers. Returns the change to the sum.
#[inline(always)]
fn icmp_sum(w: &mut Window<'_>, ip: &Ip, body: u64, ends: u64) -> Result<u64, Short> {
    let field = usize::from(ip.l4) + 2;
    let old: u16 = w.load(field)?;
    let new = match (ip.v6, ip.kind) {
        (true, _) => update(old, body + ends),
        (false, L4::IcmpEcho { .. }) => icmpv4_echo_checksum(update(old, body)),
        (false, _) => update(old, body),
    };
    w.store(field, new)?;
    Ok(change16(old, new))
}

/// Decrements the TTL. The caller has checked that `ip.ttl` is above 1; a TTL of 0 stays 0.
#[inline(always)]
pub fn decrement_ttl(w: &mut Window<'_>, ip: &Ip) -> Result<(), Short> {
    let at = usize::from(ip.at);
    if ip.v6 {
        let hops = w.byte(at + 7)?;
        return w.set_byte(at + 7, hops.saturating_sub(1));
    }
    // TTL and protocol form one word of the header, the checksum is the next.
    let [ttl, proto, c0, c1] = w.load::<u32>(at + 8)?.to_ne_bytes();
    let old = u16::from_ne_bytes([ttl, proto]);
    let new = u16::from_ne_bytes([ttl.saturating_sub(1), proto]);
    let [c0, c1] = update(u16::from_ne_bytes([c0, c1]), change16(old, new)).to_ne_bytes();
    w.store(at + 8, u32::from_ne_bytes([ttl.saturating_sub(1), proto, c0, c1]))
}

/// Sets the DSCP and ECN byte.
#[inline(always)]
pub fn set_tos(w: &mut Window<'_>, ip: &Ip, tos: u8) -> Result<(), Short> {
    let at = usize::from(ip.at);
    let old: u16 = w.load(at)?;
    if ip.v6 {
        let word = u16::from_be(old) & 0xf00f | u16::from(tos) << 4;
        return w.set_be16(at, word);
    }
    let new = (u16::from_be(old) & 0xff00 | u16::from(tos)).to_be();
    w.store(at, new)?;
    let sum: u16 = w.load(at + 10)?;
    w.store(at + 10, update(sum, change16(old, new)))
}

/// Transfers the outer header's congestion mark to the inner header at decapsulation (RFC 6040
/// §4.2). Returns the resulting inner DSCP and ECN.
#[inline(always)]
pub fn propagate_ecn(w: &mut Window<'_>, outer: &Ip, inner: &Ip) -> Result<u8, EcnError> {
    match ecn_decap(outer.tos, inner.tos) {
        Some(tos) if tos == inner.tos => Ok(tos),
        Some(tos) => {
            set_tos(w, inner, tos)?;
            Ok(tos)
        }
        None => Err(EcnError::NotEcnCapable),
    }
}

/// Lowers the MSS option of a SYN to `max` bytes if it is greater (RFC 9293 §3.7.1). Returns true
/// if the packet was changed.
#[inline(always)]
pub fn clamp_mss(w: &mut Window<'_>, ip: &Ip, max: u16) -> bool {
    match ip.kind {
        L4::Tcp { flags } if flags & SYN != 0 => lower_mss(w, ip, max).unwrap_or(false),
        _ => false,
    }
}

/// The TCP option kind of the maximum segment size (RFC 9293 §3.2).
const MSS: u8 = 2;
/// The TCP option kind of a padding byte.
const NO_OPERATION: u8 = 1;

fn lower_mss(w: &mut Window<'_>, ip: &Ip, max: u16) -> Result<bool, Short> {
    let l4 = usize::from(ip.l4);
    let header = usize::from(w.byte(l4 + 12)? >> 4) * 4;
    if l4 + header > usize::from(ip.end) {
        return Err(Short);
    }
    let mut off = 20;
    // Each option has at least one byte: 40 iterations reach the end of any header.
    for _ in 0..40 {
        if off + 4 > header {
            break;
        }
        let (kind, len) = (w.byte(l4 + off)?, w.byte(l4 + off + 1)?);
        off += match (kind, len) {
            (0, _) => break,
            (NO_OPERATION, _) => 1,
            (MSS, 4) => return set_mss(w, l4, off + 2, max),
            (_, 0 | 1) => break,
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

/// Sets the MSS value at offset `off` of the TCP header if it exceeds `max`. Returns true if it
/// did.
fn set_mss(w: &mut Window<'_>, l4: usize, off: usize, max: u16) -> Result<bool, Short> {
    let old: u16 = w.load(l4 + off)?;
    if u16::from_be(old) <= max {
        return Ok(false);
    }
    let new = max.to_be();
    w.store(l4 + off, new)?;
    // Options are unaligned: at an odd offset, the checksum counts the two bytes in swapped
    // positions.
    let change = if off.is_multiple_of(2) {
        change16(old, new)
    } else {
        change16(old.swap_bytes(), new.swap_bytes())
    };
    let sum: u16 = w.load(l4 + 16)?;
    w.store(l4 + 16, update(sum, change))?;
    Ok(true)
}

/// Checks for any accepted packet that NAT yields the new addresses and ports, that the reverse NAT
/// restores the parsed headers, and that no rewrite panics.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    for ethertype in [crate::ethernet::IPV4, crate::ethernet::IPV6] {
        let mut w = Window::new(bytes);
        let Ok(ip) = Ip::parse(&w, 0, ethertype) else { continue };
        let (src, dst) = if ip.v6 {
            (Addr { words: [1, 2, 3, 4] }, Addr { words: [5, 6, 7, 8] })
        } else {
            (Addr::v4(77), Addr::v4(78))
        };
        let forward = Rewrite { src, sport: 5, dst, dport: 5 };
        let back = Rewrite { src: ip.src, sport: ip.sport, dst: ip.dst, dport: ip.dport };
        assert!(nat(&mut w, &ip, &forward).is_ok());
        let moved = Ip { src, dst, sport: 5, dport: 5, ..ip };
        let parsed = Ip::parse(&w, 0, ethertype);
        let has_ports = matches!(ip.kind, L4::Tcp { .. } | L4::Udp | L4::IcmpEcho { .. });
        assert!(!has_ports || parsed == Ok(moved));
        assert!(nat(&mut w, &moved, &back).is_ok());
        assert_eq!(Ip::parse(&w, 0, ethertype), Ok(ip));
        if let Ok(quoted) = crate::icmp::quoted(&w, &ip) {
            assert!(nat_quoted(&mut w, &ip, &quoted, &forward, &forward).is_ok());
        }
        let _ = decrement_ttl(&mut w, &ip);
        let _ = set_tos(&mut w, &ip, 0xb8);
        clamp_mss(&mut w, &ip, 536);
    }
}

#[cfg(test)]
mod tests;
