//! `Ip`: one IP packet of either family, with all that Weir ever asks of its headers.
//!
//! Parsing checks everything that later stages rely on: a packet that came through has its headers
//! in the window, its end in the frame, and its upper header before its end.

use crate::addr::Addr;
use crate::ethernet;
use crate::parsed::Malformed;
use crate::window::Window;
use crate::{ipv4, ipv6};

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMP for IPv4.
pub const ICMP: u8 = 1;
/// Protocol number of ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// Protocol number of IPv4 in IP.
pub const IPV4_IN_IP: u8 = 4;
/// Protocol number of IPv6 in IP.
pub const IPV6_IN_IP: u8 = 41;

/// Which part of a datagram the packet is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Fragment {
    /// All of it. An IPv6 "atomic" fragment (RFC 6946) counts as whole.
    #[default]
    Whole,
    /// The first of several fragments: the only one with ports.
    First,
    /// A later one: no upper header.
    Later,
}

/// What the upper header is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum L4 {
    /// TCP, with the flag bits FIN to CWR; none in a quote that is cut before them.
    Tcp {
        /// Byte 13 of the header.
        flags: u8,
    },
    /// UDP.
    Udp,
    /// An ICMP echo; `sport` and `dport` both are its identifier.
    IcmpEcho {
        /// False for the reply.
        request: bool,
    },
    /// An ICMP error that quotes a packet: v4 types 3, 4, 5, 11, 12; v6 types 1 to 4.
    IcmpError,
    /// Anything else, taken as it is.
    Other,
    /// None to be seen: a later fragment.
    #[default]
    None,
}

impl L4 {
    /// What it says to the state of its flow: TCP's flags, of another protocol none. An error and a
    /// later fragment say nothing.
    #[inline(always)]
    pub const fn flow_flags(&self) -> Option<u8> {
        match self {
            L4::Tcp { flags } => Some(*flags),
            L4::Udp | L4::IcmpEcho { .. } | L4::Other => Some(0),
            L4::IcmpError | L4::None => None,
        }
    }
}

/// What is known of an IP packet. Offsets count from the start of the window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ip {
    /// Offset of the IP header.
    pub at: u16,
    /// Offset of what follows the IP header and its options or extensions.
    pub l4: u16,
    /// Offset behind the packet's last byte, from the IP length; Ethernet padding may follow. For a
    /// quoted packet, at most the end of the quote.
    pub end: u16,
    /// Source port, host order; echo identifier; 0 for protocols without ports.
    pub sport: u16,
    /// Destination port, host order; echo identifier; 0 for protocols without ports.
    pub dport: u16,
    /// Upper protocol; for IPv6 the one behind the extension headers.
    pub proto: u8,
    /// IPv6.
    pub v6: bool,
    /// DSCP and ECN: type of service, traffic class.
    pub tos: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Which part of the datagram.
    pub fragment: Fragment,
    /// The upper header.
    pub kind: L4,
    /// IPv4: "don't fragment". Always true for IPv6.
    pub df: bool,
    /// Identification that the datagram's fragments share; host order. IPv6 without a fragment
    /// header has 0.
    pub fragment_id: u32,
    /// Sender.
    pub src: Addr,
    /// Receiver.
    pub dst: Addr,
}

/// What an upper header must have at least: whole ones, and those in a quote (RFC 792).
const WHOLE_TCP: u16 = 20;
const EIGHT: u16 = 8;

impl Ip {
    /// The packet at `at`, of the family that `ethertype` says.
    #[inline(always)]
    pub fn parse(w: &Window<'_>, at: u16, ethertype: u16) -> Result<Ip, Malformed> {
        let mut ip = Ip::default();
        ip.read(w, at, ethertype)?;
        Ok(ip)
    }

    /// As [`Ip::parse`], written where it shall stand; after an error it says nothing of use.
    #[inline(always)]
    pub fn read(&mut self, w: &Window<'_>, at: u16, ethertype: u16) -> Result<(), Malformed> {
        let len = header(w, at, ethertype, self)?;
        self.read_on(w, u32::from(at) + len)
    }

    /// As [`Ip::read`], of a whole packet whose upper header follows the 20 or 40 bytes of the IP
    /// header at once, so that the places of both are constants where `at` is one. False for any
    /// other packet, whatever it is.
    #[inline(always)]
    pub fn read_usual(&mut self, w: &Window<'_>, at: u16, ethertype: u16) -> bool {
        let fixed = match ethertype {
            ethernet::IPV4 => ipv4::fixed(w, at, self),
            _ => ipv6::fixed(w, at, self),
        };
        match fixed {
            Ok(Some(len)) => self.read_on(w, u32::from(at) + len).is_ok(),
            _ => false,
        }
    }

