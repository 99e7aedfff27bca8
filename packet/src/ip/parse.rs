//! Parses an IP packet of either family.
//!
//! Parsing checks what later stages rely on: the IP header and extension headers of an accepted
//! packet lie in the window, its end lies in the frame, and the minimum TCP, UDP or ICMP header
//! lies within the packet (but possibly in a later segment of the frame).

use super::{Fragment, ICMP, ICMPV6, Ip, L4, TCP, UDP};
use crate::ethernet;
use crate::parsed::Malformed;
use crate::window::Window;
use crate::{ipv4, ipv6};

/// The minimum length of a TCP header in bytes, required except in a quote.
const MIN_TCP_HEADER: u16 = 20;
/// The length of a UDP or ICMP header in bytes, and the part of a TCP header that a quote contains
/// at least (RFC 792).
const MIN_HEADER: u16 = 8;

impl Ip {
    /// Parses the packet at `at`, of the family given by `ethertype`.
    #[inline(always)]
    pub fn parse(w: &Window<'_>, at: u16, ethertype: u16) -> Result<Ip, Malformed> {
        let mut ip = Ip::default();
        ip.read(w, at, ethertype)?;
        Ok(ip)
    }

    /// Like [`Ip::parse`], but writes the result to `self`; after an error its contents are
    /// unspecified.
    #[inline(always)]
    pub fn read(&mut self, w: &Window<'_>, at: u16, ethertype: u16) -> Result<(), Malformed> {
        let len = header(w, at, ethertype, self)?;
        self.read_upper(w, u32::from(at) + len)
    }

    /// Like [`Ip::read`], but accepts only a whole packet whose upper-layer header directly follows
    /// an IP header of 20 (IPv4) or 40 (IPv6) bytes. All offsets are then constants if `at` is a
    /// constant. `ethertype` is that of IPv4 or IPv6. Returns false for any other or malformed
    /// packet.
    #[inline(always)]
    pub fn read_usual(&mut self, w: &Window<'_>, at: u16, ethertype: u16) -> bool {
        let len = match ethertype {
            ethernet::IPV4 => ipv4::usual_header(w, at, self),
            _ => ipv6::usual_header(w, at, self),
        };
        match len {
            Ok(Some(len)) => self.read_upper(w, u32::from(at) + len).is_ok(),
            _ => false,
        }
    }

    /// Reads the upper-layer header of the packet, which ends at `end` according to its IP length.
    #[inline(always)]
    fn read_upper(&mut self, w: &Window<'_>, end: u32) -> Result<(), Malformed> {
        // An `end` before `l4` would lie inside the IP header. A frame has at most 65,535 bytes, so
        // `end` fits in 16 bits.
        if end > w.frame_len() as u32 || end < u32::from(self.l4) {
            return Err(Malformed::IpLength);
        }
        self.end = end as u16;
        upper_header(w, self, MIN_TCP_HEADER)
    }

    /// Parses the quoted packet at `at`, of the same family as the ICMP error. `limit` is the end
    /// of the quote, which may be shorter than the packet's own length.
    #[inline(always)]
    pub(crate) fn parse_quote(
        w: &Window<'_>,
        at: u16,
        v6: bool,
        limit: u16,
    ) -> Result<Ip, Malformed> {
        let ethertype = if v6 { ethernet::IPV6 } else { ethernet::IPV4 };
        let mut ip = Ip::default();
        let end = u32::from(at) + header(w, at, ethertype, &mut ip)?;
        ip.end = if end < u32::from(limit) { end as u16 } else { limit };
        if ip.l4 > ip.end {
            return Err(Malformed::Quote);
        }
        upper_header(w, &mut ip, MIN_HEADER)?;
        Ok(ip)
    }
}

/// Reads the IP header of either family: all fields of `ip` but `end` and those of the upper-layer
/// header. Returns the packet's length according to the header.
#[inline(always)]
fn header(w: &Window<'_>, at: u16, ethertype: u16, ip: &mut Ip) -> Result<u32, Malformed> {
    match ethertype {
        ethernet::IPV4 => ipv4::header(w, at, ip),
        ethernet::IPV6 => ipv6::header(w, at, ip),
        _ => Err(Malformed::NotIp),
    }
}

/// Reads the upper-layer header: ports, flags and kind. A TCP header must have at least `min_tcp`
/// bytes.
#[inline(always)]
fn upper_header(w: &Window<'_>, ip: &mut Ip, min_tcp: u16) -> Result<(), Malformed> {
    let at = usize::from(ip.l4);
    let available = ip.end - ip.l4;
    if ip.fragment == Fragment::Later {
        ip.kind = L4::None;
        clear_ports(ip);
        return Ok(());
    }
    match ip.proto {
        TCP => {
            if available < min_tcp {
                return Err(Malformed::Transport);
            }
            let flags = if available < 14 { 0 } else { w.byte(at + 13)? };
            ip.kind = L4::Tcp { flags };
            read_ports(w, ip, at)
        }
        UDP => {
            if available < MIN_HEADER {
                return Err(Malformed::Transport);
            }
            ip.kind = L4::Udp;
            read_ports(w, ip, at)
        }
        ICMP if !ip.v6 => read_icmp(w, ip, available),
        ICMPV6 if ip.v6 => read_icmp(w, ip, available),
        _ => {
            ip.kind = L4::Other;
            clear_ports(ip);
            Ok(())
        }
    }
}

#[inline(always)]
fn clear_ports(ip: &mut Ip) {
    (ip.sport, ip.dport) = (0, 0);
}

#[inline(always)]
fn read_ports(w: &Window<'_>, ip: &mut Ip, at: usize) -> Result<(), Malformed> {
    let both = w.be32(at)?;
    ip.sport = (both >> 16) as u16;
    ip.dport = both as u16;
    Ok(())
}

#[inline(always)]
fn read_icmp(w: &Window<'_>, ip: &mut Ip, available: u16) -> Result<(), Malformed> {
    if available < MIN_HEADER {
        return Err(Malformed::Transport);
    }
    clear_ports(ip);
    let at = usize::from(ip.l4);
    let head: [u16; 4] = unpack(w.load::<u64>(at)?);
    let kind = head[0].to_ne_bytes()[0];
    let (request, reply) = if ip.v6 { (128, 129) } else { (8, 0) };
    if kind == request || kind == reply {
        ip.sport = u16::from_be(head[2]);
        ip.dport = ip.sport;
        ip.kind = L4::IcmpEcho { request: kind == request };
        return Ok(());
    }
    let error = if ip.v6 { matches!(kind, 1..=4) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) };
    ip.kind = if error { L4::IcmpError } else { L4::Other };
    Ok(())
}

/// Splits eight bytes into four 16-bit words, each in wire order.
#[inline(always)]
const fn unpack(v: u64) -> [u16; 4] {
    let b = v.to_ne_bytes();
    [
        u16::from_ne_bytes([b[0], b[1]]),
        u16::from_ne_bytes([b[2], b[3]]),
        u16::from_ne_bytes([b[4], b[5]]),
        u16::from_ne_bytes([b[6], b[7]]),
    ]
}
