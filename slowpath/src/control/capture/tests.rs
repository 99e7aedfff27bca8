//! Tests of requests, of the slots of arms, and of the file's contents.

use super::records::Names;
use super::*;
use config::checked::Plane;
use packet::addr::Addr;
use std::net::IpAddr;
use tables::capture::{
    AFTER, ANY, AddrRange, BEFORE, EXIT_NONE, EXIT_PORT, NO_REASON, REQUEST, RecordHead,
};
use tables::counters::VerdictCounter;
use tables::reason::DropReason;
use tables::record::NONE;

fn check(query: &CaptureQuery) -> Result<CaptureRequest, String> {
    query.check_with(&[], 2, Plane::Dpdk)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn all_conditions_become_the_filter() {
    let query = CaptureQuery {
        client: some("192.0.2.0/24"),
        frontend: some("[2001:db8::10]:443"),
        protocol: some("tcp"),
        drop_reason: some("no_backend"),
        arm: some("egress"),
        direction: some("reply"),
        stage: some("before"),
        count: Some(5),
        seconds: Some(600),
        bytes: Some(256 << 20),
        snap: Some(64),
        ..CaptureQuery::default()
    };
    let request = check(&query).unwrap();
    let addr = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
    let filter = request.filter;
    assert_eq!(filter.client, AddrRange::new(addr("192.0.2.0"), 96 + 24));
    assert_eq!(filter.frontend, AddrRange::new(addr("2001:db8::10"), 128));
    assert_eq!((filter.client_port, filter.frontend_port, filter.proto), (0, 443, 6));
    assert_eq!(filter.reason, DropReason::NoBackend as u8);
    assert_eq!((filter.arm, filter.direction, filter.stage, filter.snap), (1, 1, 0, 64));
    assert_eq!((request.packets, request.duration.as_secs()), (5, 600));
    assert_eq!((request.arms(), request.arms_text()), ([false, true], "egress"));
    assert!(request.text.starts_with("client=192.0.2.0/24 frontend=[2001:db8::10]:443 protocol"));
    let all = check(&CaptureQuery::default()).unwrap();
    assert_eq!((all.filter.snap, all.packets, all.duration.as_secs()), (192, 10_000, 60));
    assert_eq!((all.arms(), all.text.as_str()), ([true, true], "all packets"));
    assert_eq!(all.filter.service_count, 0);
}

#[test]
fn every_wrong_parameter_is_named_with_what_is_allowed() {
    type Edit = fn(&mut CaptureQuery);
    let with = |change: Edit| {
        let mut query = CaptureQuery::default();
        change(&mut query);
        check(&query).unwrap_err()
    };
    let cases: [(Edit, &str, &str); 17] = [
        (|q| q.client = some("web"), "--client web", "ADDRESS:PORT"),
        (|q| q.client = some("192.0.2.0/33"), "--client 192.0.2.0/33", "ADDRESS/LENGTH"),
        (|q| q.frontend = some("2001:db8::/x"), "--frontend 2001:db8::/x", "ADDRESS/LENGTH"),
        (|q| q.service = some("web"), "--service web", "weir services"),
        (|q| q.protocol = some("tpc"), "--protocol tpc", "icmpv6"),
        (|q| q.protocol = some("255"), "--protocol 255", "up to 254"),
        (|q| q.drop_reason = some("no"), "--drop-reason no", "weir drops --all"),
        (|q| q.drop_reason = some("punt_full"), "--drop-reason punt_full", "weir drops"),
        (|q| q.drop_reason = some("nic_unavailable"), "reason nic_unavailable", "weir drops"),
        (|q| q.drop_reason = some("tx_queue_full"), "--drop-reason tx_queue_full", "weir drops"),
        (|q| q.arm = some("both"), "--arm both", "ingress or egress"),
        (|q| q.direction = some("in"), "--direction in", "request or reply"),
        (|q| q.stage = some("all"), "--stage all", "before or after"),
        (|q| q.count = Some(0), "--count 0", "from 1 to 1000000"),
        (|q| q.seconds = Some(601), "--seconds 601", "from 1 to 600"),
        (|q| q.bytes = Some(1 << 40), "--bytes 1099511627776", "from 4096 to 268435456"),
        (|q| q.snap = Some(257), "--snap 257", "from 64 to 256"),
    ];
    for (change, what, allowed) in cases {
        let error = with(change);
        assert!(error.contains(what) && error.contains(allowed), "{error}");
    }
    let one_arm = CaptureQuery { arm: some("egress"), ..CaptureQuery::default() };
    let error = one_arm.check_with(&[], 1, Plane::Dpdk).unwrap_err();
    assert_eq!(error, "--arm egress: write ingress");
    let after = CaptureQuery {
        drop_reason: some("no_backend"),
        stage: some("after"),
        ..CaptureQuery::default()
    };
    assert!(check(&after).unwrap_err().contains("--stage after"));
    for (name, reason) in [
        ("ttl_exceeded", DropReason::TtlExceeded),
        ("too_big_answered", DropReason::TooBigAnswered),
    ] {
        let request = check(&CaptureQuery { drop_reason: some(name), ..after.clone() }).unwrap();
        assert_eq!((request.filter.reason, request.filter.stage), (reason as u8, AFTER));
    }
    let queue = CaptureQuery { drop_reason: some("tx_queue_full"), ..CaptureQuery::default() };
    let request = queue.check_with(&[], 2, Plane::Xdp).unwrap();
    assert_eq!(request.filter.reason, DropReason::TxQueueFull as u8);
    let highest = CaptureQuery { protocol: some("254"), ..CaptureQuery::default() };
    assert_eq!(check(&highest).unwrap().filter.proto, 254);
}

#[test]
fn each_arm_has_one_capture_at_a_time() {
    let slots = CaptureSlots::default();
    let both = slots.take([true, true]).unwrap();
    assert!(slots.take([true, false]).is_none() && slots.take([false, true]).is_none());
    assert_eq!(both.number(), 0);
    drop(both);
    let ingress = slots.take([true, false]).unwrap();
    assert!(slots.take([true, true]).is_none());
    let egress = slots.take([false, true]).unwrap();
    assert_eq!((ingress.number(), egress.number()), (0, 1));
    drop(ingress);
    assert!(slots.take([true, true]).is_none());
    drop(egress);
    assert!(slots.take([true, true]).is_some());
}

fn head(packet: u32, stage: u8) -> RecordHead {
    RecordHead {
        len: 60,
        frame_len: 60,
        time_ns: 1_000,
        service: 3,
        backend: 9,
        packet,
        lcore: 2,
        capture: 0,
        verdict: VerdictCounter::Nat as u8,
        reason: NO_REASON,
        arm: 0,
        exit_arm: 1,
        exit: EXIT_PORT,
        stage,
        direction: REQUEST,
    }
}

/// Returns the types of the blocks of a file.
fn blocks(mut file: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !file.is_empty() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        kinds.push(word(0));
        let len = word(4) as usize;
        assert_eq!(word(len - 4) as usize, len);
        file = &file[len..];
    }
    kinds
}

