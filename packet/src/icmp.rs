//! ICMP and ICMPv6: quoted packets, echo replies, and error messages from Weir.
//!
//! An error message is built around the packet that it is about: its first bytes become the quote,
//! and new headers are written in front of them. The packet is not copied.

use crate::addr::Addr;
use crate::checksum::{change16, fold, icmpv4_echo_checksum, ipv4_words, pseudo, update};
use crate::ip::{Fragment, ICMP, ICMPV6, IPV4_IN_IP, IPV6_IN_IP, Ip, L4, UDP};
use crate::ipv6;
use crate::parsed::Malformed;
use crate::tunnel::{is_source_port, swap_addresses};
use crate::window::{Short, Window};

/// The TTL of packets that Weir originates.
pub(crate) const LOCAL_TTL: u8 = 64;
/// DSCP/ECN byte of error messages: precedence "internetwork control" (RFC 1812 §4.3.2.5).
const ERROR_TOS: u8 = 0xc0;

/// Parses the packet that an ICMP error quotes. An accepted quote contains the ports of TCP and
/// UDP; the rest may be truncated.
#[inline(always)]
pub fn quoted(w: &Window<'_>, error: &Ip) -> Result<Ip, Malformed> {
    if error.kind != L4::IcmpError {
        return Err(Malformed::Quote);
    }
    match Ip::parse_quote(w, error.l4 + 8, error.v6, error.end) {
        Ok(quote) => Ok(quote),
        Err(Malformed::Short) => Err(Malformed::Short),
        Err(_) => Err(Malformed::Quote),
    }
}

/// Returns the length in bytes that a quoted packet's header states; the quote may be shorter.
#[inline(always)]
pub(crate) fn stated_len(w: &Window<'_>, quoted: &Ip) -> Result<u16, Short> {
    let at = usize::from(quoted.at);
    if quoted.v6 { w.be16(at + 4).map(|len| len.saturating_add(40)) } else { w.be16(at + 2) }
}

/// Returns the MTU in bytes that a too-big error reports (RFC 1191 §4, RFC 4443 §3.2); 0 for other
/// errors and for routers that predate RFC 1191.
pub fn reported_mtu(w: &Window<'_>, error: &Ip) -> Result<u16, Short> {
    let l4 = usize::from(error.l4);
    let [kind, code] = w.load::<u16>(l4)?.to_ne_bytes();
    let rest = w.be32(l4 + 4)?;
    Ok(match (kind, code, error.v6) {
        (3, 4, false) => rest as u16,
        (2, _, true) if rest > 0xffff => u16::MAX,
        (2, _, true) => rest as u16,
        _ => 0,
    })
}

/// Returns the path MTU in bytes that a too-big error about a tunnel packet of Weir (`quoted`)
/// reports. Returns 0 if the error reports none or cannot be genuine: Weir's tunnels do not use the
/// quoted protocol or UDP source port, or the quoted packet was no longer than the reported MTU
/// (RFC 5927 §7.1).
///
/// The result is at least 576 bytes for IPv4 (RFC 791 §3.1) and 1,280 bytes for IPv6 (RFC 8200 §5),
/// so that a forged error does little harm.
#[inline(always)]
pub fn path_mtu(w: &Window<'_>, error: &Ip, quoted: &Ip) -> Result<u16, Short> {
    let reported = reported_mtu(w, error)?;
    let of_a_tunnel = match quoted.proto {
        UDP => is_source_port(quoted.sport),
        proto => proto == IPV4_IN_IP || proto == IPV6_IN_IP,
    };
    if reported == 0 || !of_a_tunnel || stated_len(w, quoted)? <= reported {
        return Ok(0);
    }
    let min = if quoted.v6 { 1280 } else { 576 };
    Ok(if reported < min { min } else { reported })
}

