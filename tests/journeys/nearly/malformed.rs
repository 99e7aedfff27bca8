//! Malformed and hostile frames, built by rules from a seed: lengths that lie, option loops, chains
//! of extension headers, fragments that overlap, ICMP errors with odd quotes, tunnel headers that
//! contradict themselves, and every frame cut at every byte.
//!
//! Frames are assembled byte by byte; neither `packet` nor the builders of `tests::frames`, which
//! make whole packets, are used.

use super::mutation::Trial;
use fastpath::burst::Arrival;
use fastrand::Rng;
use std::net::{Ipv4Addr, Ipv6Addr};
use tests::cases::Setup;
use tests::cases::world::{
    AZURE_FROM, AZURE_TO, EGRESS, EGRESS_ROUTER, ENDPOINT, IN_MAC, INGRESS, OTHER_ENDPOINT,
    OUT_MAC, ROUTER,
};
use tests::frames::aws_options;
use tests::frames::sum::{checksum, pseudo_header};

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A length field contradicts the bytes that are there.
    Length,
    /// IPv4 or TCP options that end nowhere, have no length or point outside.
    Options,
    /// A chain of IPv6 extension headers: long, looping, cut or in no order.
    Extensions,
    /// Fragments that overlap, are tiny, or end beyond 65,535 bytes.
    Fragments,
    /// An ICMP error that quotes too little, too much, another error, or nonsense.
    Quote,
    /// A tunnel header or an outer header that contradicts itself.
    Tunnel,
    /// A frame that ends too early.
    Cut,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 7] = [
        Fault::Length,
        Fault::Options,
        Fault::Extensions,
        Fault::Fragments,
        Fault::Quote,
        Fault::Tunnel,
        Fault::Cut,
    ];
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Addresses of clients, frontends, backends, this machine, and such as no host has.
const FOUR: [[u8; 4]; 11] = [
    [198, 51, 100, 7],
    [198, 51, 100, 8],
    [203, 0, 113, 10],
    [203, 0, 113, 10],
    [10, 0, 2, 11],
    [10, 0, 1, 10],
    [10, 0, 2, 20],
    [192, 0, 2, 80],
    [127, 0, 0, 1],
    [224, 0, 0, 1],
    [255, 255, 255, 255],
];
const SIX: [&str; 8] = [
    "2001:db8:c::7",
    "2001:db8:c::8",
    "2001:db8:f::10",
    "2001:db8:f::10",
    "fd00:2::11",
    "fd00:1::10",
    "::1",
    "ff02::1",
];
/// Headers that may follow an IPv6 header: extensions, transports, and numbers of no header.
const NEXT: [u8; 14] = [0, 43, 44, 51, 60, 135, 139, 50, 59, TCP, UDP, ICMP6, 140, 255];

/// One number of a list.
fn one_of<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.usize(..of.len())]
}

fn often(rng: &mut Rng) -> bool {
    rng.usize(..8) > 0
}

/// A number that a length field may hold wrongly, where `right` would be right.
fn wrong(right: usize, rng: &mut Rng) -> usize {
    let near = right.wrapping_add(1 + rng.usize(..9)).wrapping_sub(5);
    one_of(&[0, 1, 4, 7, 8, 19, 20, 28, 39, 40, 0x7fff, 0xffff, near, near], rng)
}

fn bytes_of(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

fn put(bytes: &mut [u8], at: usize, value: usize) {
    for (byte, new) in bytes.iter_mut().skip(at).zip((value as u16).to_be_bytes()) {
        *byte = new;
    }
}

/// An IPv4 packet; `part` is the field of flags and fragment offset.
fn four(
    ends: [[u8; 4]; 2],
    proto: u8,
    (id, part): (u16, u16),
    options: &[u8],
    rest: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len();
    let mut out = vec![0x40 | (header / 4) as u8, 0, 0, 0];
    put(&mut out, 2, header + rest.len());
    out.extend(id.to_be_bytes());
    out.extend(part.to_be_bytes());
    out.extend([64, proto, 0, 0]);
    out.extend(ends[0]);
    out.extend(ends[1]);
    out.extend(options);
    mend(&mut out);
    out.extend(rest);
    out
}

/// Makes an IPv4 header's checksum right, by the length that the header says of itself.
fn mend(packet: &mut [u8]) {
    let header = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len().max(20));
    put(packet, 10, 0);
    let sum = checksum(&packet[..header.min(packet.len())]);
    put(packet, 10, usize::from(sum));
}