const SECTION: u32 = 0x0a0d_0d0a;

/// Returns the names that are published before the first record.
fn named(names: impl Fn() -> Names + 'static) -> Naming {
    Naming::with(move || Some(names()))
}

#[test]
fn a_number_that_is_used_again_has_the_new_name() {
    let request = check(&CaptureQuery::default()).unwrap();
    let mut published = vec![
        Some(Names::fixed(&[(3, "shop/new")], &[(9, "10.0.2.12:80")])),
        None,
        Some(Names::fixed(&[(3, "shop/old")], &[(9, "10.0.2.11:80")])),
    ];
    let naming = Naming::with(move || published.pop().flatten());
    let mut records = Records::new(&request, naming, 0, 1);
    let mut out = records.begin();
    for packet in 1..=4 {
        records.add(&mut out, &head(packet, BEFORE), &[0; 60]);
    }
    let text = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(text.matches("service=shop/old backend=10.0.2.11:80 ").count(), 2);
    assert_eq!(text.matches("service=shop/new backend=10.0.2.12:80 ").count(), 2);
}

#[test]
fn comments_have_names_and_limits_keep_both_records_of_a_packet() {
    let request = check(&CaptureQuery { count: Some(2), ..CaptureQuery::default() }).unwrap();
    let naming = named(|| Names::fixed(&[(3, "shop/web")], &[(9, "10.0.2.11:8080")]));
    let mut records = Records::new(&request, naming, 5_000, 1);
    let mut out = records.begin();
    assert_eq!(blocks(&out), [SECTION, 1, 1]);
    for packet in 1..=3 {
        for stage in [BEFORE, AFTER] {
            records.add(&mut out, &head(packet, stage), &[0; 60]);
        }
    }
    assert!(records.is_complete());
    assert_eq!(records.packets(), 2);
    records.end(&mut out, [0, 7], 9);
    assert_eq!(blocks(&out), [SECTION, 1, 1, 6, 6, 6, 6, 5, 5]);
    let text = String::from_utf8_lossy(&out).into_owned();
    let before = "verdict=nat reason=- service=shop/web backend=10.0.2.11:8080 arm=ingress \
                  exit=egress lcore=2 stage=before";
    assert_eq!(text.matches(before).count(), 2);
    assert_eq!(text.matches("stage=after").count(), 2);
}

#[test]
fn unknown_numbers_are_shown_and_dropped_packets_have_their_reason() {
    let request = check(&CaptureQuery { bytes: Some(4096), ..CaptureQuery::default() }).unwrap();
    let mut records = Records::new(&request, named(Names::default), 0, 1);
    let mut out = records.begin();
    let dropped = RecordHead {
        verdict: VerdictCounter::Drop as u8,
        reason: DropReason::NoBackend as u8,
        backend: NONE,
        exit: EXIT_NONE,
        ..head(1, BEFORE)
    };
    records.add(&mut out, &dropped, &[0; 60]);
    let wild = RecordHead { verdict: 200, reason: 254, arm: 9, exit_arm: 7, ..dropped };
    records.add(&mut out, &wild, &[0; 60]);
    let text = String::from_utf8_lossy(&out).into_owned();
    let comment = "verdict=drop reason=no_backend service=3 backend=- arm=ingress exit=- lcore=2";
    assert!(text.contains(comment) && text.contains("verdict=? reason=-"), "{text}");
    // The file's size is limited.
    for packet in 0..1000 {
        records.add(&mut out, &head(packet, BEFORE), &[0; 60]);
    }
    assert!(records.is_complete() && out.len() < 4096 + 400);
    assert_eq!(request.filter.stage, ANY);
}
