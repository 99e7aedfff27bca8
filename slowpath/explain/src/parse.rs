//! Parsing of packets: a 5-tuple, or a frame in hexadecimal digits.

use std::net::{IpAddr, SocketAddr};

use packet::ethernet;
use packet::ip::{ICMP, ICMPV6, Ip, TCP, UDP};
use packet::rewrite::SYN;
use packet::window::Window;

/// Offset of the IP header in a tuple's frame, after the Ethernet header.
const IP_OFFSET: u16 = 14;
/// TTL of a tuple's packet.
const TTL: u8 = 64;

/// Addresses, ports and protocol of a flow. For ICMP, the source port is the echo identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuple {
    protocol: u8,
    from: SocketAddr,
    to: SocketAddr,
}

/// A packet to explain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PacketSpec {
    /// The first packet of a flow.
    Tuple(Tuple),
    /// A frame, from its Ethernet header on.
    Frame(Vec<u8>),
}

/// Parses a 5-tuple or a frame. The arrow may be omitted, because a shell interprets an unquoted
/// `>`.
pub fn parse(text: &str) -> Result<PacketSpec, String> {
    let spaced = text.replace("->", " ");
    let fields: Vec<&str> = spaced.split_whitespace().collect();
    let ends = matches!(fields[..], [_, from, _] if parse_end(from).is_some());
    if ends || text.contains("->") {
        return parse_tuple(text, &fields).map(PacketSpec::Tuple);
    }
    let separators = [' ', ':', '\n', '\t', '\r'];
    let digits: String = text.trim().trim_start_matches("0x").replace(separators, "");
    let error = || {
        format!(
            "{}: give a 5-tuple like `tcp 192.0.2.1:1234 -> 203.0.113.1:80`, or a frame from its \
             Ethernet header on in hexadecimal digits",
            text.chars().take(60).collect::<String>()
        )
    };
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return Err(error());
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(PacketSpec::Frame).ok_or_else(error)
}

fn parse_tuple(text: &str, fields: &[&str]) -> Result<Tuple, String> {
    let error =
        |what: &str| format!("{text}: {what}, as in `tcp 192.0.2.1:1234 -> 203.0.113.1:80`");
    let [protocol, from, to] = *fields else {
        return Err(error("write protocol, sender, receiver"));
    };
    let (Some(from), Some(to)) = (parse_end(from), parse_end(to)) else {
        return Err(error("write both ends as ADDRESS:PORT, or [ADDRESS]:PORT for IPv6"));
    };
    if from.is_ipv4() != to.is_ipv4() {
        return Err(error("both ends must be of the same address family"));
    }
    let protocol = match (protocol, from.is_ipv4()) {
        ("tcp", _) => TCP,
        ("udp", _) => UDP,
        ("icmp", true) => ICMP,
        ("icmp" | "icmpv6", false) => ICMPV6,
        (number, _) => match number.parse() {
            Ok(number) => number,
            Err(_) => return Err(error("the protocol must be tcp, udp, icmp, icmpv6 or a number")),
        },
    };
    Ok(Tuple { protocol, from, to })
}

fn parse_end(text: &str) -> Option<SocketAddr> {
    let address_only = || text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    text.parse().ok().or_else(|| address_only().map(|addr| SocketAddr::new(addr, 0)))
}

impl Tuple {
    /// Returns a frame with the first packet of the flow: a SYN, a UDP datagram, an echo request,
    /// or, for other protocols, a payload of 8 zero bytes.
    pub fn frame(&self) -> Vec<u8> {
        let (sport, dport) = (self.from.port().to_be_bytes(), self.to.port().to_be_bytes());
        let mut upper = match self.protocol {
            TCP => vec![0; 20],
            _ => vec![0; 8],
        };
        match self.protocol {
            TCP | UDP => {
                upper[..2].copy_from_slice(&sport);
                upper[2..4].copy_from_slice(&dport);
            }
            ICMP | ICMPV6 => {
                upper[0] = if self.protocol == ICMP { 8 } else { 128 };
                upper[4..6].copy_from_slice(&sport);
            }
            _ => {}
        }
        match self.protocol {
            TCP => (upper[12], upper[13]) = (5 << 4, SYN),
            UDP => upper[5] = 8,
            _ => {}
        }
        let mut frame = vec![0; usize::from(IP_OFFSET)];
        let len = upper.len() as u8;
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame[12..14].copy_from_slice(&ethernet::IPV4.to_be_bytes());
                frame.extend([0x45, 0, 0, 20 + len, 0, 0, 0, 0, TTL, self.protocol, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            (from, to) => {
                frame[12..14].copy_from_slice(&ethernet::IPV6.to_be_bytes());
                frame.extend([0x60, 0, 0, 0, 0, len, self.protocol, TTL]);
                for end in [from, to] {
                    let v6 = match end {
                        IpAddr::V6(v6) => v6,
                        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    };
                    frame.extend(v6.octets());
                }
            }
        }
        frame.extend(upper);
        frame
    }

    /// Parses the packet in the frame of this tuple.
    pub(super) fn inner(&self, window: &Window<'_>) -> Result<Ip, String> {
        let ethertype = if self.from.is_ipv4() { ethernet::IPV4 } else { ethernet::IPV6 };
        Ip::parse(window, IP_OFFSET, ethertype)
            .map_err(|cause| format!("the packet cannot be built: {cause:?}"))
    }
}
