//! Tests of translated packets against those that a sender of the other family would have sent.

use super::*;
use crate::checksum::{self, ipv4_header_ok, l4_full};
use crate::tests::{packet as sample, samples};
use std::net::IpAddr;
use std::vec::Vec;

use fastrand::Rng;

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

fn ends(src: &str, sport: u16, dst: &str, dport: u16) -> Rewrite {
    Rewrite { src: addr(src), sport, dst: addr(dst), dport }
}

fn six() -> Rewrite {
    ends("fd00::10", 1024, "fd00::99", 8080)
}

fn four() -> Rewrite {
    ends("10.0.2.10", 1024, "10.0.2.99", 8080)
}

/// Translates a packet to the addresses of [`six`] or [`four`], and returns the result with its
/// parsed headers.
fn translated(bytes: &mut Vec<u8>, ip: &Ip) -> (Vec<u8>, Ip) {
    let to = if ip.v6 { four() } else { six() };
    let mut out = harness::translated(bytes, ip, &to).unwrap();
    let now = Ip::parse(&Window::new(&mut out), 0, if ip.v6 { 0x0800 } else { 0x86dd }).unwrap();
    (out, now)
}

/// Returns the reason for which the packet cannot be translated.
fn rejection(bytes: &mut [u8], ip: &Ip) -> Untranslatable {
    let to = if ip.v6 { four() } else { six() };
    let w = &mut Window::new(bytes);
    match icmp::quoted(w, ip) {
        Ok(quoted) => error(w, ip, &quoted, &to, &to),
        Err(_) => packet(w, ip, &to),
    }
    .unwrap_err()
}

/// Addresses of [`six`] and [`four`] in wire format.
const SIX: &str = "fd000000000000000000000000000010fd000000000000000000000000000099";
const FOUR: &str = "0a00020a0a000263";

#[track_caller]
fn begins(packet: &[u8], header: &str, ends: &str) {
    let expected = crate::tests::bytes(&(std::string::String::from(header) + ends));
    assert_eq!(packet[..expected.len()], expected, "{packet:02x?}");
}

#[test]
fn headers_translate_to_the_other_family() {
    for (name, header) in [
        (samples::SYN, "6b8000000020063c"),
        (samples::UDP4, "60000000000d1109"),
        (samples::UDP4_ZERO, "60000000000d1109"),
        (samples::ECHO4, ""),
        (samples::ECHO4_REPLY, ""),
        (samples::OPTIONS4, "60000000001d0640"),
        (samples::UDP6, "45b80029"),
        (samples::EXTENSIONS6, "4500002b"),
        (samples::ECHO6, ""),
        (samples::ECHO6_REPLY, ""),
    ] {
        let (mut bytes, ip) = sample(name);
        let (mut out, now) = translated(&mut bytes, &ip);
        begins(&out, &header.replace(' ', ""), "");
        begins(&out[if now.v6 { 8 } else { 12 }..], "", if now.v6 { SIX } else { FOUR });
        let w = Window::new(&mut out);
        assert_eq!(l4_full(&w, &now), w.load(usize::from(checksum::l4_field(&now).unwrap())));
        assert!(now.v6 || ipv4_header_ok(&w, &now));
        assert_eq!((now.ttl, now.tos, now.kind), (ip.ttl, ip.tos, ip.kind));
        let reply = now.kind == L4::IcmpEcho { request: false };
        assert_eq!(now.sport, if reply { 8080 } else { 1024 });
        // The payload stays unchanged.
        assert_eq!(out.last(), bytes.last());
    }
}

#[test]
fn only_small_packets_may_be_fragmented_in_ipv4() {
    for (len, df) in [(1_260, false), (1_261, true)] {
        let (mut bytes, _) = sample(samples::UDP6);
        bytes.resize(len + 20, 7);
        bytes[4..6].copy_from_slice(&(len as u16 - 20).to_be_bytes());
        let ip = Ip::parse(&Window::new(&mut bytes), 0, 0x86dd).unwrap();
        let (out, now) = translated(&mut bytes, &ip);
        assert_eq!((out.len(), now.df), (len, df));
        assert_eq!(now.fragment_id == 0, df, "a packet without DF has an identification");
    }
}

