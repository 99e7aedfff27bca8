//! Tests of IPv6 extension headers and lengths.

use super::*;
use crate::ethernet::IPV6;
use crate::ip::L4;
use crate::tests::{bytes, packet, samples};

fn parse(bytes: &mut [u8]) -> Result<Ip, Malformed> {
    Ip::parse(&Window::new(bytes), 0, IPV6)
}

#[test]
fn extension_headers_are_walked() {
    let (bytes, ip) = packet(samples::EXTENSIONS6);
    assert_eq!((ip.proto, ip.kind), (6, L4::Tcp { flags: 0x18 }));
    assert_eq!((ip.sport, ip.dport, usize::from(ip.end)), (40000, 443, bytes.len()));
    assert_eq!(usize::from(ip.end - ip.l4), 23);
    let (_, ip) = packet(samples::AH6);
    assert_eq!((ip.proto, ip.l4, ip.sport, ip.dport), (17, 64, 1, 2));
}

/// Returns a packet with `n` destination options of 8 bytes, followed by UDP.
fn chain(n: usize) -> std::vec::Vec<u8> {
    let mut bytes = bytes(samples::UDP6);
    let rest = bytes.split_off(40);
    bytes[6] = 60;
    for i in 1..=n {
        bytes.extend([if i == n { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
    }
    bytes.extend(&rest);
    bytes[5] = (bytes.len() - 40) as u8;
    bytes
}

#[test]
fn eight_extension_headers_pass_and_nine_do_not() {
    assert_eq!(parse(&mut chain(8)).map(|ip| (ip.l4, ip.dport)), Ok((104, 53)));
    assert_eq!(parse(&mut chain(9)), Err(Malformed::Extension));
}

#[test]
fn extension_headers_past_the_end_are_rejected() {
    let mut long = chain(2);
    long[41] = 3;
    long[5] = 16;
    assert_eq!(parse(&mut long), Err(Malformed::Extension));
    let mut cut = chain(2);
    cut.truncate(47);
    assert_eq!(parse(&mut cut), Err(Malformed::Short));
}

#[test]
fn an_atomic_fragment_is_whole() {
    let mut first = bytes(samples::FRAGMENT6_FIRST);
    (first[42], first[43]) = (0, 0);
    let ip = parse(&mut first).unwrap();
    assert_eq!((ip.fragment, ip.kind, ip.fragment_id), (Fragment::Whole, L4::Udp, 0xdead_beef));
}

#[test]
fn no_next_header_is_a_protocol_like_others() {
    let mut bytes = bytes(samples::UDP6);
    (bytes[5], bytes[6]) = (0, 59);
    let ip = parse(&mut bytes).unwrap();
    assert_eq!((ip.kind, ip.l4, ip.end), (L4::Other, 40, 40));
}

#[test]
fn ipv4_mapped_addresses_are_rejected() {
    for at in [8, 24] {
        let mut bytes = bytes(samples::UDP6);
        bytes[at..at + 12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(parse(&mut bytes), Err(Malformed::Mapped));
    }
}
