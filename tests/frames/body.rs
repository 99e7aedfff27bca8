//! The contents of an IP packet: segments, datagrams, ICMP, and tunnels with an inner packet.

use super::structure::{Body, Geneve, Ip, Sum, Vxlan};
use super::sum;

/// TCP flags (RFC 9293 3.1).
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u8 = 0x01;
    /// Opens a connection.
    pub const SYN: u8 = 0x02;
    /// Resets a connection.
    pub const RST: u8 = 0x04;
    /// Requests immediate delivery to the application.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
}

impl Body {
    /// Returns the IP protocol number in a packet of the given family.
    pub fn proto(&self, v6: bool) -> u8 {
        match self {
            Body::Tcp { .. } => 6,
            Body::Udp | Body::Geneve(..) | Body::Vxlan(..) | Body::Gue(_) => 17,
            Body::Echo { .. } | Body::Error { .. } => [1, 58][usize::from(v6)],
            Body::Ip(inner) => [4, 41][usize::from(inner.is_v6())],
            Body::Raw(proto) => *proto,
        }
    }

    /// Returns the packet inside a tunnel, or the quoted one.
    pub fn inner_mut(&mut self) -> Option<&mut Ip> {
        match self {
            Body::Error { quote: inner, .. }
            | Body::Geneve(_, inner)
            | Body::Vxlan(_, inner)
            | Body::Ip(inner)
            | Body::Gue(inner) => Some(inner),
            Body::Tcp { .. } | Body::Udp | Body::Echo { .. } | Body::Raw(_) => None,
        }
    }

    /// Returns the packet inside a tunnel, or the quoted one.
    pub fn inner(&self) -> Option<&Ip> {
        match self {
            Body::Error { quote: inner, .. }
            | Body::Geneve(_, inner)
            | Body::Vxlan(_, inner)
            | Body::Ip(inner)
            | Body::Gue(inner) => Some(inner),
            Body::Tcp { .. } | Body::Udp | Body::Echo { .. } | Body::Raw(_) => None,
        }
    }
}

impl Geneve {
    fn bytes(&self, inner: &Ip) -> Vec<u8> {
        let words = self.claimed_words.unwrap_or((self.options.len() / 4) as u8);
        let protocol = self.claimed_protocol.unwrap_or(inner.ethertype());
        let mut out = vec![
            self.version << 6 | words,
            u8::from(self.control) << 7 | u8::from(self.critical) << 6,
        ];
        out.extend(protocol.to_be_bytes());
        out.extend((self.vni << 8).to_be_bytes());
        out.extend(&self.options);
        out.extend(inner.bytes());
        out
    }
}

impl Vxlan {
    fn bytes(&self, inner: &Ip) -> Vec<u8> {
        let mut out = vec![self.flags, 0, 0, 0];
        out.extend((self.vni << 8).to_be_bytes());
        out.extend(self.to);
        out.extend(self.from);
        out.extend(inner.ethertype().to_be_bytes());
        out.extend(inner.bytes());
        out
    }
}

/// Builds one GENEVE option. `kind` includes the critical bit 0x80; the body is padded to four-byte
/// words.
pub fn option(class: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let words = body.len().div_ceil(4);
    let mut out = class.to_be_bytes().to_vec();
    out.extend([kind, words as u8]);
    out.extend(body);
    out.resize(4 + 4 * words, 0);
    out
}

/// Concatenates GENEVE options.
pub fn options(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// Builds the three options of an AWS gateway: endpoint (type 1), attachment (2), flow cookie
/// (3).
pub fn aws_options(endpoint: u64, attachment: u64, cookie: u32) -> Vec<u8> {
    options(&[
        option(0x0108, 1, &endpoint.to_be_bytes()),
        option(0x0108, 2, &attachment.to_be_bytes()),
        option(0x0108, 3, &cookie.to_be_bytes()),
    ])
}

/// Returns the bytes after the IP header.
pub(super) fn bytes(ip: &Ip) -> Vec<u8> {
    let ports = |out: &mut Vec<u8>| {
        out.extend(ip.src.port().to_be_bytes());
        out.extend(ip.dst.port().to_be_bytes());
    };
    let datagram = |payload: Vec<u8>| {
        let mut out = Vec::with_capacity(8 + payload.len());
        ports(&mut out);
        out.extend(ip.claimed_udp_len.unwrap_or((8 + payload.len()) as u16).to_be_bytes());
        out.extend([0, 0]);
        out.extend(payload);
        out
    };
    match &ip.body {
        Body::Tcp { seq, ack, flags, options } => {
            let mut out = Vec::with_capacity(20 + options.len() + ip.payload.len());
            ports(&mut out);
            out.extend(seq.to_be_bytes());
            out.extend(ack.to_be_bytes());
            let words = (20 + options.len()) / 4;
            // Weir's resets have window 0; other segments have an arbitrary one.
            let window = if flags & flags::RST == 0 { 0xff } else { 0 };
            out.extend([(words << 4) as u8, *flags, window, window, 0, 0, 0, 0]);
            out.extend(options);
            out.extend(&ip.payload);
            summed(ip, out, 16)
        }
        Body::Udp => summed(ip, datagram(ip.payload.clone()), 6),
        Body::Geneve(header, inner) => summed(ip, datagram(header.bytes(inner)), 6),
        Body::Vxlan(header, inner) => summed(ip, datagram(header.bytes(inner)), 6),
        Body::Gue(inner) => summed(ip, datagram(inner.bytes()), 6),
        Body::Echo { request, seq } => {
            let kind = match (ip.is_v6(), request) {
                (false, true) => 8,
                (false, false) => 0,
                (true, true) => 128,
                (true, false) => 129,
            };
            let mut out = vec![kind, 0, 0, 0];
            out.extend(ip.src.port().to_be_bytes());
            out.extend(seq.to_be_bytes());
            out.extend(&ip.payload);
            summed(ip, out, 2)
        }
        Body::Error { kind, code, rest, quote, quoted } => {
            let mut out = vec![*kind, *code, 0, 0];
            out.extend(rest.to_be_bytes());
            let quote = quote.bytes();
            out.extend(&quote[..quote.len().min(*quoted)]);
            summed(ip, out, 2)
        }
        Body::Ip(inner) => inner.bytes(),
        Body::Raw(_) => ip.payload.clone(),
    }
}

/// Fills in the L4 checksum at offset `at` of the bytes `out`, as [`Ip::sum`] specifies.
fn summed(ip: &Ip, mut out: Vec<u8>, at: usize) -> Vec<u8> {
    let v6 = ip.is_v6();
    let proto = ip.body.proto(v6);
    let mut all = match proto {
        1 => Vec::new(),
        _ => sum::pseudo_header(ip.src.ip(), ip.dst.ip(), proto, out.len()),
    };
    all.extend(&out);
    let right = match sum::checksum(&all) {
        0 if proto == 17 => 0xffff,
        right => right,
    };
    let value = match ip.sum {
        Sum::Full => right,
        Sum::Zero => 0,
        Sum::Off(delta) => sum::off_by(right, delta),
    };
    out[at..at + 2].copy_from_slice(&value.to_be_bytes());
    out
}
