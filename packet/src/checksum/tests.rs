//! Tests of full checksums against scapy's, and of incremental ones against full ones.

use super::*;
use crate::tests::{packet, samples};
use proptest::prelude::*;

/// Computes a checksum as RFC 1071 describes it: big-endian 16-bit words, carries added at the end.
fn reference_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn full_and_derived_checksums_equal_those_of_scapy() {
    for sample in [
        samples::SYN,
        samples::SYN_NAT,
        samples::UDP4,
        samples::UDP6,
        samples::UDP6_NAT,
        samples::ECHO4,
        samples::ECHO6,
        samples::ERROR4,
        samples::ERROR4_CUT,
        samples::ERROR6,
        samples::OPTIONS4,
        samples::EXTENSIONS6,
    ] {
        let (mut bytes, ip) = packet(sample);
        let w = Window::new(&mut bytes);
        if !ip.v6 {
            assert!(ipv4_header_ok(&w, &ip));
            assert_eq!(ipv4_header(&w, 0, usize::from(ip.l4)), w.load(10));
        }
        let field = l4_field(&ip).unwrap();
        assert_eq!(l4_full(&w, &ip), w.load(usize::from(field)), "{sample}");
        let total = w.sum(0, usize::from(ip.end)).unwrap();
        assert_eq!(fold(of_packet(&w, &ip).unwrap()), fold(total), "{sample}");
    }
}

#[test]
fn wrong_header_checksum_is_detected() {
    for sample in [samples::SYN, samples::OPTIONS4] {
        let (mut bytes, ip) = packet(sample);
        bytes[8] ^= 1;
        assert!(!ipv4_header_ok(&Window::new(&mut bytes), &ip));
    }
}

#[test]
fn a_udp_checksum_is_never_zero() {
    assert_eq!((udp_checksum(0), udp_checksum(1), udp_checksum(0xffff)), (0xffff, 1, 0xffff));
    // A datagram whose ports make the checksum 0.
    let (mut bytes, ip) = packet(samples::UDP4);
    let mut w = Window::new(&mut bytes);
    let sum = l4_full(&w, &ip).unwrap();
    // Adding the checksum to a covered word makes the new sum all ones.
    let port: u16 = w.load(20).unwrap();
    w.store(20, fold(u64::from(port) + u64::from(sum))).unwrap();
    assert_eq!(l4_full(&w, &ip), Ok(0xffff));
}

#[test]
fn later_fragment_has_no_checksum_field_and_is_summed_in_full() {
    let (mut bytes, ip) = packet(samples::FRAGMENT4_LATER);
    assert_eq!(l4_field(&ip), None);
    let w = Window::new(&mut bytes);
    assert_eq!(l4_full(&w, &ip), Err(Short));
    assert_eq!(of_packet(&w, &ip), w.sum(0, usize::from(ip.end)));
}

#[test]
fn datagram_with_a_udp_length_below_its_packets_is_summed_in_full() {
    let (mut bytes, ip) = packet(samples::UDP6);
    bytes[45] -= 1;
    let w = Window::new(&mut bytes);
    assert_eq!(of_packet(&w, &ip), w.sum(0, usize::from(ip.end)));
}

proptest! {
    // Failed cases are not stored in a file: a case can be repeated from its printed input, and
    // Miri has no access to files.
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn sums_are_those_of_the_rfc(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut copy = bytes.clone();
        let sum = Window::new(&mut copy).sum(0, bytes.len()).unwrap();
        prop_assert_eq!((!fold(sum)).to_be(), reference_checksum(&bytes));
    }

    #[test]
    fn incremental_update_equals_full_sum(
        mut bytes in prop::collection::vec(any::<u8>(), 40..200),
        at in 1usize..9,
        value in any::<u32>(),
        short in any::<u16>(),
    ) {
        // The first two bytes are the checksum field. The third is nonzero, as some byte of every
        // real header is: for zeros only, an update cannot distinguish the sums 0 and 0xffff.
        bytes[2] |= 1;
        (bytes[0], bytes[1]) = (0, 0);
        let sum = reference_checksum(&bytes);
        let word = |b: &[u8], at: usize| u32::from_ne_bytes(b[at..at + 4].try_into().unwrap());
        let mut changed = bytes.clone();
        changed[at * 4..at * 4 + 4].copy_from_slice(&value.to_ne_bytes());
        let quick = update(sum.to_be(), change32(word(&bytes, at * 4), value));
        prop_assert_eq!(quick.to_be(), reference_checksum(&changed));
        let half = u16::from_ne_bytes([changed[38], changed[39]]);
        changed[38..40].copy_from_slice(&short.to_ne_bytes());
        prop_assert_eq!(update16(quick, half, short).to_be(), reference_checksum(&changed));
    }

    #[test]
    fn incremental_address_update_equals_full_sum(
        old in any::<[u8; 16]>(),
        new in any::<[u8; 16]>(),
    ) {
        let full = |a: &[u8]| reference_checksum(&[&[1, 2], a].concat()).to_be();
        let (o, n) = (Addr::from_octets(old), Addr::from_octets(new));
        let quick = |old: &[u8], v6| update(full(old), change_addr(&o, &n, v6));
        prop_assert_eq!(quick(&old, true), full(&new));
        prop_assert_eq!(quick(&old[12..], false), full(&new[12..]));
    }

    #[test]
    fn folding_preserves_value_modulo_ffff_and_nonzero(
        words in prop::collection::vec(any::<u32>(), 0..64),
    ) {
        let sum: u64 = words.iter().map(|w| u64::from(*w)).sum();
        prop_assert_eq!(u64::from(fold(sum)) % 0xffff, sum % 0xffff);
        prop_assert!(sum == 0 || fold(sum) != 0);
    }

    #[test]
    fn folding_carries_from_every_half(sum in any::<u64>(), low in 0u64..3) {
        for sum in [sum, sum | 0xffff_ffff, sum | 0xffff_ffff_0000_0000, u64::MAX - low] {
            prop_assert_eq!(u64::from(fold(sum)) % 0xffff, sum % 0xffff);
        }
    }

    #[test]
    fn derived_sum_equals_the_reference_for_any_payload(
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        for sample in [samples::SYN, samples::UDP6, samples::ECHO6, samples::ECHO4] {
            let (mut bytes, mut ip) = packet(sample);
            bytes.truncate(usize::from(ip.l4) + 20.min(usize::from(ip.end - ip.l4)));
            bytes.extend(&payload);
            let len = bytes.len();
            let at = if ip.v6 { 4 } else { 2 };
            let stated = (len - if ip.v6 { 40 } else { 0 }) as u16;
            bytes[at..at + 2].copy_from_slice(&stated.to_be_bytes());
            if ip.proto == 17 {
                let udp_len = (len - usize::from(ip.l4)) as u16;
                bytes[44..46].copy_from_slice(&udp_len.to_be_bytes());
            }
            ip.end = len as u16;
            let mut w = Window::new(&mut bytes);
            if !ip.v6 {
                let sum = ipv4_header(&w, 0, 20).unwrap();
                w.store(10, sum).unwrap();
            }
            let sum = l4_full(&w, &ip).unwrap();
            w.store(usize::from(l4_field(&ip).unwrap()), sum).unwrap();
            let derived = fold(of_packet(&w, &ip).unwrap());
            prop_assert_eq!(!derived.to_be(), reference_checksum(&bytes));
        }
    }
}
