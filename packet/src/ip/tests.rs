//! Tests of both families, upper-layer headers, fragments and quotes.

use super::*;
use crate::icmp;
use crate::parsed::Malformed;
use crate::tests::{bytes, family, packet, samples};
use std::net::IpAddr;
use std::vec::Vec;

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

fn parse(bytes: &[u8]) -> Result<Ip, Malformed> {
    let mut bytes = bytes.to_vec();
    let family = family(&bytes);
    Ip::parse(&Window::new(&mut bytes), 0, family)
}

#[test]
fn tcp_over_ipv4_is_parsed() {
    let (bytes, ip) = packet(samples::SYN);
    let expected = Ip {
        at: 0,
        l4: 20,
        end: 52,
        sport: 40000,
        dport: 80,
        proto: TCP,
        v6: false,
        tos: 0xb8,
        ttl: 60,
        fragment: Fragment::Whole,
        kind: L4::Tcp { flags: 2 },
        df: false,
        fragment_id: 77,
        src: addr("198.51.100.7"),
        dst: addr("203.0.113.10"),
    };
    assert_eq!(ip, expected);
    assert_eq!(usize::from(ip.len()), bytes.len());
    assert_eq!(ip.ethertype(), 0x0800);
}

#[test]
fn udp_over_ipv6_is_parsed() {
    let (_, ip) = packet(samples::UDP6);
    let expected = Ip {
        at: 0,
        l4: 40,
        end: 61,
        sport: 5353,
        dport: 53,
        proto: UDP,
        v6: true,
        tos: 0xb8,
        ttl: 60,
        kind: L4::Udp,
        df: true,
        src: addr("2001:db8::7"),
        dst: addr("2001:db8:1::10"),
        ..Ip::default()
    };
    assert_eq!(ip, expected);
    assert_eq!(ip.ethertype(), 0x86dd);
}

#[test]
fn padding_behind_the_packet_is_not_part_of_it() {
    let (mut bytes, ip) = packet(samples::UDP4);
    bytes.resize(60, 0xee);
    assert_eq!(parse(&bytes), Ok(ip));
}

#[test]
fn packet_may_exceed_the_window_but_not_the_frame() {
    for sample in [samples::SYN, samples::UDP6] {
        let (bytes, ip) = packet(sample);
        assert_eq!(parse(&bytes[..bytes.len() - 1]), Err(Malformed::IpLength));
        // The rest of a chained frame lies outside the window, but belongs to the packet.
        let mut first = bytes[..bytes.len() - 1].to_vec();
        let w = Window::of_segment(&mut first, bytes.len());
        assert_eq!(Ip::parse(&w, 0, ip.ethertype()), Ok(ip));
        assert_eq!(parse(&bytes[..usize::from(ip.l4) - 1]), Err(Malformed::Short));
    }
}

#[test]
fn other_ethertypes_and_versions_are_rejected() {
    let mut four = bytes(samples::SYN);
    let w = Window::new(&mut four);
    assert_eq!(Ip::parse(&w, 0, 0x0806), Err(Malformed::NotIp));
    assert_eq!(Ip::parse(&w, 0, ethernet::IPV6), Err(Malformed::IpVersion));
    let mut six = bytes(samples::UDP6);
    let w = Window::new(&mut six);
    assert_eq!(Ip::parse(&w, 0, ethernet::IPV4), Err(Malformed::IpVersion));
}

#[test]
fn truncated_upper_layer_headers_are_rejected() {
    for (sample, min) in [(samples::SYN, 20), (samples::UDP4, 8), (samples::ECHO4, 8)] {
        let mut bytes = bytes(sample);
        bytes[3] = 20 + min - 1;
        assert_eq!(parse(&bytes), Err(Malformed::Transport));
        bytes[3] = 20 + min;
        assert!(parse(&bytes).is_ok());
    }
}