fn six(ends: [Ipv6Addr; 2], next: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    put(&mut out, 4, rest.len());
    out.extend(ends[0].octets());
    out.extend(ends[1].octets());
    out.extend(rest);
    out
}

/// Two ends of one family.
#[derive(Clone, Copy)]
enum Ends {
    Four([[u8; 4]; 2]),
    Six([Ipv6Addr; 2]),
}

impl Ends {
    fn any(rng: &mut Rng) -> Ends {
        if rng.usize(..3) == 0 {
            let six = |rng: &mut Rng| one_of(&SIX, rng).parse().expect("an address");
            Ends::Six([six(rng), six(rng)])
        } else {
            Ends::Four([one_of(&FOUR, rng), one_of(&FOUR, rng)])
        }
    }

    fn swapped(self) -> Ends {
        match self {
            Ends::Four([one, other]) => Ends::Four([other, one]),
            Ends::Six([one, other]) => Ends::Six([other, one]),
        }
    }

    fn pseudo(self, proto: u8, len: usize) -> Vec<u8> {
        match self {
            Ends::Four(ends) => {
                let [src, dst] = ends.map(|end| Ipv4Addr::from(end).into());
                pseudo_header(src, dst, proto, len)
            }
            Ends::Six(ends) => {
                let [src, dst] = ends.map(Into::into);
                pseudo_header(src, dst, proto, len)
            }
        }
    }

    /// The packet with `rest` behind its IP header.
    fn packet(self, proto: u8, rest: &[u8]) -> Vec<u8> {
        match self {
            Ends::Four(ends) => four(ends, proto, (7, 0x4000), &[], rest),
            Ends::Six(ends) => six(ends, proto, rest),
        }
    }
}

/// A transport header and payload with a right checksum; the number of its protocol.
fn transport(ends: Ends, rng: &mut Rng) -> (u8, Vec<u8>) {
    let ports = [40_000 + rng.u16(..3), one_of(&[80, 53, 8080, 443, 0], rng)];
    let swap = rng.usize(..4) == 0;
    let [src, dst] = if swap { [ports[1], ports[0]] } else { ports };
    let payload = rng.usize(..24);
    let (proto, mut out, sum_at) = match rng.usize(..3) {
        0 => {
            let mut out = vec![0; 8];
            put(&mut out, 4, 8 + payload);
            (UDP, out, 6)
        }
        1 => {
            let proto = if matches!(ends, Ends::Four(_)) { ICMP } else { ICMP6 };
            let kind = if proto == ICMP { 8 } else { 128 };
            (proto, vec![kind, 0, 0, 0, 0, 9, 0, 1], 2)
        }
        _ => {
            let mut out = vec![0; 20];
            out[12] = 0x50;
            out[13] = one_of(&[0x02, 0x10, 0x18, 0x12, 0x11, 0x04, 0x00, 0xff], rng);
            (TCP, out, 16)
        }
    };
    if proto == TCP || proto == UDP {
        put(&mut out, 0, usize::from(src));
        put(&mut out, 2, usize::from(dst));
    }
    out.extend(bytes_of(payload, rng));
    finish(ends, proto, &mut out, sum_at);
    (proto, out)
}

