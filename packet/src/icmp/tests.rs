//! Answers of our own against those that scapy builds.

use super::*;
use crate::tests::{bytes, packet, samples};
use std::net::IpAddr;
use std::vec;

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

#[test]
fn an_echo_is_answered_in_place() {
    for (ask, answer) in
        [(samples::ECHO4, samples::ECHO4_REPLY), (samples::ECHO6, samples::ECHO6_REPLY)]
    {
        let (mut packet, ip) = packet(ask);
        echo_reply(&mut Window::new(&mut packet), &ip).unwrap();
        assert_eq!(packet, bytes(answer));
    }
}

#[test]
fn errors_quote_the_packet_that_they_are_about() {
    for (about, what, expected) in [
        (samples::SYN, Trouble::TooBig(1400), samples::TOO_BIG4),
        (samples::UDP6, Trouble::TimeExceeded, samples::EXCEEDED6),
    ] {
        let (packet, ip) = packet(about);
        let mut frame = vec![0xee; error_header(&ip)];
        frame.extend(&packet[..quote_len(&ip)]);
        write_error(&mut Window::new(&mut frame), 0, &ip, what).unwrap();
        assert_eq!(frame, bytes(expected));
    }
}

#[test]
fn quotes_are_as_long_as_the_rfcs_allow() {
    let (_, four) = packet(samples::SYN);
    let (_, six) = packet(samples::UDP6);
    for (ip, most) in [(four, 576), (six, 1280)] {
        let len = |end| quote_len(&Ip { end, ..ip }) + error_header(&ip);
        assert_eq!(len(8500), most);
        assert_eq!(len(100), 100 + error_header(&ip));
    }
}

#[test]
fn the_other_kinds_of_error() {
    let kinds = [
        (samples::SYN, Trouble::TimeExceeded, [11, 0], [0, 0, 0, 0]),
        (samples::UDP6, Trouble::TooBig(1400), [2, 0], [0, 0, 5, 120]),
    ];
    for (about, what, kind, rest) in kinds {
        let (packet, ip) = packet(about);
        let l4 = error_header(&ip) - 8;
        let mut frame = vec![0; l4 + 8];
        frame.extend(&packet);
        write_error(&mut Window::new(&mut frame), 0, &ip, what).unwrap();
        assert_eq!((&frame[l4..l4 + 2], &frame[l4 + 4..l4 + 8]), (&kind[..], &rest[..]));
        assert_eq!(frame[l4 + 8..], packet[..]);
    }
}

#[test]
fn nobody_is_told_of_trouble_with_what_may_not_be_answered() {
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
    // A redirect, and an error of a type that nobody knows.
    let (mut bytes, _) = packet(samples::ECHO6);
    for kind in [137, 100, 135] {
        bytes[40] = kind;
        assert!(!may_answer(&Ip::parse(&Window::new(&mut bytes), 0, 0x86dd).unwrap()));
    }
}