#[test]
fn echoes_have_their_identifier_for_ports() {
    for (sample, request) in [
        (samples::ECHO4, true),
        (samples::ECHO4_REPLY, false),
        (samples::ECHO6, true),
        (samples::ECHO6_REPLY, false),
    ] {
        let (_, ip) = packet(sample);
        assert_eq!((ip.kind, ip.sport, ip.dport), (L4::IcmpEcho { request }, 0x1111, 0x1111));
    }
}

#[test]
fn icmp_error_types_are_recognized_in_both_families() {
    let kinds = |sample: &str, at: usize| -> Vec<u8> {
        let mut bytes = bytes(sample);
        let errors = (0..=255u8).filter(|kind| {
            bytes[at] = *kind;
            parse(&bytes).unwrap().kind == L4::IcmpError
        });
        errors.collect()
    };
    assert_eq!(kinds(samples::ECHO4, 20), [3, 4, 5, 11, 12]);
    assert_eq!(kinds(samples::ECHO6, 40), [1, 2, 3, 4]);
}

#[test]
fn icmpv6_over_ipv4_is_an_ordinary_protocol() {
    let mut six_in_four = bytes(samples::ECHO4);
    six_in_four[9] = ICMPV6;
    assert_eq!(parse(&six_in_four).unwrap().kind, L4::Other);
}

#[test]
fn fragments_are_classified_by_their_offset() {
    let (_, first) = packet(samples::FRAGMENT4_FIRST);
    assert_eq!((first.fragment, first.fragment_id), (Fragment::First, 0x4242));
    assert_eq!((first.kind, first.sport, first.dport), (L4::Udp, 5353, 53));
    let (_, later) = packet(samples::FRAGMENT4_LATER);
    assert_eq!((later.fragment, later.fragment_id), (Fragment::Later, 0x4242));
    assert_eq!((later.kind, later.sport, later.proto), (L4::None, 0, UDP));
    let (_, first) = packet(samples::FRAGMENT6_FIRST);
    assert_eq!((first.fragment, first.fragment_id), (Fragment::First, 0xdead_beef));
    assert_eq!((first.kind, first.l4, first.sport), (L4::Udp, 48, 5353));
    let (_, later) = packet(samples::FRAGMENT6_LATER);
    assert_eq!((later.fragment, later.proto, later.l4), (Fragment::Later, UDP, 48));
    assert_eq!((later.fragment_id, later.kind), (0xdead_beef, L4::None));
}

#[test]
fn quote_may_be_truncated_after_its_ports() {
    let (mut bytes, error) = packet(samples::ERROR4_CUT);
    let quoted = icmp::quoted(&Window::new(&mut bytes), &error).unwrap();
    assert_eq!((quoted.at, quoted.l4, quoted.end), (28, 48, 56));
    assert_eq!((quoted.src, quoted.sport), (addr("10.0.2.10"), 1024));
    assert_eq!((quoted.dst, quoted.dport), (addr("10.0.2.99"), 8080));
    assert_eq!(quoted.kind, L4::Tcp { flags: 0 });
    let (mut bytes, error) = packet(samples::ERROR6);
    let quoted = icmp::quoted(&Window::new(&mut bytes), &error).unwrap();
    assert_eq!((quoted.src, quoted.sport, quoted.kind), (addr("fd00::10"), 1024, L4::Udp));
}

#[test]
fn quote_without_ports_and_echo_as_error_are_rejected() {
    let (mut bytes, error) = packet(samples::ERROR4_CUT);
    let w = Window::new(&mut bytes);
    for end in error.l4 + 8..error.end {
        let cut = Ip { end, ..error };
        assert_eq!(icmp::quoted(&w, &cut), Err(Malformed::Quote), "{end}");
    }
    let (mut bytes, echo) = packet(samples::ECHO4);
    assert_eq!(icmp::quoted(&Window::new(&mut bytes), &echo), Err(Malformed::Quote));
}