/// Puts the checksum of a transport in its place.
fn finish(ends: Ends, proto: u8, out: &mut [u8], at: usize) {
    put(out, at, 0);
    let mut all = if proto == ICMP { Vec::new() } else { ends.pseudo(proto, out.len()) };
    all.extend(&*out);
    let sum = checksum(&all);
    put(out, at, usize::from(sum));
}

/// A whole packet.
fn whole(rng: &mut Rng) -> Vec<u8> {
    let ends = Ends::any(rng);
    let (proto, rest) = transport(ends, rng);
    ends.packet(proto, &rest)
}

/// One or two length fields are wrong.
fn lengths(rng: &mut Rng) -> Vec<u8> {
    let ends = Ends::any(rng);
    let (proto, mut rest) = transport(ends, rng);
    let len = rest.len();
    match (proto, rng.usize(..3)) {
        (UDP, 0 | 1) => put(&mut rest, 4, wrong(len, rng)),
        (TCP, 0 | 1) => rest[12] = (rng.u8(..16)) << 4,
        _ => {}
    }
    let mut packet = ends.packet(proto, &rest);
    let total = packet.len();
    match (packet[0] >> 4, rng.usize(..3)) {
        (4, 0) => put(&mut packet, 2, wrong(total, rng)),
        (4, 1) => packet[0] = 0x40 | rng.u8(..16),
        (6, 0) => put(&mut packet, 4, wrong(total - 40, rng)),
        (_, 2) if rng.usize(..4) == 0 => packet[0] = rng.u8(..),
        _ => {}
    }
    if packet[0] >> 4 == 4 && often(rng) {
        mend(&mut packet);
    }
    packet
}

/// An area of options, a multiple of four long.
fn option_area(most: usize, rng: &mut Rng) -> Vec<u8> {
    let len = 4 * (1 + rng.usize(..most / 4));
    let pattern: Vec<u8> = match rng.usize(..7) {
        0 => vec![1],
        1 => vec![one_of(&[2, 3, 7, 0x83, 0x89, 0x94, 30], rng), 0],
        2 => vec![one_of(&[2, 3, 7, 0x83, 0x89, 0x94, 30], rng), 1],
        3 => vec![2, 4, 5, 0xb4],
        4 => vec![0x83, 7, one_of(&[0, 3, 4, 8, 255], rng), 10, 0, 1, 10],
        5 => vec![one_of(&[2, 0x83], rng), one_of(&[3, 5, 40, 41, 255], rng), 1],
        _ => bytes_of(4, rng),
    };
    pattern.iter().copied().cycle().take(len).collect()
}

fn options(rng: &mut Rng) -> Vec<u8> {
    let ends = Ends::any(rng);
    let area = option_area(40, rng);
    if let (Ends::Four(addrs), true) = (ends, rng.usize(..2) == 0) {
        let (proto, rest) = transport(ends, rng);
        return four(addrs, proto, (7, 0x4000), &area, &rest);
    }
    let mut rest = vec![0; 20];
    put(&mut rest, 0, 40_000 + rng.usize(..3));
    put(&mut rest, 2, 80);
    let words = 5 + area.len() / 4;
    rest[12] = (if often(rng) { words } else { rng.usize(..16) } as u8) << 4;
    rest[13] = 0x02;
    rest.extend(area);
    finish(ends, TCP, &mut rest, 16);
    ends.packet(TCP, &rest)
}

