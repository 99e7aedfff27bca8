//! Packets of a few clients and ports, so that flows recur, and responses to outgoing packets.

use super::mutation::Trial;
use fastpath::burst::Arrival;
use fastrand::Rng;
use tests::cases::addresses::*;
use tests::cases::{Exit, Setup};
use tests::frames::sum::checksum;
use tests::frames::{Frame, Ip, echo, end, flags, raw, tcp, udp};

/// Clients, each with few ports.
const CLIENTS: [&str; 3] = ["198.51.100.7", "198.51.100.8", "192.0.2.33"];
/// The IPv6 clients.
const CLIENTS6: [&str; 2] = ["2001:db8:c::7", "2001:db8:c::8"];
/// Their destinations: frontends, an address without a service, the appliance.
const SERVED: [&str; 5] = [FRONTEND, FRONTEND, "203.0.113.20:53", ELSEWHERE, "10.0.1.10:179"];
/// The IPv6 destinations.
const SERVED6: [&str; 2] = [FRONTEND6, ELSEWHERE6];
/// TCP flags, of which one is selected for each segment; SYN is listed twice, to be more frequent.
const FLAGS: [u8; 8] = [
    flags::SYN,
    flags::SYN,
    flags::ACK,
    flags::PSH | flags::ACK,
    flags::SYN | flags::ACK,
    flags::FIN | flags::ACK,
    flags::RST,
    flags::RST | flags::ACK,
];

/// Creates the arrival of a frame in one segment.
pub fn arrives(arm: u8, bytes: Vec<u8>) -> Trial {
    Trial { arm, arrival: Arrival::Plain, first: bytes.len(), bytes }
}

fn one_of<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.usize(..of.len())]
}

/// Builds a client's packet.
fn packet(rng: &mut Rng) -> Ip {
    let six = rng.usize(..4) == 0;
    let (client, served) = match six {
        true => (one_of(&CLIENTS6, rng), one_of(&SERVED6, rng)),
        false => (one_of(&CLIENTS, rng), one_of(&SERVED, rng)),
    };
    let port = 40_000 + rng.u16(..3);
    let alone = end(served).ip().to_string();
    let packet = match rng.usize(..8) {
        0 => udp(client, served),
        1 => echo(client, &alone, rng.usize(..4) > 0),
        2 if rng.usize(..8) == 0 => raw(client, &alone, 47),
        _ => tcp(client, served, one_of(&FLAGS, rng)),
    };
    let packet = packet.from_port(port).payload(&vec![7; rng.usize(..40)]);
    let packet = match rng.usize(..32) {
        0 => packet.ttl(1),
        1 => packet.tos(rng.u8(..)),
        2 => packet.sized(1_400 + 8 * rng.usize(..950)),
        3 => packet.wrong_by(1 + rng.u16(..900)),
        4 => packet.unsummed(),
        5 | 6 => packet.may_fragment().id(rng.u32(..6)),
        _ => packet,
    };
    match rng.usize(..16) {
        0 => packet.sized(600).id(rng.u32(..4)).part(0, 256, true),
        1 => packet.sized(600).id(rng.u32(..4)).part(256, 256, rng.usize(..2) == 0),
        _ => packet,
    }
}

/// Builds a client's packet, through the gateway of the setup or plain.
pub fn request(setup: &Setup, rng: &mut Rng) -> Trial {
    let ip = packet(rng);
    let by = |kind: &str| setup.gateways.contains(&format!("kind = \"{kind}\""));
    let plain = rng.usize(..8) == 0;
    let frame = match (by("aws"), by("azure")) {
        (true, _) if !plain => {
            let node = if rng.usize(..8) == 0 { OTHER_NODE } else { NODE };
            let endpoint = if rng.usize(..8) == 0 { OTHER_ENDPOINT } else { ENDPOINT };
            from_node(node, endpoint, rng.u32(..3), ip)
        }
        (_, true) if !plain && rng.usize(..2) == 0 => from_external(ip),
        (_, true) if !plain => from_internal(ip),
        _ => from_router(ip),
    };
    let frame = if rng.usize(..64) == 0 { frame.vlan(7) } else { frame };
    arrives(INGRESS, frame.bytes())
}

/// Returns the offset of a frame's IP header.
pub fn l3(frame: &[u8]) -> usize {
    if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 }
}

/// Returns the length of the IP header at `at`, and the protocol after it.
fn ip_at(frame: &[u8], at: usize) -> Option<(usize, u8)> {
    match frame.get(at)? >> 4 {
        4 => Some((usize::from(frame[at] & 15) * 4, *frame.get(at + 9)?)),
        6 => Some((40, *frame.get(at + 6)?)),
        _ => None,
    }
}

/// Returns the offset of the inner packet, if the frame is a tunnel's.
fn inner_at(frame: &[u8]) -> Option<usize> {
    let (header, proto) = ip_at(frame, l3(frame))?;
    let l4 = l3(frame) + header;
    // By the UDP destination port: GENEVE 6081, GUE 6080, VXLAN 4789, 10800 and 10801.
    match (proto, frame.get(l4 + 2..l4 + 4)) {
        (4 | 41, _) => Some(l4),
        (17, Some([0x17, 0xc1])) => Some(l4 + 16 + usize::from(frame.get(l4 + 8)? & 0x3f) * 4),
        (17, Some([0x17, 0xc0])) => Some(l4 + 8),
        (17, Some([0x12, 0xb5] | [0x2a, 0x30 | 0x31])) => Some(l4 + 30),
        _ => None,
    }
}

