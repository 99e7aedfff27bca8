//! Tests of TCP resets, which are read back by the parser.

use super::*;
use crate::checksum::{ipv4_header_ok, l4_full};
use crate::ethernet::{IPV4, IPV6};
use crate::icmp::LOCAL_TTL;
use crate::tests::{packet, samples};
use std::vec::Vec;

/// Returns sequence number, acknowledgment number and flags of the reset that answers a segment
/// with these flags, sequence number 7,000, acknowledgment number 9,000, and `payload` bytes.
fn answer((mut frame, mut ip): (Vec<u8>, Ip), flags: u8, payload: u16) -> (u32, u32, u8) {
    frame.resize(frame.len() + usize::from(payload), 0);
    let l4 = usize::from(ip.l4);
    frame[l4 + 4..l4 + 8].copy_from_slice(&7_000_u32.to_be_bytes());
    frame[l4 + 8..l4 + 12].copy_from_slice(&9_000_u32.to_be_bytes());
    frame[l4 + 13] = flags;
    ip.end += payload;
    ip.kind = L4::Tcp { flags };
    write_reset(&mut Window::new(&mut frame), &ip).unwrap();
    frame.truncate(usize::from(ip.at) + reset_len(&ip));
    let ethertype = if ip.v6 { IPV6 } else { IPV4 };
    let mut copy: Vec<u8> = frame.clone();
    let w = Window::new(&mut copy);
    let reset = Ip::parse(&w, ip.at, ethertype).unwrap();
    assert_eq!(
        (reset.src, reset.sport, reset.dst, reset.dport),
        (ip.dst, ip.dport, ip.src, ip.sport)
    );
    assert_eq!((usize::from(reset.end), reset.ttl), (frame.len(), LOCAL_TTL));
    assert!(reset.v6 || ipv4_header_ok(&w, &reset));
    assert_eq!(l4_full(&w, &reset), w.load(usize::from(reset.l4) + 16));
    let tcp = usize::from(reset.l4);
    let L4::Tcp { flags } = reset.kind else { panic!("{:?} is not TCP", reset.kind) };
    (w.be32(tcp + 4).unwrap(), w.be32(tcp + 8).unwrap(), flags)
}

#[test]
fn a_reset_takes_its_numbers_from_the_segment() {
    let four = packet(samples::SYN).1;
    let options = (four.end - four.l4 - 20) as usize; // A SYN's options are not payload.
    assert!(options > 0);
    assert_eq!(answer(packet(samples::SYN), ACK, 100), (9_000, 0, RST));
    assert_eq!(answer(packet(samples::SYN), SYN, 0), (0, 7_001, RST | ACK));
    assert_eq!(answer(packet(samples::SYN), 0, 100), (0, 7_100, RST | ACK));
    assert_eq!(answer(packet(samples::SYN), FIN, 3), (0, 7_004, RST | ACK));
}

/// Returns a TCP segment over IPv6 without payload.
fn six() -> (Vec<u8>, Ip) {
    let mut frame = packet(samples::UDP6).0[..40].to_vec();
    frame[4..7].copy_from_slice(&[0, 20, TCP]);
    frame.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, ACK, 1, 0, 0, 0, 0, 0]);
    let ip = Ip::parse(&Window::new(&mut frame), 0, IPV6).unwrap();
    (frame, ip)
}

#[test]
fn a_reset_of_ipv6_takes_its_numbers_from_the_segment() {
    assert_eq!(answer(six(), ACK, 100), (9_000, 0, RST));
}

#[test]
fn only_tcp_segments_other_than_resets_may_be_answered() {
    let (_, ip) = packet(samples::SYN);
    assert!(may_answer(&ip));
    assert!(!may_answer(&Ip { kind: L4::Tcp { flags: RST | ACK }, ..ip }));
    assert!(!may_answer(&Ip { fragment: Fragment::Later, ..ip }));
    assert!(!may_answer(&Ip { kind: L4::Udp, ..ip }));
}