/// A chain of extension headers, each with a length that may be anything.
fn extensions(rng: &mut Rng) -> Vec<u8> {
    let any = |rng: &mut Rng| one_of(&SIX, rng).parse().expect("an address");
    let addrs: [Ipv6Addr; 2] = [any(rng), any(rng)];
    let (last, transport) = transport(Ends::Six(addrs), rng);
    let count = one_of(&[1, 1, 2, 3, 5, 8, 9, 16, 40], rng);
    let same = (rng.usize(..3) == 0).then(|| one_of(&NEXT, rng));
    let kinds: Vec<u8> = (0..count).map(|_| same.unwrap_or_else(|| one_of(&NEXT, rng))).collect();
    let mut rest = Vec::new();
    for n in 0..count {
        let next = kinds.get(n + 1).copied().unwrap_or(last);
        let said = if often(rng) { rng.u8(..2) } else { rng.u8(..) };
        let len = match kinds[n] {
            44 => 8,
            51 => (usize::from(said) + 2) * 4,
            _ => (usize::from(said) + 1) * 8,
        };
        let mut header = vec![0; if often(rng) { len.min(64) } else { 8 }];
        header[0] = next;
        header[1] = said;
        if kinds[n] == 44 {
            put(&mut header, 2, one_of(&[0, 1, 8, 0xfff8, 0xfff9, 6], rng));
        } else {
            let body = bytes_of(header.len().saturating_sub(2), rng);
            header[2..].copy_from_slice(&body);
        }
        rest.extend(header);
    }
    rest.extend(transport);
    let mut packet = six(addrs, kinds[0], &rest);
    if !often(rng) {
        let len = rest.len();
        put(&mut packet, 4, wrong(len, rng));
    }
    packet
}

/// A fragment of one of a few datagrams.
fn fragments(rng: &mut Rng) -> Vec<u8> {
    let four_only = rng.usize(..3) > 0;
    let id = rng.u16(..4);
    let offset = one_of(&[0, 0, 0, 1, 1, 2, 3, 5, 185, 8_188, 8_189, 8_191], rng) as u16;
    let more = rng.u16(..2);
    let len = one_of(&[0, 1, 4, 7, 8, 8, 16, 20, 24, 33, 64, 1_400], rng);
    if four_only {
        let addrs = [one_of(&FOUR[..2], rng), one_of(&FOUR[2..4], rng)];
        let (proto, mut rest) = transport(Ends::Four(addrs), rng);
        rest.resize(len, 0xa5);
        let flags = more << 13 | u16::from(!often(rng)) << 14 | u16::from(!often(rng)) << 15;
        return four(addrs, proto, (id, flags | offset), &[], &rest);
    }
    let addrs = [SIX[0], SIX[2]].map(|addr| addr.parse().expect("an address"));
    let (proto, mut rest) = transport(Ends::Six(addrs), rng);
    rest.resize(len, 0xa5);
    let mut all = vec![proto, rng.u8(..2), 0, 0, 0, 0, 0, 0];
    put(&mut all, 2, usize::from(offset << 3 | (rng.u16(..4)) << 1 | more));
    put(&mut all, 6, usize::from(id));
    all.extend(rest);
    six(addrs, 44, &all)
}

/// An ICMP error whose quote is cut, nested, of the other family, or of a packet like any here.
fn quote(depth: usize, rng: &mut Rng) -> Vec<u8> {
    let inside = match rng.usize(..8) {
        0 if depth < 3 => quote(depth + 1, rng),
        1 => lengths(rng),
        2 => options(rng),
        3 => extensions(rng),
        4 => fragments(rng),
        5 => bytes_of(rng.usize(..60), rng),
        _ => whole(rng),
    };
    let keep = if rng.usize(..3) == 0 { rng.usize(..inside.len() + 1) } else { inside.len() };
    let ends = Ends::any(rng);
    let (proto, kind) = match ends {
        Ends::Four(_) => (ICMP, one_of(&[3, 3, 3, 4, 5, 11, 12, 0, 8, 18, 255], rng)),
        Ends::Six(_) => (ICMP6, one_of(&[1, 2, 2, 3, 4, 0, 128, 129, 133, 135, 255], rng)),
    };
    let mut rest = vec![kind, one_of(&[0, 1, 3, 4, 13, 255], rng), 0, 0];
    rest.extend(bytes_of(2, rng));
    rest.extend(
        (one_of(&[0, 67, 68, 576, 1_279, 1_280, 1_400, 1_500, 65_535], rng) as u16).to_be_bytes(),
    );
    rest.extend(&inside[..keep]);
    if often(rng) {
        finish(ends, proto, &mut rest, 2);
    }
    if rng.usize(..2) == 0 {
        ends.packet(proto, &rest)
    } else {
        ends.swapped().packet(proto, &rest)
    }
}