/// Swaps `len` bytes at `one` and at `other`.
fn exchange(frame: &mut [u8], one: usize, other: usize, len: usize) -> Option<()> {
    if other + len > frame.len() {
        return None;
    }
    (0..len).for_each(|n| frame.swap(one + n, other + n));
    Some(())
}

/// Sets the 16-bit word at `at` to `new`, and updates the checksum at `sum` incrementally
/// (RFC 1624).
fn replace(frame: &mut [u8], at: usize, sum: usize, new: u16) -> Option<()> {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    let (old, was) = (word(frame.get(at..at + 2)?), word(frame.get(sum..sum + 2)?));
    let mut total = (0xffff - was) + (0xffff - old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    frame[sum..sum + 2].copy_from_slice(&(!total as u16).to_be_bytes());
    Some(())
}

/// Turns the packet at `at` into one of the opposite direction: swaps its addresses, and turns a
/// ping into a reply. With `ports`, also swaps its ports and sets random TCP flags.
pub fn reverse(frame: &mut [u8], at: usize, ports: bool, rng: &mut Rng) -> Option<()> {
    let (header, proto) = ip_at(frame, at)?;
    let l4 = at + header;
    match header {
        40 => exchange(frame, at + 8, at + 24, 16)?,
        _ => exchange(frame, at + 12, at + 16, 4)?,
    }
    match (proto, frame.get(l4)) {
        (6, _) if ports => {
            exchange(frame, l4, l4 + 2, 2)?;
            let flags = 0x5000 | u16::from(one_of(&FLAGS, rng));
            let long = u16::from(*frame.get(l4 + 12)? & 0xf0) << 8;
            replace(frame, l4 + 12, l4 + 16, long | flags & 0xff)
        }
        (17, _) if ports => exchange(frame, l4, l4 + 2, 2),
        (1, Some(8)) => replace(frame, l4, l4 + 2, 0),
        (58, Some(128)) => replace(frame, l4, l4 + 2, 0x8100),
        _ => Some(()),
    }
}

/// Builds an ICMP error about a frame's packet, from a router on its path. An ICMPv6 checksum lacks
/// the pseudo-header, since it is not verified.
pub fn error_about(frame: &[u8], arm: u8, rng: &mut Rng) -> Option<Trial> {
    let at = l3(frame);
    let six = frame.get(at)? >> 4 == 6;
    let quote = frame.get(at..(at + if six { 72 } else { 28 }).min(frame.len()))?;
    let to: std::net::IpAddr = match six {
        true => <[u8; 16]>::try_from(quote.get(8..24)?).ok()?.into(),
        false => <[u8; 4]>::try_from(quote.get(12..16)?).ok()?.into(),
    };
    let types = [[(3, 4), (3, 1), (3, 3), (11, 0)], [(2, 0), (1, 0), (1, 4), (3, 0)]];
    let (kind, code) = one_of(&types[usize::from(six)], rng);
    let mtu = 1_280 + rng.u16(..3) * 100;
    let mut load = vec![kind, code, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8];
    load.extend(quote);
    let sum = checksum(&load).to_be_bytes();
    load[2..4].copy_from_slice(&sum);
    let arms = [[("10.0.1.1", 1), ("fd00:1::1", 58)], [("10.0.2.1", 1), ("fd00:2::1", 58)]];
    let (from, proto) = arms[usize::from(arm & 1)][usize::from(six)];
    let (router, mac) = [(ROUTER, IN_MAC), (EGRESS_ROUTER, OUT_MAC)][usize::from(arm & 1)];
    let error = raw(from, &to.to_string(), proto).payload(&load);
    Some(arrives(arm, Frame::new(router, mac, error).bytes()))
}

/// Builds a response to an outgoing frame: an answer, plain or through the frame's tunnel, the
/// inner packet sent back through the tunnel, or an ICMP error.
pub fn answer(exit: Exit, frame: &[u8], rng: &mut Rng) -> Option<Trial> {
    let Exit::Port(arm) = exit else { return None };
    if rng.usize(..12) == 0 {
        return error_about(frame, arm, rng);
    }
    let mut frame = frame.to_vec();
    exchange(&mut frame, 0, 6, 6)?;
    let at = l3(&frame);
    match inner_at(&frame) {
        Some(inner) if rng.usize(..4) == 0 => {
            // Plain, without the tunnel; the backend decapsulates.
            let ethertype = if *frame.get(inner)? >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            reverse(&mut frame, inner, true, rng)?;
            let mut plain = frame[..12].to_vec();
            plain.extend(ethertype);
            plain.extend(&frame[inner..]);
            return Some(arrives(arm, plain));
        }
        Some(inner) => {
            reverse(&mut frame, at, false, rng)?;
            if rng.usize(..2) == 0 {
                reverse(&mut frame, inner, true, rng)?;
            }
        }
        None => reverse(&mut frame, at, true, rng)?,
    }
    Some(arrives(arm, frame))
}
