//! Tests of rewritten packets against those that scapy builds.

use super::*;
use crate::checksum::{ipv4_header_ok, l4_full};
use crate::icmp;
use crate::ip::Fragment;
use crate::tests::{bytes, family, packet, samples};
use std::net::IpAddr;
use std::vec::Vec;

use fastrand::Rng;

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

fn rewrite_to(src: &str, sport: u16, dst: &str, dport: u16) -> Rewrite {
    Rewrite { src: addr(src), sport, dst: addr(dst), dport }
}

#[track_caller]
fn becomes(from: &str, to: &str, change: impl FnOnce(&mut Window<'_>, &Ip)) {
    let (mut bytes, ip) = packet(from);
    change(&mut Window::new(&mut bytes), &ip);
    let expected = crate::tests::bytes(to);
    assert_eq!(bytes, expected, "\n left {bytes:02x?}\nright {expected:02x?}");
}

#[test]
fn nat_results_equal_packets_built_with_the_new_addresses() {
    let four = |port| rewrite_to("10.0.2.10", 1024, "10.0.2.99", port);
    let six = |port| rewrite_to("fd00::10", 1024, "fd00::99", port);
    for (from, to, new) in [
        (samples::SYN, samples::SYN_NAT, four(8080)),
        (samples::UDP4, samples::UDP4_NAT, four(5300)),
        (samples::UDP4_ZERO, samples::UDP4_ZERO_NAT, four(5300)),
        (samples::UDP6, samples::UDP6_NAT, six(5300)),
        (samples::FRAGMENT4_FIRST, samples::FRAGMENT4_FIRST_NAT, four(5300)),
        (samples::FRAGMENT4_LATER, samples::FRAGMENT4_LATER_NAT, four(5300)),
        (samples::ECHO4, samples::ECHO4_NAT, four(1024)),
        (samples::ECHO6, samples::ECHO6_NAT, six(1024)),
    ] {
        becomes(from, to, |w, ip| nat(w, ip, &new).unwrap());
    }
}

#[test]
fn nat_sets_the_id_of_an_echo_request_from_sport_and_of_a_reply_from_dport() {
    for (sample, id) in [
        (samples::ECHO4, 7),
        (samples::ECHO6, 7),
        (samples::ECHO4_REPLY, 8),
        (samples::ECHO6_REPLY, 8),
    ] {
        let (mut bytes, ip) = packet(sample);
        let to = Rewrite { src: ip.dst, sport: 7, dst: ip.src, dport: 8 };
        nat(&mut Window::new(&mut bytes), &ip, &to).unwrap();
        let family = family(&bytes);
        let w = Window::new(&mut bytes);
        let now = Ip::parse(&w, 0, family).unwrap();
        assert_eq!((now.sport, now.src, now.dst), (id, ip.dst, ip.src));
        assert_eq!(l4_full(&w, &now), w.load(usize::from(now.l4) + 2));
    }
}

#[test]
fn a_wrong_checksum_stays_wrong_by_the_same_amount() {
    for (sample, field) in [(samples::SYN, 36), (samples::UDP4, 26), (samples::UDP6, 46)] {
        let (mut bytes, ip) = packet(sample);
        let new = if ip.v6 {
            rewrite_to("fd00::10", 1024, "fd00::99", 5300)
        } else {
            rewrite_to("10.0.2.10", 1024, "10.0.2.99", 5300)
        };
        bytes[field] ^= 0x55;
        nat(&mut Window::new(&mut bytes), &ip, &new).unwrap();
        let family = family(&bytes);
        let w = Window::new(&mut bytes);
        let now = Ip::parse(&w, 0, family).unwrap();
        assert_ne!(l4_full(&w, &now), w.load(field));
        let back = Rewrite { src: ip.src, sport: ip.sport, dst: ip.dst, dport: ip.dport };
        nat(&mut Window::new(&mut bytes), &now, &back).unwrap();
        let mut broken = crate::tests::bytes(sample);
        broken[field] ^= 0x55;
        assert_eq!(bytes, broken);
    }
}

#[test]
fn nat_of_an_unparsed_protocol_replaces_only_the_ip_addresses() {
    let (mut bytes, _) = packet(samples::SYN);
    bytes[9] = 132;
    let before = bytes.clone();
    let ip = Ip::parse(&Window::new(&mut bytes), 0, 0x0800).unwrap();
    let sum = crate::checksum::ipv4_header(&Window::new(&mut bytes), 0, 20).unwrap();
    Window::new(&mut bytes).store(10, sum).unwrap();
    nat(&mut Window::new(&mut bytes), &ip, &rewrite_to("10.0.0.1", 1, "10.0.0.2", 2)).unwrap();
    assert_eq!(bytes[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(bytes[20..], before[20..]);
    assert!(ipv4_header_ok(&Window::new(&mut bytes), &ip));
}

#[test]
fn error_about_a_nat_packet_becomes_one_about_the_clients_packet() {
    let to_client =
        |from: &str| Rewrite { src: addr(from), dst: addr("198.51.100.7"), ..Rewrite::none() };
    let six = Rewrite { src: addr("2001:db8:9::9"), dst: addr("2001:db8::7"), ..Rewrite::none() };
    let tcp = rewrite_to("198.51.100.7", 40000, "203.0.113.10", 80);
    let udp = rewrite_to("198.51.100.7", 5353, "203.0.113.10", 53);
    let udp6 = rewrite_to("2001:db8::7", 5353, "2001:db8:1::10", 53);
    for (from, to, outer, quote) in [
        (samples::ERROR4, samples::ERROR4_NAT, to_client("10.9.9.9"), tcp),
        (samples::ERROR4_CUT, samples::ERROR4_CUT_NAT, to_client("10.9.9.9"), tcp),
        (samples::ERROR4_UDP, samples::ERROR4_UDP_NAT, to_client("203.0.113.10"), udp),
        (samples::ERROR6, samples::ERROR6_NAT, six, udp6),
    ] {
        becomes(from, to, |w, error| {
            let quoted = icmp::quoted(w, error).unwrap();
            nat_quoted(w, error, &quoted, &outer, &quote).unwrap();
        });
    }
}

#[test]
fn ttl_is_decremented_and_stays_at_zero() {
    becomes(samples::SYN, samples::SYN_TTL, |w, ip| decrement_ttl(w, ip).unwrap());
    let (mut bytes, ip) = packet(samples::UDP6);
    decrement_ttl(&mut Window::new(&mut bytes), &ip).unwrap();
    assert_eq!(bytes[7], ip.ttl - 1);
    bytes[7] = 0;
    decrement_ttl(&mut Window::new(&mut bytes), &ip).unwrap();
    assert_eq!(bytes[7], 0);
}

#[test]
fn the_header_checksum_is_right_at_every_ttl() {
    let (mut bytes, mut ip) = packet(samples::SYN);
    let mut w = Window::new(&mut bytes);
    while ip.ttl > 1 {
        decrement_ttl(&mut w, &ip).unwrap();
        ip = Ip::parse(&w, 0, 0x0800).unwrap();
        assert!(ipv4_header_ok(&w, &ip), "ttl {}", ip.ttl);
    }
}

#[test]
fn dscp_and_ecn_are_set_in_both_families() {
    becomes(samples::SYN, samples::SYN_TOS, |w, ip| set_tos(w, ip, 0xbb).unwrap());
    let (mut bytes, ip) = packet(samples::UDP6);
    bytes[1] |= 0x0a; // A flow label, which must not change.
    set_tos(&mut Window::new(&mut bytes), &ip, 0x4d).unwrap();
    assert_eq!(bytes[..4], [0x64, 0xda, 0, 0]);
}

#[test]
fn ce_mark_is_propagated_or_a_packet_that_is_not_ecn_capable_is_rejected() {
    let (mut bytes, inner) = packet(samples::SYN);
    let outer = Ip { tos: 3, ..inner };
    let mut w = Window::new(&mut bytes);
    assert_eq!(propagate_ecn(&mut w, &outer, &inner), Err(EcnError::NotEcnCapable));
    set_tos(&mut w, &inner, 0xba).unwrap();
    let inner = Ip { tos: 0xba, ..inner };
    assert_eq!(propagate_ecn(&mut w, &outer, &inner), Ok(0xbb));
    assert_eq!(bytes, crate::tests::bytes(samples::SYN_TOS));
    let unmarked_outer = Ip { tos: 0, ..inner };
    assert_eq!(propagate_ecn(&mut Window::new(&mut bytes), &unmarked_outer, &inner), Ok(0xba));
    assert_eq!(bytes, crate::tests::bytes(samples::SYN_TOS));
}

#[test]
fn the_mss_of_a_syn_is_lowered_and_never_raised() {
    becomes(samples::SYN, samples::SYN_CLAMPED, |w, ip| assert!(clamp_mss(w, ip, 1360)));
    becomes(samples::SYN_ODD, samples::SYN_ODD_CLAMPED, |w, ip| assert!(clamp_mss(w, ip, 1360)));
    becomes(samples::SYN_CLAMPED, samples::SYN_CLAMPED, |w, ip| {
        assert!(!clamp_mss(w, ip, 1400));
    });
    becomes(samples::OPTIONS4, samples::OPTIONS4, |w, ip| assert!(!clamp_mss(w, ip, 1)));
    becomes(samples::UDP4, samples::UDP4, |w, ip| assert!(!clamp_mss(w, ip, 1)));
}

#[test]
fn broken_tcp_options_end_the_search_for_the_mss() {
    for options in [[0, 2, 4, 33], [9, 0, 2, 4], [9, 1, 2, 4], [9, 255, 2, 4], [2, 3, 2, 2]] {
        let (mut bytes, ip) = packet(samples::SYN);
        bytes[40..44].copy_from_slice(&options);
        bytes[44..52].copy_from_slice(&[1; 8]);
        assert!(!clamp_mss(&mut Window::new(&mut bytes), &ip, 1));
    }
    let (mut bytes, ip) = packet(samples::SYN);
    bytes[32] = 0xf0; // A TCP header that exceeds the packet.
    assert!(!clamp_mss(&mut Window::new(&mut bytes), &ip, 1));
}

#[test]
fn incremental_nat_checksum_equals_full_sum() {
    let mut rng = Rng::with_seed(99);
    let four = |rng: &mut Rng| Addr::v4(rng.u32(..1 << 31) * 2 + 1);
    let six = |rng: &mut Rng| Addr { words: core::array::from_fn(|_| rng.u32(..1 << 31)) };
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        for sample in [samples::SYN, samples::UDP4, samples::UDP6, samples::ECHO6] {
            let (mut bytes, ip) = packet(sample);
            let address = |rng: &mut Rng| if ip.v6 { six(rng) } else { four(rng) };
            let to = Rewrite {
                src: address(&mut rng),
                dst: address(&mut rng),
                sport: rng.u16(..),
                dport: rng.u16(..),
            };
            nat(&mut Window::new(&mut bytes), &ip, &to).unwrap();
            let w = Window::new(&mut bytes);
            let now = Ip::parse(&w, 0, ip.ethertype()).unwrap();
            let field = crate::checksum::l4_field(&now).unwrap();
            assert_eq!(l4_full(&w, &now), w.load(usize::from(field)));
            assert!(now.v6 || ipv4_header_ok(&w, &now));
        }
    }
}

#[test]
fn reassembled_datagram_has_valid_checksum_after_nat() {
    let to = rewrite_to("10.0.2.10", 1024, "10.0.2.99", 5300);
    let mut reassembled: Vec<u8> = Vec::new();
    for sample in [samples::FRAGMENT4_FIRST, samples::FRAGMENT4_LATER] {
        let (mut part, ip) = packet(sample);
        assert_ne!(ip.fragment, Fragment::Whole);
        nat(&mut Window::new(&mut part), &ip, &to).unwrap();
        reassembled.extend(&part[if reassembled.is_empty() { 0 } else { 20 }..]);
    }
    // The third fragment's bytes, as scapy split them: 100 bytes of payload in total.
    reassembled.extend(88..100u8);
    let len = reassembled.len() as u16;
    reassembled[2..4].copy_from_slice(&len.to_be_bytes());
    (reassembled[6], reassembled[7]) = (0, 0);
    let w = Window::new(&mut reassembled);
    let ip = Ip::parse(&w, 0, 0x0800).unwrap();
    assert_eq!(l4_full(&w, &ip), w.load(26));
    assert_eq!(bytes(samples::FRAGMENT4_FIRST_NAT)[26..28], reassembled[26..28]);
}