#[test]
fn fragments_stay_fragments() {
    for (name, header) in [
        (samples::FRAGMENT6_FIRST, "4500005c beef2000 40"),
        (samples::FRAGMENT6_LATER, "4500004c beef0009 40"),
    ] {
        let (mut bytes, ip) = sample(name);
        let (out, now) = translated(&mut bytes, &ip);
        begins(&out, &header.replace(' ', ""), "11");
        assert_eq!((now.fragment, now.df), (ip.fragment, false));
    }
    for name in [samples::FRAGMENT4_FIRST, samples::FRAGMENT4_LATER] {
        let (mut bytes, ip) = sample(name);
        let (mut out, now) = translated(&mut bytes, &ip);
        let part = u16::from_be_bytes([bytes[6], bytes[7]]);
        assert_eq!(out[6], 44);
        let w = Window::new(&mut out);
        assert_eq!(w.be16(42), Ok((part & 0x1fff) << 3 | part >> 13 & 1));
        assert_eq!((now.fragment, now.fragment_id), (ip.fragment, ip.fragment_id));
    }
}

#[test]
fn fragmented_datagram_has_valid_checksum_after_reassembly() {
    let (mut first, ip) = sample(samples::FRAGMENT4_FIRST);
    let (mut reassembled, now) = translated(&mut first, &ip);
    let (mut later, ip) = sample(samples::FRAGMENT4_LATER);
    reassembled.extend_from_slice(&translated(&mut later, &ip).0[48..]);
    // The third fragment's bytes, as scapy split them: 100 bytes of payload in total.
    reassembled.extend(88..100u8);
    reassembled.drain(40..48);
    reassembled[6] = 17;
    let len = (reassembled.len() - 40) as u16;
    reassembled[4..6].copy_from_slice(&len.to_be_bytes());
    let w = Window::new(&mut reassembled);
    let joined = Ip::parse(&w, 0, 0x86dd).unwrap();
    assert_eq!((joined.src, joined.fragment), (now.src, Fragment::Whole));
    assert_eq!(l4_full(&w, &joined), w.load(46));
}

#[test]
fn translated_errors_quote_the_translated_packet() {
    for (name, expected) in [
        (samples::ERROR4, [2, 0]),
        (samples::ERROR4_UDP, [1, 4]),
        (samples::ERROR4_NAT, [2, 0]),
        (samples::TOO_BIG4, [2, 0]),
        (samples::ERROR6, [3, 4]),
        (samples::EXCEEDED6, [11, 0]),
    ] {
        let (mut bytes, ip) = sample(name);
        let before = icmp::quoted(&Window::new(&mut bytes), &ip).unwrap();
        let (mut out, now) = translated(&mut bytes, &ip);
        assert_eq!(out[usize::from(now.l4)..][..2], expected, "{name}");
        let w = Window::new(&mut out);
        assert_eq!(l4_full(&w, &now), w.load(usize::from(now.l4) + 2), "{name}");
        let quote = icmp::quoted(&w, &now).unwrap();
        assert_eq!((quote.src, quote.sport), (now.src, 1024));
        assert_eq!((quote.ttl, quote.tos, quote.proto), (before.ttl, before.tos, before.proto));
        assert_eq!(quote.end - quote.l4, before.end - before.l4);
        if quote.kind == L4::Udp && quote.end == now.end {
            assert_eq!(l4_full(&w, &quote), w.load(usize::from(quote.l4) + 6), "{name}");
        }
        let claimed = icmp::stated_len(&Window::new(&mut bytes), &before).unwrap();
        let translated_len = icmp::stated_len(&Window::new(&mut out), &quote).unwrap();
        assert_eq!(
            claimed - (before.l4 - before.at),
            translated_len - (quote.l4 - quote.at),
            "{name}"
        );
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    for name in [samples::SYN, samples::UDP6, samples::ECHO4, samples::ERROR4, samples::ERROR6] {
        let (mut bytes, ip) = sample(name);
        let field = usize::from(checksum::l4_field(&ip).unwrap());
        bytes[field] ^= 0x55;
        let (mut out, now) = translated(&mut bytes, &ip);
        let w = Window::new(&mut out);
        assert_ne!(l4_full(&w, &now), w.load(usize::from(checksum::l4_field(&now).unwrap())));
    }
}

#[test]
fn udp_without_checksum_is_rejected_towards_ipv6_and_accepted_towards_ipv4() {
    let (mut bytes, ip) = sample(samples::UDP4_ZERO);
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::ZeroUdpChecksum);
    bytes[25] += 1;
    let completed = add_udp_checksum(&mut Window::new(&mut bytes), &ip);
    assert_eq!(completed, Err(Short), "the UDP length is not that of the packet");
    let (mut bytes, ip) = sample(samples::FRAGMENT4_FIRST);
    bytes[26..28].fill(0);
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    // IPv6 has no UDP without a checksum except in tunnels (RFC 6935); IPv4 accepts it.
    let (mut bytes, ip) = sample(samples::UDP6);
    bytes[46..48].fill(0);
    let (out, _) = translated(&mut bytes, &ip);
    assert_eq!(out[26..28], [0, 0]);
}