/// The tunnels of a set-up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrap {
    Plain,
    Geneve,
    External,
    Internal,
}

fn ethernet(from: [u8; 6], to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: u16 =
        if packet.first().is_some_and(|first| first >> 4 == 6) { 0x86dd } else { 0x0800 };
    let mut out = to.to_vec();
    out.extend(from);
    out.extend(kind.to_be_bytes());
    out.extend(packet);
    out
}

/// A datagram from a gateway to this machine.
fn outer(ports: [u16; 2], body: &[u8], spoilt: bool, rng: &mut Rng) -> Vec<u8> {
    let mut rest = vec![0; 8];
    put(&mut rest, 0, usize::from(ports[0]));
    put(&mut rest, 2, usize::from(ports[1]));
    put(&mut rest, 4, 8 + body.len());
    rest.extend(body);
    let ends = [[10, 0, 1, 100], [10, 0, 1, 10]];
    if !spoilt {
        return four(ends, UDP, (7, 0x4000), &[], &rest);
    }
    let area = if rng.usize(..3) == 0 { option_area(40, rng) } else { Vec::new() };
    let part = one_of(&[0x4000, 0x4000, 0x2000, 0x0001, 0x2001], rng);
    if rng.usize(..3) == 0 {
        let len = rest.len();
        put(&mut rest, 4, wrong(len, rng));
    }
    let mut packet = four(ends, UDP, (7, part), &area, &rest);
    if rng.usize(..3) == 0 {
        let len = packet.len();
        put(&mut packet, 2, wrong(len, rng));
    }
    if rng.usize(..6) == 0 {
        packet[0] = 0x40 | rng.u8(..16);
    }
    mend(&mut packet);
    packet
}

/// GENEVE options that may loop, overflow or lie.
fn geneve_options(rng: &mut Rng) -> Vec<u8> {
    let endpoint = if rng.usize(..4) == 0 { OTHER_ENDPOINT } else { ENDPOINT };
    let mut out = aws_options(endpoint, 7, rng.u32(..3));
    match rng.usize(..6) {
        0 => out = [0x01, 0x08, 3, 0].repeat(1 + rng.usize(..63)),
        1 => out[3] = rng.u8(..),
        2 => out.truncate(4 * rng.usize(..out.len() / 4 + 1)),
        3 => out.extend([0x01, 0x03, 0x80, rng.u8(..32)]),
        4 => {
            let at = rng.usize(..out.len());
            out[at] = rng.u8(..);
        }
        _ => out.extend(bytes_of(4 * rng.usize(..8), rng)),
    }
    out
}

