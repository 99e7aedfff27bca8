//! An IPv4 or IPv6 packet that keeps its structure until it is converted to bytes.

use super::body;
use super::structure::{Body, Fragment, Geneve, Ip, Mac, Sum, Vxlan};
use super::sum;
use std::net::{IpAddr, SocketAddr};

/// Parses "address:port", or an address alone with port 0.
#[track_caller]
#[expect(clippy::panic, reason = "an invalid address is an error of the test")]
pub fn end(text: &str) -> SocketAddr {
    let alone = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    text.parse().or_else(|_| alone()).unwrap_or_else(|_| panic!("{text} is not an address"))
}

fn new(src: &str, dst: &str, body: Body) -> Ip {
    Ip {
        src: end(src),
        dst: end(dst),
        ttl: 64,
        tos: 0,
        label: 0,
        id: 0,
        df: true,
        options: Vec::new(),
        extensions: Vec::new(),
        fragment: None,
        body,
        payload: Vec::new(),
        sum: Sum::Full,
        claimed_udp_len: None,
    }
}

/// Creates a TCP segment with the given [`super::flags`].
pub fn tcp(src: &str, dst: &str, flags: u8) -> Ip {
    new(src, dst, Body::Tcp { seq: 1_000, ack: 2_000, flags, options: Vec::new() })
}

/// Creates a UDP datagram.
pub fn udp(src: &str, dst: &str) -> Ip {
    new(src, dst, Body::Udp)
}

/// Creates an echo request; the source's port is the identifier.
pub fn echo_request(src: &str, dst: &str) -> Ip {
    echo(src, dst, true)
}

/// Creates an echo reply; the source's port is the identifier.
pub fn echo_reply(src: &str, dst: &str) -> Ip {
    echo(src, dst, false)
}

/// Creates an echo request, or a reply unless `request`; the source's port is the identifier.
pub fn echo(src: &str, dst: &str, request: bool) -> Ip {
    new(src, dst, Body::Echo { request, seq: 1 })
}

/// Creates a packet of any other protocol.
pub fn raw(src: &str, dst: &str, proto: u8) -> Ip {
    new(src, dst, Body::Raw(proto))
}

/// Creates an ICMP error of type and code about `quote`, of which at most 28 bytes plus options
/// (IPv4: RFC 792) or 1,232 bytes (IPv6: RFC 4443 2.4) are quoted. `rest` is the second word of the
/// ICMP header.
pub fn error(src: &str, dst: &str, (kind, code): (u8, u8), rest: u32, quote: Ip) -> Ip {
    let quoted = if quote.is_v6() { 1_232 } else { 28 + quote.options.len() };
    new(src, dst, Body::Error { kind, code, rest, quote: Box::new(quote), quoted })
}

impl Ip {
    /// Returns whether the packet is IPv6.
    pub fn is_v6(&self) -> bool {
        self.src.is_ipv6()
    }

    /// Returns the EtherType: 0x0800 for IPv4, 0x86dd for IPv6.
    pub fn ethertype(&self) -> u16 {
        if self.is_v6() { 0x86dd } else { 0x0800 }
    }

    /// Sets source address and port.
    pub fn from(mut self, src: &str) -> Ip {
        self.src = end(src);
        self
    }

    /// Sets destination address and port.
    pub fn to(mut self, dst: &str) -> Ip {
        self.dst = end(dst);
        self
    }

    /// Sets the source port (or the echo identifier).
    pub fn from_port(mut self, port: u16) -> Ip {
        self.src.set_port(port);
        self
    }

    /// Sets the destination port.
    pub fn to_port(mut self, port: u16) -> Ip {
        self.dst.set_port(port);
        self
    }

    /// Swaps source and destination address, not the ports. Inner packets are unchanged.
    pub fn addresses_swapped(mut self) -> Ip {
        let (src, dst) = (self.src.ip(), self.dst.ip());
        self.src.set_ip(dst);
        self.dst.set_ip(src);
        self
    }