/// Turns an echo request into its reply, in place.
#[inline(always)]
pub fn echo_reply(w: &mut Window<'_>, ip: &Ip) -> Result<(), Short> {
    let (at, l4) = (usize::from(ip.at), usize::from(ip.l4));
    swap_addresses(w, ip)?;
    if ip.v6 {
        w.set_byte(at + 7, LOCAL_TTL)?;
    } else {
        let [ttl, proto, c0, c1] = w.load::<u32>(at + 8)?.to_ne_bytes();
        let (old, new) = ([ttl, proto], [LOCAL_TTL, proto]);
        let change = change16(u16::from_ne_bytes(old), u16::from_ne_bytes(new));
        let [c0, c1] = update(u16::from_ne_bytes([c0, c1]), change).to_ne_bytes();
        w.store(at + 8, u32::from_ne_bytes([LOCAL_TTL, proto, c0, c1]))?;
    }
    let reply = if ip.v6 { 129 } else { 0 };
    let [old, sum]: [u16; 2] = w.load(l4)?;
    let new = u16::from_ne_bytes([reply, old.to_ne_bytes()[1]]);
    let sum = update(sum, change16(old, new));
    w.store(l4, [new, if ip.v6 { sum } else { icmpv4_echo_checksum(sum) }])
}

/// The condition that an error message reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// The packet does not fit: "fragmentation needed" (RFC 1191) or "packet too big". The value is
    /// the maximum size in bytes of an IP packet that would pass.
    TooBig(u16),
    /// The packet's TTL expired at this hop.
    TimeExceeded,
}

impl IcmpError {
    /// Returns type, code, and the four bytes after the checksum as a number.
    const fn parts(self, v6: bool) -> (u8, u8, u32) {
        match (self, v6) {
            (IcmpError::TooBig(mtu), false) => (3, 4, mtu as u32),
            (IcmpError::TooBig(mtu), true) => (2, 0, mtu as u32),
            (IcmpError::TimeExceeded, false) => (11, 0, 0),
            (IcmpError::TimeExceeded, true) => (3, 0, 0),
        }
    }
}

/// Returns true if an error message may be sent about this packet (RFC 1122 §3.2.2, RFC 4443 §2.4
/// e): never about an ICMP error, a later fragment, a packet whose source is not a single host, or
/// one to a multicast or limited broadcast address. Of ICMPv6 messages, only echoes may be
/// answered: half of the unknown types are errors, and neighbor discovery never leaves its link.
pub fn may_answer(ip: &Ip) -> bool {
    if ip.kind == L4::IcmpError || ip.fragment == Fragment::Later {
        return false;
    }
    if ip.v6 && ip.proto == ICMPV6 && !matches!(ip.kind, L4::IcmpEcho { .. }) {
        return false;
    }
    is_host(&ip.src) && !is_multicast(&ip.dst) && ip.dst != Addr::v4(u32::MAX)
}

/// Returns true for an address that a single host can have: not unspecified, loopback, multicast or
/// broadcast, and for IPv4 not reserved either.
fn is_host(addr: &Addr) -> bool {
    if !addr.is_v4() {
        let loopback = Addr { words: [0, 0, 0, 1u32.to_be()] };
        return *addr != Addr::UNSPECIFIED && *addr != loopback && !is_multicast(addr);
    }
    // 0/8 is "this network", 127/8 loopback; 224/3 is multicast, reserved and broadcast.
    !matches!(addr.v4_wire().to_ne_bytes()[0], 0 | 127 | 224..)
}

fn is_multicast(addr: &Addr) -> bool {
    if addr.is_v4() {
        matches!(addr.v4_wire().to_ne_bytes()[0], 224..=239)
    } else {
        addr.words[0].to_ne_bytes()[0] == 0xff
    }
}

/// Returns the number of bytes that [`write_error`] writes in front of the quote: IP and ICMP
/// header.
#[inline(always)]
pub const fn error_header(about: &Ip) -> usize {
    if about.v6 { 48 } else { 28 }
}

/// Returns how many bytes of the packet `about` an error quotes: as many as fit in an error of 576
/// bytes (RFC 1812 §4.3.2.3) or, for IPv6, 1,280 bytes (RFC 4443 §2.4 c).
#[inline(always)]
pub const fn quote_len(about: &Ip) -> usize {
    let max = if about.v6 { 1280 } else { 576 } - error_header(about);
    let len = about.len() as usize;
    if len < max { len } else { max }
}