/// The frame of a packet by a tunnel, whose headers are spoilt where that is the fault.
fn wrapped(wrap: Wrap, packet: &[u8], spoilt: bool, rng: &mut Rng) -> Vec<u8> {
    let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    let body = match wrap {
        Wrap::Plain => return ethernet(ROUTER, IN_MAC, packet),
        Wrap::Geneve => {
            let options = if spoilt { geneve_options(rng) } else { aws_options(ENDPOINT, 7, 1) };
            let words = (options.len() / 4) as u8;
            let mut out = vec![words & 0x3f, 0, 0x08, 0, 0, 0, 0, 0];
            if v6 {
                put(&mut out, 2, 0x86dd);
            }
            if spoilt {
                match rng.usize(..5) {
                    0 => out[0] = rng.u8(..),
                    1 => out[1] = rng.u8(..),
                    2 => put(&mut out, 2, one_of(&[0, 0x6558, 0x86dd, 0x0800, 0xffff], rng)),
                    3 => out[4 + rng.usize(..4)] = rng.u8(..),
                    _ => {}
                }
            }
            out.extend(options);
            out.extend(packet);
            out
        }
        Wrap::External | Wrap::Internal => {
            let vni: u32 = if wrap == Wrap::External { 801 } else { 800 };
            let mut out = vec![0x08, 0, 0, 0];
            out.extend((vni << 8).to_be_bytes());
            if spoilt {
                let at = rng.usize(..out.len());
                out[at] ^= 1 << rng.usize(..8);
            }
            let mut inner = ethernet(AZURE_FROM, AZURE_TO, packet);
            if spoilt && rng.usize(..3) == 0 {
                put(&mut inner, 12, one_of(&[0x8100, 0x88a8, 0x0806, 0x86dd, 0, 64], rng));
            }
            out.extend(inner);
            out
        }
    };
    let port = match wrap {
        Wrap::Geneve => 6_081,
        Wrap::External => 10_801,
        _ => 10_800,
    };
    let packet = outer([60_001, port], &body, spoilt && rng.usize(..2) == 0, rng);
    ethernet(ROUTER, IN_MAC, &packet)
}

/// Frames for a set-up, without end.
pub struct Malformed {
    wraps: Vec<Wrap>,
    /// A frame that is being cut, and where next.
    cutting: Option<(Vec<u8>, usize)>,
    made: usize,
}

/// Of so many frames one is cut at each of its bytes.
const CUT_ONE_IN: usize = 192;

impl Malformed {
    /// For the gateways of `setup`, and plain.
    pub fn new(setup: &Setup) -> Malformed {
        let by = |kind: &str| setup.gateways.contains(&format!("kind = \"{kind}\""));
        let mut wraps = vec![Wrap::Plain];
        if by("aws") {
            wraps.extend([Wrap::Geneve; 3]);
        }
        if by("azure") {
            wraps.extend([Wrap::External, Wrap::Internal, Wrap::External]);
        }
        Malformed { wraps, cutting: None, made: 0 }
    }

    /// The next frame, and what is wrong with it.
    pub fn next(&mut self, rng: &mut Rng) -> (Fault, Trial) {
        if let Some((frame, len)) = self.cutting.take() {
            let bytes = frame[..len].to_vec();
            if len > 15 {
                self.cutting = Some((frame, len - 1));
            }
            return (Fault::Cut, trial(bytes, rng));
        }
        self.made += 1;
        let wrap = one_of(&self.wraps, rng);
        let fault = one_of(&Fault::ALL[..6], rng);
        let fault =
            if fault == Fault::Tunnel && wrap == Wrap::Plain { Fault::Length } else { fault };
        let packet = match fault {
            Fault::Length => lengths(rng),
            Fault::Options => options(rng),
            Fault::Extensions => extensions(rng),
            Fault::Fragments => fragments(rng),
            Fault::Quote => quote(0, rng),
            Fault::Tunnel | Fault::Cut => whole(rng),
        };
        let frame = wrapped(wrap, &packet, fault == Fault::Tunnel, rng);
        if self.made.is_multiple_of(CUT_ONE_IN) && frame.len() < 400 {
            self.cutting = Some((frame.clone(), frame.len() - 1));
        }
        (fault, trial(frame, rng))
    }
}

/// A frame by the ingress port or, seldom, by the other; seldom with its headers in two buffers.
fn trial(mut bytes: Vec<u8>, rng: &mut Rng) -> Trial {
    let arm = if rng.usize(..16) == 0 { EGRESS } else { INGRESS };
    if arm == EGRESS {
        for (byte, new) in bytes.iter_mut().zip(OUT_MAC.into_iter().chain(EGRESS_ROUTER)) {
            *byte = new;
        }
    }
    let first = if rng.usize(..16) == 0 { rng.usize(..bytes.len().max(1)) } else { bytes.len() };
    Trial { arm, arrival: Arrival::Plain, first, bytes }
}
