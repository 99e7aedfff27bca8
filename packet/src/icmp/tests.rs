//! Tests of Weir's ICMP messages against those that scapy builds.

use super::*;
use crate::rewrite::{Rewrite, nat};
use crate::tests::{bytes, packet, samples};
use crate::translate::harness::translated;
use std::net::IpAddr;
use std::vec;

use fastrand::Rng;

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

#[test]
fn an_echo_is_answered_in_place() {
    for (request, answer) in
        [(samples::ECHO4, samples::ECHO4_REPLY), (samples::ECHO6, samples::ECHO6_REPLY)]
    {
        let (mut packet, ip) = packet(request);
        echo_reply(&mut Window::new(&mut packet), &ip).unwrap();
        assert_eq!(packet, bytes(answer));
    }
}

#[test]
fn errors_quote_the_packet_that_they_are_about() {
    for (about, condition, expected) in [
        (samples::SYN, IcmpError::TooBig(1400), samples::TOO_BIG4),
        (samples::UDP6, IcmpError::TimeExceeded, samples::EXCEEDED6),
    ] {
        let (packet, ip) = packet(about);
        let mut frame = vec![0xee; error_header(&ip)];
        frame.extend(&packet[..quote_len(&ip)]);
        write_error(&mut Window::new(&mut frame), 0, &ip, condition).unwrap();
        assert_eq!(frame, bytes(expected));
    }
}

#[test]
fn quotes_are_as_long_as_the_rfcs_allow() {
    let (_, four) = packet(samples::SYN);
    let (_, six) = packet(samples::UDP6);
    for (ip, max_len) in [(four, 576), (six, 1280)] {
        let len = |end| quote_len(&Ip { end, ..ip }) + error_header(&ip);
        assert_eq!(len(8500), max_len);
        assert_eq!(len(100), 100 + error_header(&ip));
    }
}

#[test]
fn errors_have_type_code_and_value_of_their_condition() {
    let kinds = [
        (samples::SYN, IcmpError::TimeExceeded, [11, 0], [0, 0, 0, 0]),
        (samples::UDP6, IcmpError::TooBig(1400), [2, 0], [0, 0, 5, 120]),
    ];
    for (about, condition, kind, rest) in kinds {
        let (packet, ip) = packet(about);
        let l4 = error_header(&ip) - 8;
        let mut frame = vec![0; l4 + 8];
        frame.extend(&packet);
        write_error(&mut Window::new(&mut frame), 0, &ip, condition).unwrap();
        assert_eq!((&frame[l4..l4 + 2], &frame[l4 + 4..l4 + 8]), (&kind[..], &rest[..]));
        assert_eq!(frame[l4 + 8..], packet[..]);
    }
}

#[test]
fn may_answer_excludes_errors_later_fragments_and_non_hosts() {
    let (_, ip) = packet(samples::SYN);
    assert!(may_answer(&ip));
    for src in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"] {
        assert!(!may_answer(&Ip { src: addr(src), ..ip }), "{src}");
    }
    for dst in ["224.0.0.5", "239.1.2.3", "255.255.255.255"] {
        assert!(!may_answer(&Ip { dst: addr(dst), ..ip }), "{dst}");
    }
    let (_, six) = packet(samples::UDP6);
    assert!(may_answer(&six));
    for src in ["::", "::1", "ff02::1"] {
        assert!(!may_answer(&Ip { src: addr(src), ..six }), "{src}");
    }
    assert!(!may_answer(&Ip { dst: addr("ff02::1"), ..six }));
    for sample in [samples::ERROR4, samples::ERROR6, samples::FRAGMENT4_LATER] {
        assert!(!may_answer(&packet(sample).1));
    }
    for sample in [samples::ECHO4, samples::ECHO6, samples::FRAGMENT6_FIRST] {
        assert!(may_answer(&packet(sample).1));
    }
    // ICMPv6: a redirect, an error of an unknown type, and a neighbor solicitation.
    let (mut bytes, _) = packet(samples::ECHO6);
    for kind in [137, 100, 135] {
        bytes[40] = kind;
        assert!(!may_answer(&Ip::parse(&Window::new(&mut bytes), 0, 0x86dd).unwrap()));
    }
}