/// Writes the IP and ICMP headers of an error at `at`. The quote, the first bytes of the packet
/// `about`, lies [`error_header`] bytes further and extends to the end of the window. The source of
/// the error is the packet's destination, on whose behalf Weir answers.
pub fn write_error(
    w: &mut Window<'_>,
    at: usize,
    about: &Ip,
    what: IcmpError,
) -> Result<(), Short> {
    let quote = at + error_header(about);
    let len = w.len().checked_sub(quote).ok_or(Short)?;
    let sum = w.sum(quote, len)?;
    write_error_around(w, at, about, what, sum)
}

/// Like [`write_error`], with the sum of the quoted bytes for the checksum given as `quote`.
#[inline(always)]
pub fn write_error_around(
    w: &mut Window<'_>,
    at: usize,
    about: &Ip,
    what: IcmpError,
    quote: u64,
) -> Result<(), Short> {
    let (v6, from, to) = (about.v6, &about.dst, &about.src);
    let l4 = at + error_header(about) - 8;
    let len = w.len().checked_sub(l4).ok_or(Short)?;
    if len > 0xffff - 20 {
        return Err(Short);
    }
    let (kind, code, rest) = what.parts(v6);
    let head = [u32::from_ne_bytes([kind, code, 0, 0]), rest.to_be()];
    w.store(l4, head)?;
    let mut sum = quote + u64::from(head[0]) + u64::from(head[1]);
    if v6 {
        sum += pseudo(from, to, true, ICMPV6, len as u32);
    }
    w.store(l4 + 2, !fold(sum))?;
    write_header(w, at, about, ERROR_TOS, if v6 { ICMPV6 } else { ICMP }, len as u32)
}

/// Writes at `at` the IP header of an answer to the packet `about`; `len` bytes of `proto` follow.
#[inline(always)]
pub(crate) fn write_header(
    w: &mut Window<'_>,
    at: usize,
    about: &Ip,
    tos: u8,
    proto: u8,
    len: u32,
) -> Result<(), Short> {
    let (from, to) = (&about.dst, &about.src);
    if about.v6 {
        let second = len << 16 | u32::from(proto) << 8 | u32::from(LOCAL_TTL);
        return w.store(at, ipv6::words(0x6000_0000 | u32::from(tos) << 20, second, from, to));
    }
    // Never fragmented ("don't fragment" is set): the identification is not significant (RFC 6864).
    w.store(at, ipv4_words(tos, len + 20, 0x4000, (LOCAL_TTL, proto), from, to))
}

/// Checks for any accepted packet that an error about it is a valid packet that quotes it, and that
/// an echo request can be answered.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    use crate::checksum::{ipv4_header_ok, l4_full};
    for ethertype in [crate::ethernet::IPV4, crate::ethernet::IPV6] {
        let w = Window::new(bytes);
        let Ok(about) = Ip::parse(&w, 0, ethertype) else { continue };
        let _ = quoted(&w, &about);
        if may_answer(&about) {
            let mut frame = std::vec![0; error_header(&about)];
            frame.extend_from_slice(&bytes[..quote_len(&about)]);
            let mut w = Window::new(&mut frame);
            assert!(write_error(&mut w, 0, &about, IcmpError::TooBig(1400)).is_ok());
            let error = Ip::parse(&w, 0, ethertype).expect("an ICMP error is an IP packet");
            assert!(error.v6 || ipv4_header_ok(&w, &error));
            assert_eq!(l4_full(&w, &error), w.load(usize::from(error.l4) + 2).map_err(|_| Short));
            let quote = quoted(&w, &error).expect("an ICMP error has a quote");
            assert_eq!(
                (quote.src, quote.sport, quote.proto),
                (about.src, about.sport, about.proto)
            );
        }
        if matches!(about.kind, L4::IcmpEcho { request: true }) {
            assert!(echo_reply(&mut Window::new(bytes), &about).is_ok());
        }
    }
}

#[cfg(test)]
mod tests;
