//! Tests of IPv4 options, lengths and fragments.

use super::*;
use crate::ethernet::IPV4;
use crate::ip::L4;
use crate::tests::{bytes, packet, samples};

fn parse(bytes: &mut [u8]) -> Result<Ip, Malformed> {
    Ip::parse(&Window::new(bytes), 0, IPV4)
}

#[test]
fn options_are_skipped() {
    let (_, ip) = packet(samples::OPTIONS4);
    assert_eq!((ip.l4, ip.kind, ip.sport), (28, L4::Tcp { flags: 16 }, 40000));
}

#[test]
fn header_length_below_twenty_or_beyond_the_packet_is_rejected() {
    let mut packet = bytes(samples::SYN);
    for words in 0..5 {
        packet[0] = 0x40 | words;
        assert_eq!(parse(&mut packet), Err(Malformed::IpHeaderLength));
    }
    packet[0] = 0x4f;
    assert_eq!(parse(&mut packet), Err(Malformed::IpHeaderLength));
    packet[0] = 0x4c;
    packet[3] = 48;
    packet[9] = 99;
    assert_eq!(parse(&mut packet).map(|ip| (ip.l4, ip.end)), Ok((48, 48)));
}

#[test]
fn total_length_below_the_header_is_rejected() {
    let mut packet = bytes(samples::SYN);
    packet[3] = 19;
    assert_eq!(parse(&mut packet), Err(Malformed::IpLength));
    packet[3] = 0;
    assert_eq!(parse(&mut packet), Err(Malformed::IpLength));
}

#[test]
fn df_bit_is_parsed_and_marks_no_fragment() {
    let mut packet = bytes(samples::UDP4);
    assert!(!parse(&mut packet).unwrap().df);
    packet[6] = 0x40;
    let ip = parse(&mut packet).unwrap();
    assert!(ip.df && ip.fragment == Fragment::Whole);
    packet[6] = 0x80; // The reserved bit is ignored.
    assert_eq!(parse(&mut packet).map(|ip| ip.fragment), Ok(Fragment::Whole));
}

#[test]
fn invalid_fragments_are_rejected() {
    assert_eq!(fragment(1, 8, TCP), Err(Malformed::Fragment));
    assert_eq!(fragment(1, 8, 17), Ok(Fragment::Later));
    assert_eq!(fragment(8191, 7, 17), Ok(Fragment::Later));
    assert_eq!(fragment(8191, 8, 17), Err(Malformed::Fragment));
    // RFC 1858: a first fragment that is too short for the TCP flags.
    let mut tiny = bytes(samples::SYN);
    (tiny[3], tiny[6]) = (28, 0x20);
    assert_eq!(parse(&mut tiny), Err(Malformed::Transport));
}