    /// Sets the TTL or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Ip {
        self.ttl = ttl;
        self
    }

    /// Decrements the TTL or hop limit, as each router does.
    pub fn hop(mut self) -> Ip {
        self.ttl -= 1;
        self
    }

    /// Sets the TOS (IPv4) or the traffic class (IPv6): DSCP and ECN.
    pub fn tos(mut self, tos: u8) -> Ip {
        self.tos = tos;
        self
    }

    /// Sets the IPv6 flow label.
    pub fn label(mut self, label: u16) -> Ip {
        self.label = label;
        self
    }

    /// Sets the identification.
    pub fn id(mut self, id: u32) -> Ip {
        self.id = id;
        self
    }

    /// Clears the DF flag (IPv4).
    pub fn may_fragment(mut self) -> Ip {
        self.df = false;
        self
    }

    /// Sets IPv4 options, padded with end-of-list.
    pub fn options(mut self, options: &[u8]) -> Ip {
        self.options = options.to_vec();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an IPv6 extension header with this protocol number; `body` follows the length byte and
    /// has 6 bytes plus a multiple of 8.
    pub fn extension(mut self, number: u8, body: &[u8]) -> Ip {
        let mut bytes = vec![((body.len() + 2) / 8 - 1) as u8];
        bytes.extend(body);
        self.extensions.push((number, bytes));
        self
    }

    /// Sets the payload.
    pub fn payload(mut self, payload: &[u8]) -> Ip {
        self.payload = payload.to_vec();
        self
    }

    /// Replaces the payload by one with which the whole packet is `len` bytes long.
    #[track_caller]
    pub fn sized(mut self, len: usize) -> Ip {
        self.payload.clear();
        let rest = len.checked_sub(self.bytes().len()).expect("`len` includes the headers");
        self.payload = (0..rest).map(|n| n as u8).collect();
        self
    }

    /// Sets sequence and acknowledgment numbers (TCP), or the sequence number (echo).
    pub fn numbers(mut self, first: u32, second: u32) -> Ip {
        match &mut self.body {
            Body::Tcp { seq, ack, .. } => (*seq, *ack) = (first, second),
            Body::Echo { seq, .. } => *seq = first as u16,
            _ => {}
        }
        self
    }

    /// Adds the MSS option (TCP).
    pub fn mss(mut self, mss: u16) -> Ip {
        if let Body::Tcp { options, .. } = &mut self.body {
            *options = vec![2, 4, (mss >> 8) as u8, mss as u8];
        }
        self
    }

    /// Sets the L4 checksum to 0.
    pub fn unsummed(mut self) -> Ip {
        self.sum = Sum::Zero;
        self
    }

    /// Computes the L4 checksum. This is the default, except for UDP tunnels, which have none.
    pub fn summed(mut self) -> Ip {
        self.sum = Sum::Full;
        self
    }

    /// Makes the L4 checksum wrong by `delta`.
    pub fn wrong_by(mut self, delta: u16) -> Ip {
        self.sum = Sum::Off(delta);
        self
    }

    /// Makes the packet a fragment: `len` bytes of the datagram's payload from `offset` on.
    pub fn part(mut self, offset: usize, len: usize, more: bool) -> Ip {
        self.fragment = Some(Fragment { offset, len, more });
        self.df = false;
        self
    }

    /// Changes the quoted or encapsulated packet.
    pub fn inner(mut self, change: impl FnOnce(Ip) -> Ip) -> Ip {
        if let Some(inner) = self.body.inner_mut() {
            *inner = change(inner.clone());
        }
        self
    }

    /// Quotes at most `len` bytes (ICMP errors).
    pub fn quoting(mut self, len: usize) -> Ip {
        if let Body::Error { quoted, .. } = &mut self.body {
            *quoted = len;
        }
        self
    }

    /// Encapsulates in GENEVE with these options and VNI 0.
    pub fn in_geneve(self, src: &str, dst: &str, options: Vec<u8>) -> Ip {
        let header = Geneve { options, ..Geneve::default() };
        new(src, dst, Body::Geneve(header, Box::new(self))).unsummed()
    }

    /// Changes the GENEVE header.
    pub fn geneve(mut self, change: impl FnOnce(&mut Geneve)) -> Ip {
        if let Body::Geneve(header, _) = &mut self.body {
            change(header);
        }
        self
    }

    /// Encapsulates in VXLAN, from one inner MAC to another.
    pub fn in_vxlan(self, src: &str, dst: &str, vni: u32, from: Mac, to: Mac) -> Ip {
        let header = Vxlan { flags: 0x08, vni, to, from };
        new(src, dst, Body::Vxlan(header, Box::new(self))).unsummed()
    }

    /// Changes the VXLAN header.
    pub fn vxlan(mut self, change: impl FnOnce(&mut Vxlan)) -> Ip {
        if let Body::Vxlan(header, _) = &mut self.body {
            change(header);
        }
        self
    }

    /// Encapsulates in IP.
    pub fn in_ip(self, src: &str, dst: &str) -> Ip {
        new(src, dst, Body::Ip(Box::new(self)))
    }

    /// Encapsulates in GUE, variant 1.
    pub fn in_gue(self, src: &str, dst: &str) -> Ip {
        new(src, dst, Body::Gue(Box::new(self))).unsummed()
    }

    /// Returns the packet's bytes, with all checksums computed in full.
    pub fn bytes(&self) -> Vec<u8> {
        let mut carried = body::bytes(self);
        if let Some(part) = self.fragment {
            let from = part.offset.min(carried.len());
            let to = (part.offset + part.len).min(carried.len());
            carried = carried[from..to].to_vec();
        }
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(src.octets(), dst.octets(), &carried),
            (src, dst) => self.v6(sum::v6(src), sum::v6(dst), &carried),
        }
    }

    fn v4(&self, src: [u8; 4], dst: [u8; 4], carried: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut out = vec![0x40 | (header / 4) as u8, self.tos];
        out.extend(((header + carried.len()) as u16).to_be_bytes());
        out.extend((self.id as u16).to_be_bytes());
        let part = self.fragment.map_or(0, |f| (f.offset / 8) as u16 | u16::from(f.more) << 13);
        out.extend((part | u16::from(self.df) << 14).to_be_bytes());
        out.extend([self.ttl, self.body.proto(false), 0, 0]);
        out.extend(src);
        out.extend(dst);
        out.extend(&self.options);
        let sum = sum::checksum(&out).to_be_bytes();
        out[10..12].copy_from_slice(&sum);
        out.extend(carried);
        out
    }

    fn v6(&self, src: [u8; 16], dst: [u8; 16], carried: &[u8]) -> Vec<u8> {
        let mut extensions = self.extensions.clone();
        if let Some(part) = self.fragment {
            let mut bytes = vec![0];
            bytes.extend((part.offset as u16 & !7 | u16::from(part.more)).to_be_bytes());
            bytes.extend(self.id.to_be_bytes());
            extensions.push((44, bytes));
        }
        // Each header names the one that follows it.
        let mut next: Vec<u8> = extensions.iter().map(|(number, _)| *number).collect();
        next.push(self.body.proto(true));
        let mut middle = Vec::new();
        for ((_, bytes), next) in extensions.iter().zip(&next[1..]) {
            middle.push(*next);
            middle.extend(bytes);
        }
        let mut out = (0x6000_0000 | u32::from(self.tos) << 20 | u32::from(self.label))
            .to_be_bytes()
            .to_vec();
        out.extend(((middle.len() + carried.len()) as u16).to_be_bytes());
        out.extend([next[0], self.ttl]);
        out.extend(src);
        out.extend(dst);
        out.extend(middle);
        out.extend(carried);
        out
    }
}