    /// Reads on behind the IP header, of a packet that ends at `end` by its own account.
    #[inline(always)]
    fn read_on(&mut self, w: &Window<'_>, end: u32) -> Result<(), Malformed> {
        // Less would end inside the header; `l4` was seen in the window, so it fits in 16 bits.
        if end > w.frame_len() as u32 || end < u32::from(self.l4) {
            return Err(Malformed::IpLength);
        }
        self.end = end as u16;
        upper(w, self, WHOLE_TCP)
    }

    /// The packet quoted at `at`, of the error's own family; `limit` is the end of the quote, which
    /// may be short of the packet's own length.
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
        upper(w, &mut ip, EIGHT)?;
        Ok(ip)
    }

    /// Bytes of the packet, headers and all.
    #[inline(always)]
    pub const fn len(&self) -> u16 {
        self.end - self.at
    }

    /// Never: a parsed packet has a header.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.end == self.at
    }

    /// The Ethernet type of its family.
    #[inline(always)]
    pub const fn ethertype(&self) -> u16 {
        if self.v6 { ethernet::IPV6 } else { ethernet::IPV4 }
    }
}

/// Reads the header of either family, all fields but `end` and what the
/// upper header says; the packet's length by its own account.
#[inline(always)]
fn header(w: &Window<'_>, at: u16, ethertype: u16, ip: &mut Ip) -> Result<u32, Malformed> {
    match ethertype {
        ethernet::IPV4 => ipv4::header(w, at, ip),
        ethernet::IPV6 => ipv6::header(w, at, ip),
        _ => Err(Malformed::NotIp),
    }
}

/// Reads the upper header: ports, flags, kind. `tcp` is what must be there of a TCP header.
#[inline(always)]
fn upper(w: &Window<'_>, ip: &mut Ip, tcp: u16) -> Result<(), Malformed> {
    let at = usize::from(ip.l4);
    let room = ip.end - ip.l4;
    if ip.fragment == Fragment::Later {
        ip.kind = L4::None;
        without_ports(ip);
        return Ok(());
    }
    match ip.proto {
        TCP => {
            if room < tcp {
                return Err(Malformed::Transport);
            }
            let flags = if room < 14 { 0 } else { w.byte(at + 13)? };
            ip.kind = L4::Tcp { flags };
            ports(w, ip, at)
        }
        UDP => {
            if room < EIGHT {
                return Err(Malformed::Transport);
            }
            ip.kind = L4::Udp;
            ports(w, ip, at)
        }
        ICMP if !ip.v6 => icmp(w, ip, room),
        ICMPV6 if ip.v6 => icmp(w, ip, room),
        _ => {
            ip.kind = L4::Other;
            without_ports(ip);
            Ok(())
        }
    }
}

#[inline(always)]
fn without_ports(ip: &mut Ip) {
    (ip.sport, ip.dport) = (0, 0);
}

#[inline(always)]
fn ports(w: &Window<'_>, ip: &mut Ip, at: usize) -> Result<(), Malformed> {
    let both = w.be32(at)?;
    ip.sport = (both >> 16) as u16;
    ip.dport = both as u16;
    Ok(())
}

#[inline(always)]
fn icmp(w: &Window<'_>, ip: &mut Ip, room: u16) -> Result<(), Malformed> {
    if room < EIGHT {
        return Err(Malformed::Transport);
    }
    without_ports(ip);
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

/// Eight bytes as the four raw words that they are.
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

/// What any accepted packet keeps to, whatever the bytes.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let w = Window::new(bytes);
    for (at, ethertype) in [(0, ethernet::IPV4), (0, ethernet::IPV6), (14, ethernet::IPV4)] {
        let Ok(ip) = Ip::parse(&w, at, ethertype) else { continue };
        assert!(ip.at < ip.l4 && ip.l4 <= ip.end && usize::from(ip.end) <= w.len());
        assert!(ip.src.is_v4() != ip.v6 && ip.dst.is_v4() != ip.v6);
        assert_eq!(ip.kind == L4::None, ip.fragment == Fragment::Later);
        if let Ok(quoted) = crate::icmp::quoted(&w, &ip) {
            assert!(quoted.at == ip.l4 + 8 && quoted.end <= ip.end && quoted.l4 <= quoted.end);
        }
    }
}

#[cfg(test)]
mod tests;