/// Returns an ICMP echo over IPv4 with this type, identifier, sequence number and data, and with a
/// correct checksum.
fn echo4_of(kind: u8, id: u16, sequence: u16, data: &[u8]) -> vec::Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(28 + data.len() as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, ICMP);
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 1]);
    packet[20] = kind;
    packet[24..26].copy_from_slice(&id.to_be_bytes());
    packet[26..28].copy_from_slice(&sequence.to_be_bytes());
    packet.extend(data);
    let sum = !fold(Window::new(&mut packet).sum(20, 8 + data.len()).unwrap());
    packet[22..24].copy_from_slice(&sum.to_ne_bytes());
    packet
}

/// Returns true if a receiver accepts an ICMPv4 message: its words sum to zero (RFC 1071 §1).
fn has_valid_checksum(packet: &mut [u8]) -> bool {
    let len = packet.len() - 20;
    fold(Window::new(packet).sum(20, len).unwrap()) == 0xffff
}

/// Generates identifiers, sequence numbers and data of echoes: combinations for which the checksum
/// is 0 or 0xffff before or after a rewrite, and random ones.
fn echoes() -> impl Iterator<Item = (u16, u16, vec::Vec<u8>)> {
    let ends = [0, 1, 0x0800, 0xf7ff, 0xfffe, 0xffff];
    let pairs = ends.into_iter().flat_map(move |id| ends.map(|sequence| (id, sequence)));
    let data: [&[u8]; 5] = [&[], &[0; 56], &[0xff; 2], &[0xff, 0xfe, 0, 1], &[0, 0, 1]];
    let corners =
        pairs.flat_map(move |(id, sequence)| data.map(|data| (id, sequence, data.to_vec())));
    let mut rng = Rng::with_seed(7);
    let random = core::iter::repeat_with(move || {
        let data = (0..rng.usize(..9)).map(|_| rng.u8(..)).collect();
        (rng.u16(..), rng.u16(..), data)
    });
    corners.chain(random.take(10_000)).take(if cfg!(miri) { 20 } else { usize::MAX })
}

#[test]
fn echo_checksum_stays_valid_after_reply_nat_and_translation() {
    let v6 = |last: u8| {
        Addr::from(IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]))
    };
    for (id, sequence, data) in echoes() {
        for kind in [8, 0] {
            let packet = echo4_of(kind, id, sequence, &data);
            assert!(has_valid_checksum(&mut packet.clone()));
            let ip = Ip::parse(&Window::new(&mut packet.clone()), 0, 0x0800).unwrap();
            let case = std::format!("type {kind} id {id:#x} sequence {sequence:#x} data {data:x?}");
            if kind == 8 {
                let mut reply = packet.clone();
                echo_reply(&mut Window::new(&mut reply), &ip).unwrap();
                assert!(has_valid_checksum(&mut reply), "reply to {case}");
            }
            for port in [0, id, !id, 0xffff] {
                let (src, dst) = (addr("10.0.2.10"), addr("10.0.2.99"));
                let to = Rewrite { src, sport: port, dst, dport: port };
                let mut changed = packet.clone();
                nat(&mut Window::new(&mut changed), &ip, &to).unwrap();
                assert!(has_valid_checksum(&mut changed), "NAT to {port:#x} of {case}");
                // Translated to IPv6 and back to IPv4.
                let six = Rewrite { src: v6(1), dst: v6(2), ..to };
                let mut six = translated(&mut packet.clone(), &ip, &six).unwrap();
                let now = Ip::parse(&Window::new(&mut six), 0, 0x86dd).unwrap();
                let full = crate::checksum::l4_full(&Window::new(&mut six.clone()), &now);
                assert_eq!(full, Window::new(&mut six.clone()).load(42), "to IPv6, {case}");
                let mut four = translated(&mut six, &now, &to).unwrap();
                assert!(has_valid_checksum(&mut four), "there and back, {case}");
            }
        }
    }
}