#[test]
fn untranslatable_packets_are_rejected() {
    // A source route with a remaining hop; a completed one is omitted like other options.
    let (mut bytes, mut ip) = sample(samples::OPTIONS4);
    for kind in [131, 137] {
        bytes[20] = kind;
        assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
        bytes[22] = 8;
        assert!(packet(&mut Window::new(&mut bytes), &ip, &six()).is_ok());
        bytes[22] = 4;
    }
    ip.kind = L4::Other;
    bytes[20] = 7;
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    // A routing header with a remaining segment; an authentication header.
    let (mut bytes, ip) = sample(samples::EXTENSIONS6);
    bytes[51] = 1;
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    let (mut bytes, ip) = sample(samples::AH6);
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    // Fragments of ICMP messages, and an error that is a fragment.
    for fragment in [Fragment::First, Fragment::Later] {
        let (mut bytes, mut ip) = sample(samples::ECHO4);
        ip.fragment = fragment;
        if fragment == Fragment::Later {
            ip.kind = L4::None;
        }
        assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
        let (mut bytes, mut ip) = sample(samples::ERROR4);
        ip.fragment = fragment;
        assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    }
    // An error without an equivalent in the other family.
    let (mut bytes, ip) = sample(samples::ERROR4);
    (bytes[20], bytes[21]) = (5, 1);
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
    // A payload that does not fit in an IPv6 packet of 65,535 bytes.
    let (mut bytes, mut ip) = sample(samples::UDP4);
    ip.end = u16::MAX;
    assert_eq!(rejection(&mut bytes, &ip), Untranslatable::NoEquivalent);
}

#[test]
fn sender_mtu_is_in_the_senders_family() {
    let (_, four) = sample(samples::SYN);
    let (_, six) = sample(samples::UDP6);
    let (_, first_fragment) = sample(samples::FRAGMENT4_FIRST);
    assert_eq!(sender_mtu(&four, 1_500), 1_480);
    assert_eq!(sender_mtu(&first_fragment, 1_500), 1_472);
    assert_eq!(sender_mtu(&six, 1_500), 1_520);
    assert_eq!(sender_mtu(&six, 1_000), 1_280);
    assert_eq!(sender_mtu(&six, u16::MAX), u16::MAX);
    for (ip, mtu) in [(four, 1_500), (first_fragment, 1_500), (six, 1_500)] {
        let reported = sender_mtu(&ip, mtu);
        let fits = Ip { end: ip.at + reported, ..ip };
        assert!(translated_len(&fits, None) <= u32::from(mtu));
    }
}

#[test]
fn incremental_checksum_equals_full_sum_for_any_addresses() {
    let mut rng = Rng::with_seed(64);
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        for name in [samples::SYN, samples::UDP4, samples::ECHO4, samples::UDP6, samples::ECHO6] {
            let (mut bytes, ip) = sample(name);
            let mut word = || rng.u32(..1 << 31) * 2 + 1;
            let mut address = || match ip.v6 {
                true => Addr::v4(word()),
                false => Addr { words: core::array::from_fn(|_| word()) },
            };
            let (src, dst) = (address(), address());
            let to = Rewrite { src, sport: word() as u16, dst, dport: word() as u16 };
            let mut out = harness::translated(&mut bytes, &ip, &to).unwrap();
            let w = Window::new(&mut out);
            let now = Ip::parse(&w, 0, if ip.v6 { 0x0800 } else { 0x86dd }).unwrap();
            let field = checksum::l4_field(&now).unwrap();
            assert_eq!(l4_full(&w, &now), w.load(usize::from(field)));
        }
    }
}
