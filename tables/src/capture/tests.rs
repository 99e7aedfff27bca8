//! Tests of filters and records.

use super::*;
use std::net::IpAddr;

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

fn facts() -> PacketFacts {
    PacketFacts {
        client: addr("192.0.2.7"),
        frontend: addr("203.0.113.10"),
        service: 5,
        client_port: 40_001,
        frontend_port: 443,
        proto: 6,
        reason: NO_REASON,
        arm: 1,
        direction: REPLY,
    }
}

#[test]
fn ranges_contain_the_addresses_of_their_prefix_only() {
    let range = AddrRange::new(addr("192.0.2.129"), 96 + 25);
    assert!(range.contains(&addr("192.0.2.128")) && range.contains(&addr("192.0.2.255")));
    assert!(!range.contains(&addr("192.0.2.127")) && !range.contains(&addr("2001:db8::1")));
    let range = AddrRange::new(addr("2001:db8::1"), 128);
    assert!(range.contains(&addr("2001:db8::1")) && !range.contains(&addr("2001:db8::2")));
    let any = AddrRange::new(addr("192.0.2.1"), 0);
    assert_eq!(any, AddrRange::default());
    assert!(any.contains(&addr("::")) && any.contains(&addr("255.255.255.255")));
    for len in 0..=128 {
        let range = AddrRange::new(addr("2001:db8:7:8:9:a:b:c"), len);
        let outside = addr("1234:5678:9abc:def0:1234:5678:9abc:def0");
        assert!(range.contains(&addr("2001:db8:7:8:9:a:b:c")));
        let same = addr("2001:db8:7:8:9:a:b:c").in_prefix(&outside, len);
        assert_eq!(range.contains(&outside), same, "{len}");
    }
}

#[test]
fn every_condition_excludes_a_packet() {
    let all = CaptureFilter {
        client: AddrRange::new(addr("192.0.2.0"), 96 + 24),
        frontend: AddrRange::new(addr("203.0.113.10"), 128),
        services: [3, 5, NONE, NONE, NONE, NONE, NONE, NONE],
        service_count: 2,
        client_port: 40_001,
        frontend_port: 443,
        proto: 6,
        reason: NO_REASON,
        arm: 1,
        direction: REPLY,
        ..CaptureFilter::default()
    };
    // The reason of a packet that was not dropped is the value that matches any packet.
    assert_eq!(NO_REASON, ANY);
    assert!(all.matches(&facts()) && CaptureFilter::default().matches(&facts()));
    for other in [
        PacketFacts { client: addr("192.0.3.7"), ..facts() },
        PacketFacts { frontend: addr("203.0.113.11"), ..facts() },
        PacketFacts { service: 4, ..facts() },
        PacketFacts { service: NONE, ..facts() },
        PacketFacts { client_port: 40_002, ..facts() },
        PacketFacts { frontend_port: 80, ..facts() },
        PacketFacts { proto: 17, ..facts() },
        PacketFacts { arm: 0, ..facts() },
        PacketFacts { direction: REQUEST, ..facts() },
    ] {
        assert!(!all.matches(&other), "{other:?}");
    }
    let dropped = CaptureFilter { reason: 3, ..CaptureFilter::default() };
    assert!(!dropped.matches(&facts()) && dropped.matches(&PacketFacts { reason: 3, ..facts() }));
}

#[test]
fn filters_round_trip_and_invalid_words_are_limited() {
    let filter = CaptureFilter {
        client: AddrRange::new(addr("2001:db8::"), 32),
        frontend: AddrRange::new(addr("203.0.113.10"), 128),
        services: [1, 2, 3, 4, 5, 6, 7, u32::MAX - 1],
        service_count: 8,
        client_port: 1,
        frontend_port: u16::MAX,
        proto: 17,
        reason: 9,
        arm: 0,
        direction: REQUEST,
        stage: AFTER,
        spare: 0,
        snap: 64,
    };
    assert_eq!(CaptureFilter::from_words(&filter.words()), filter);
    let wild = CaptureFilter::from_words(&[u64::MAX; FILTER_WORDS]);
    assert_eq!((wild.service_count, wild.snap), (MAX_SERVICES as u32, MAX_SNAP));
    assert_eq!(CaptureFilter::from_words(&[0; FILTER_WORDS]).snap, MIN_SNAP);
    assert!(filter.wants(AFTER) && !filter.wants(BEFORE));
}

#[test]
fn record_heads_round_trip_and_other_words_are_rejected() {
    let head = RecordHead {
        len: MAX_SNAP,
        frame_len: 9_001,
        time_ns: u64::MAX,
        service: 7,
        backend: NONE,
        packet: 0x0102_0304,
        lcore: 0xabcd,
        capture: 1,
        verdict: VerdictCounter::Drop as u8,
        reason: 200,
        arm: 1,
        exit_arm: 2,
        exit: EXIT_KERNEL,
        stage: AFTER,
        direction: REPLY,
    };
    assert_eq!(RecordHead::from_words(&head.words()), Some(head));
    assert_eq!(head.verdict(), Some(VerdictCounter::Drop));
    assert_eq!(RecordHead::from_words(&[0; HEAD_WORDS]), None);
    assert_eq!(RecordHead::from_words(&[u64::MAX; HEAD_WORDS]), None);
    let long = RecordHead { len: MAX_SNAP + 1, ..head };
    assert_eq!(RecordHead::from_words(&long.words()), None);
}

#[test]
fn rules_of_traces_match_all_given_fields() {
    let any = TraceRule {
        src: AddrRange::default(),
        dst: AddrRange::default(),
        sport: TraceRule::ANY,
        dport: TraceRule::ANY,
        proto: TraceRule::ANY,
        spare: 0,
    };
    let (a, b) = (addr("192.0.2.1"), addr("2001:db8::2"));
    assert!(any.matches(&a, 0, &b, u16::MAX, u8::MAX));
    let one = TraceRule { src: AddrRange::new(a, 128), dport: 443, proto: 6, ..any };
    assert!(one.matches(&a, 9, &b, 443, 6) && !one.matches(&b, 9, &b, 443, 6));
    assert!(!one.matches(&a, 9, &b, 444, 6) && !one.matches(&a, 9, &b, 443, 17));
    // The layout in memory, as the programs read it.
    let words = one.words();
    assert_eq!((words[8] >> 32, words[9]), (443, 6));
}

#[test]
fn reports_of_traces_round_trip() {
    use crate::command::Stage;
    let report = TraceReport {
        packet: 0x0102_0304,
        lcore: 0xabcd,
        stage: TracedStage::Encap as u8,
        verdict: VerdictCounter::Drop as u8,
        reason: 77,
        exit: EXIT_KERNEL,
        exit_arm: 1,
        arm: 1,
        has_flow: true,
        service: 5,
        backend: NONE,
        scope: 9,
        bytes: 1500,
        hash: u64::MAX,
        sport: 1,
        dport: u16::MAX,
    };
    assert_eq!(TraceReport::from_words(&report.words()), report);
    let numbers = [
        (TracedStage::Decap, Stage::Decap),
        (TracedStage::Classify, Stage::Classify),
        (TracedStage::Track, Stage::Track),
        (TracedStage::Select, Stage::Select),
        (TracedStage::Encap, Stage::Encap),
    ];
    assert!(numbers.iter().all(|(one, other)| *one as u8 == *other as u8));
    assert_eq!(TracedStage::Encap as u8, Stage::LAST as u8);
}
