//! Tests of the emulated gateway: it must detect every defect that it is meant to detect.

use fastrand::Rng;

use super::ledger::Ledger;
use super::*;
use crate::lab::wire::{self, Header, TCP, UDP, checksum, pseudo, udp4};

const APPLIANCE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 10);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
const FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// A gateway with two nodes whose far side contains SERVER.
fn setup() -> GatewaySetup {
    GatewaySetup {
        nodes: vec![Ipv4Addr::new(10, 0, 1, 21), Ipv4Addr::new(10, 0, 1, 22)],
        appliances: vec![APPLIANCE],
        wire: "none".into(),
        far: vec!["198.51.100.0/24".parse().unwrap()],
        ..GatewaySetup::default()
    }
}

/// Builds a packet from a client's port 40000 to port 80.
fn to(dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    udp4((CLIENT, 40_000), (dst, 80), &[payload], true)
}

/// Returns the frame with which an appliance returns a packet: only the outer addresses are
/// swapped.
fn returned(sent: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    frame.extend_from_slice(sent);
    frame[26..30].copy_from_slice(&sent[16..20]);
    frame[30..34].copy_from_slice(&sent[12..16]);
    frame
}

/// Returns the frame with which an appliance answers: the returned outer headers, and `inner`.
fn answered(sent: &[u8], inner: &[u8]) -> Vec<u8> {
    let at = |at: usize| u16::from_be_bytes([sent[at], sent[at + 1]]);
    let address = |at: usize| Ipv4Addr::from(wire::be32(sent, at).unwrap());
    let mut frame = vec![0; 14];
    let (src, dst) = ((address(16), at(20)), (address(12), at(22)));
    frame.extend(udp4(src, dst, &[&sent[28..68], inner], false));
    frame
}

/// Lets the gateway send `inner`, and returns the outer packet to the appliance.
fn send(ledger: &mut Ledger, inner: &[u8]) -> Vec<u8> {
    ledger.outgoing(inner, Instant::now()).unwrap().1
}

/// Asserts that the ledger rejects `frame` for exactly this reason.
#[track_caller]
fn assert_rejected(ledger: &mut Ledger, frame: &[u8], check: Check) {
    assert_eq!(ledger.incoming(frame, Instant::now()), None);
    let report = ledger.report();
    assert_eq!(report.failures.keys().collect::<Vec<_>>(), [&check], "{report}");
    assert_eq!(report.failed(check), 1, "{report}");
}

#[test]
fn sends_geneve_with_three_options() {
    let mut ledger = Ledger::new(setup());
    let sent = send(&mut ledger, &to(SERVER, b"x"));
    let header = Header::read(&sent).unwrap();
    assert_eq!((header.protocol, header.end), (UDP, sent.len()));
    assert_eq!(header.dst, APPLIANCE);
    assert!(header.sums_are_right(&sent));
    assert_eq!(sent[22..24], 6081u16.to_be_bytes());
    assert_eq!(sent[28..36], [8, 0, 8, 0, 0, 0, 0, 0]);
    assert_eq!(sent[36..40], [1, 8, 1, 2]);
    assert_eq!(sent[40..48], 0x0123_4567_89ab_cdef_u64.to_be_bytes());
    assert_eq!(sent[48..52], [1, 8, 2, 2]);
    assert_eq!(sent[60..64], [1, 8, 3, 1]);
    assert_eq!(sent.len(), 68 + to(SERVER, b"x").len(), "68 bytes of overhead, as AWS documents");
}

#[test]
fn a_returned_packet_is_accepted() {
    let mut ledger = Ledger::new(setup());
    let inner = to(SERVER, b"hello");
    let sent = send(&mut ledger, &inner);
    let frame = returned(&sent);
    assert_eq!(ledger.incoming(&frame, Instant::now()), Some((Side::Far, &inner[..])));
    let report = ledger.report();
    assert!(report.clean(), "{report}");
    assert_eq!((report.sent, report.returned, report.awaited), (1, 1, 0));
}

#[test]
fn a_wrong_cookie_is_detected() {
    let mut ledger = Ledger::new(setup());
    let mut frame = returned(&send(&mut ledger, &to(SERVER, b"hello")));
    frame[14 + 67] ^= 1;
    assert_rejected(&mut ledger, &frame, Check::Options);
}

#[test]
fn each_changed_byte_is_detected() {
    let inner = to(SERVER, b"hello");
    let len = returned(&send(&mut Ledger::new(setup()), &inner)).len();
    // The Ethernet header and the first 12 bytes of the outer IPv4 header, up to its checksum, are
    // left out: the appliance writes its own.
    for at in (14..len).filter(|at| !(14..26).contains(at)) {
        let mut ledger = Ledger::new(setup());
        let mut frame = returned(&send(&mut ledger, &inner));
        frame[at] ^= 0x10;
        let accepted = ledger.incoming(&frame, Instant::now()).is_some();
        // A frame that is no longer from or to a node is ignored, and the packet that was sent
        // counts as lost after its time limit.
        ledger.expire(Instant::now() + setup().return_timeout * 2);
        assert!(!accepted && !ledger.report().clean(), "a change of byte {at} was not detected");
    }
}

#[test]
fn wrong_bytes_fail_the_check_of_their_field() {
    let inner = to(SERVER, b"hello");
    let wrong = |at: usize, check: Check| {
        let mut ledger = Ledger::new(setup());
        let mut frame = returned(&send(&mut ledger, &inner));
        frame[at] ^= 1;
        if at < 34 {
            let sum = checksum(&[&frame[14..24], &frame[26..34]]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        assert_rejected(&mut ledger, &frame, check);
    };
    wrong(29, Check::OuterAddresses);
    wrong(35, Check::UdpPorts);
    wrong(37, Check::UdpPorts);
    wrong(39, Check::OuterHeader);
    wrong(41, Check::UdpChecksum);
    wrong(43, Check::GeneveHeader);
    wrong(48, Check::GeneveHeader);
    wrong(60, Check::Options);
    wrong(14 + 68 + 30, Check::InnerBytes);
}

#[test]
fn addresses_not_swapped_are_detected() {
    let mut ledger = Ledger::new(setup());
    let mut frame = vec![0; 14];
    frame.extend(send(&mut ledger, &to(SERVER, b"hello")));
    assert_rejected(&mut ledger, &frame, Check::OuterAddresses);
}

#[test]
fn a_lost_packet_is_detected_after_its_timeout() {
    let mut ledger = Ledger::new(setup());
    send(&mut ledger, &to(SERVER, b"hello"));
    ledger.expire(Instant::now());
    assert_eq!((ledger.report().awaited, ledger.report().clean()), (1, true));
    ledger.expire(Instant::now() + setup().return_timeout + Duration::from_millis(1));
    assert_eq!((ledger.report().awaited, ledger.report().failed(Check::Lost)), (0, 1));
}

#[test]
fn a_duplicate_packet_is_detected() {
    let mut ledger = Ledger::new(setup());
    let frame = returned(&send(&mut ledger, &to(SERVER, b"hello")));
    assert!(ledger.incoming(&frame, Instant::now()).is_some());
    assert_rejected(&mut ledger, &frame, Check::Duplicate);
}

#[test]
fn identical_packets_of_one_flow_each_need_their_own_cookie_back() {
    let churning = GatewaySetup { churn: 1, ..setup() };
    let inner = to(SERVER, b"the same bytes");
    let mut ledger = Ledger::new(churning.clone());
    let (first, second) = (send(&mut ledger, &inner), send(&mut ledger, &inner));
    assert_ne!(first[64..68], second[64..68], "the cookie changed");
    // In either order.
    for sent in [&second, &first] {
        assert!(ledger.incoming(&returned(sent), Instant::now()).is_some());
    }
    assert!(ledger.report().clean(), "{}", ledger.report());

    // Both return with the options of the second: the return of the first is wrong.
    let mut ledger = Ledger::new(churning);
    let (_, second) = (send(&mut ledger, &inner), send(&mut ledger, &inner));
    assert!(ledger.incoming(&returned(&second), Instant::now()).is_some());
    assert_rejected(&mut ledger, &returned(&second), Check::Options);
}

#[test]
fn a_reply_needs_the_flows_latest_options() {
    let mut ledger = Ledger::new(GatewaySetup { churn: 1, former_for: Duration::ZERO, ..setup() });
    let answer = udp4((FRONTEND, 80), (CLIENT, 40_000), &[b"welcome"], true);
    let first = send(&mut ledger, &to(FRONTEND, b"hello"));
    let received = answered(&first, &answer);
    assert_eq!(ledger.incoming(&received, Instant::now()), Some((Side::Near, &answer[..])));
    let second = send(&mut ledger, &to(FRONTEND, b"hello again"));
    assert!(ledger.incoming(&answered(&second, &answer), Instant::now()).is_some());
    assert!(ledger.report().clean(), "{}", ledger.report());
    assert_rejected(&mut ledger, &received, Check::Options);
}

#[test]
fn a_reply_may_carry_the_options_from_just_before_a_change() {
    let mut ledger = Ledger::new(GatewaySetup { churn: 1, roam: 1, ..setup() });
    let answer = udp4((FRONTEND, 80), (CLIENT, 40_000), &[b"welcome"], true);
    let first = send(&mut ledger, &to(FRONTEND, b"hello"));
    send(&mut ledger, &to(FRONTEND, b"hello again"));
    let received = answered(&first, &answer);
    assert!(ledger.incoming(&received, Instant::now()).is_some());
    assert_eq!(ledger.report().answered_with_former, 1);
    let later = Instant::now() + setup().former_for + Duration::from_millis(1);
    assert!(ledger.incoming(&received, later).is_none(), "the former options expire");
}

#[test]
fn a_reply_with_a_wrong_checksum_is_detected() {
    let mut ledger = Ledger::new(setup());
    let mut answer = udp4((FRONTEND, 80), (CLIENT, 40_000), &[b"welcome"], true);
    answer[30] ^= 1;
    let sent = send(&mut ledger, &to(FRONTEND, b"hello"));
    assert_rejected(&mut ledger, &answered(&sent, &answer), Check::InnerChecksum);
}

#[test]
fn a_returned_packet_of_a_flow_that_a_service_answers_is_detected() {
    let mut ledger = Ledger::new(setup());
    let sent = send(&mut ledger, &to(FRONTEND, b"hello"));
    assert_rejected(&mut ledger, &returned(&sent), Check::Direction);
}

#[test]
fn a_reply_without_a_flow_is_detected() {
    let mut ledger = Ledger::new(setup());
    let sent = send(&mut ledger, &to(FRONTEND, b"hello"));
    let answer = udp4((FRONTEND, 80), (CLIENT, 40_001), &[b"welcome"], true);
    assert_rejected(&mut ledger, &answered(&sent, &answer), Check::Unexpected);
}

#[test]
fn a_packet_that_an_icmp_error_quotes_is_no_longer_awaited() {
    let mut ledger = Ledger::new(setup());
    let inner = to(SERVER, &[7; 100]);
    let sent = send(&mut ledger, &inner);
    let mut body = vec![3, 4, 0, 0, 0, 0, 5, 120];
    body.extend(&inner[..28]);
    let sum = checksum(&[&body]);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut error = udp4((SERVER, 0), (CLIENT, 0), &[], false)[..20].to_vec();
    let (len, protocol) = ((20 + body.len()) as u16, 1);
    error[2..4].copy_from_slice(&len.to_be_bytes());
    error[9] = protocol;
    error[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(&[&error]);
    error[10..12].copy_from_slice(&sum.to_be_bytes());
    error.extend(body);
    let frame = answered(&sent, &error);
    assert_eq!(ledger.incoming(&frame, Instant::now()), Some((Side::Near, &error[..])));
    assert_eq!((ledger.report().awaited, ledger.report().clean()), (0, true));
}

#[test]
fn inner_packets_above_the_maximum_are_not_sent() {
    let mut ledger = Ledger::new(setup());
    assert!(ledger.outgoing(&to(SERVER, &[0; 8_500 - 28]), Instant::now()).is_some());
    assert!(ledger.outgoing(&to(SERVER, &[0; 8_501 - 28]), Instant::now()).is_none());
    assert_eq!((ledger.report().sent, ledger.report().too_big), (1, 1));
}

#[test]
fn arbitrary_input_does_not_panic() {
    let mut ledger = Ledger::new(setup());
    let frame = returned(&send(&mut ledger, &to(SERVER, b"hello")));
    let mut rng = Rng::with_seed(1);
    for round in 0..200_000 {
        let mut broken = frame.clone();
        broken[rng.usize(..frame.len())] = rng.u8(..);
        broken.truncate(if round % 3 == 0 { rng.usize(..120) } else { 500 });
        ledger.incoming(&broken, Instant::now());
        ledger.outgoing(broken.get(82..).unwrap_or(&broken), Instant::now());
    }
}

#[test]
fn inner_ipv6_is_parsed() {
    let (src, dst) = ("2001:db8::7".parse().unwrap(), "2001:db8::9".parse().unwrap());
    let mut packet = vec![0x60, 0, 0, 0, 0, 28, 0, 64];
    packet.extend(pseudo(src, dst, 0, 0)[..32].iter());
    packet.extend([TCP, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop, padded
    let mut tcp = [0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0];
    let sum = checksum(&[&pseudo(src, dst, TCP, 20), &tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet.extend(tcp);
    let header = Header::read(&packet).unwrap();
    assert_eq!((header.protocol, header.l4, header.end), (TCP, 48, 68));
    assert!(header.sums_are_right(&packet));
    let tuple = wire::Tuple::of(&packet, &header);
    assert_eq!((tuple.src, tuple.sport, tuple.dport), (src, 0x1234, 80));
    let mut ledger = Ledger::new(GatewaySetup { far: vec![], ..setup() });
    let sent = send(&mut ledger, &packet);
    assert_eq!(sent[30..32], [0x86, 0xdd]);
    assert!(ledger.incoming(&returned(&sent), Instant::now()).is_some());
}

#[test]
fn new_flows_without_a_target_are_not_sent_and_existing_ones_continue() {
    let mut ledger = Ledger::new(setup());
    send(&mut ledger, &to(SERVER, b"hello"));
    ledger.admit(Admits::ExistingFlows);
    send(&mut ledger, &to(SERVER, b"hello again"));
    // The other direction of an existing flow is not a new flow.
    send(&mut ledger, &udp4((SERVER, 80), (CLIENT, 40_000), &[b"welcome"], true));
    assert!(ledger.outgoing(&to(FRONTEND, b"hello"), Instant::now()).is_none());
    ledger.admit(Admits::None);
    assert!(ledger.outgoing(&to(SERVER, b"hello"), Instant::now()).is_none());
    assert_eq!((ledger.report().not_admitted, ledger.report().flows), (2, 2));
    ledger.admit(Admits::All);
    send(&mut ledger, &to(FRONTEND, b"hello"));
    assert_eq!((ledger.report().not_admitted, ledger.report().flows), (2, 3));
}

#[test]
fn a_client_keeps_its_endpoint_in_both_directions() {
    let endpoints = vec![0xa1, 0xa2];
    let mut ledger = Ledger::new(GatewaySetup { endpoints, ..setup() });
    // The value of the first option.
    let endpoint = |sent: &[u8]| u64::from_be_bytes(sent[40..48].try_into().unwrap());
    let out =
        |port: u16, client: [u8; 4]| udp4((client.into(), port), (SERVER, 80), &[b"request"], true);
    for port in 40_000..40_010 {
        assert_eq!(endpoint(&send(&mut ledger, &out(port, [192, 0, 2, 6]))), 0xa1);
        assert_eq!(endpoint(&send(&mut ledger, &out(port, [192, 0, 2, 7]))), 0xa2);
        let back = udp4((SERVER, 80), (CLIENT, port), &[b"response"], true);
        let sent = send(&mut ledger, &back);
        assert_eq!(endpoint(&sent), 0xa2);
        assert!(ledger.incoming(&returned(&sent), Instant::now()).is_some());
    }
    assert!(ledger.report().clean(), "{}", ledger.report());
}

#[test]
fn contradictory_setups_are_rejected() {
    assert!(setup().check().is_ok());
    for (setup, fault) in [
        (GatewaySetup { nodes: Vec::new(), ..setup() }, "node address"),
        (GatewaySetup { endpoints: Vec::new(), ..setup() }, "endpoint id"),
        (GatewaySetup { symmetric: true, churn: 1, ..setup() }, "churn and roam"),
    ] {
        let error = setup.check().unwrap_err().to_string();
        assert!(error.contains(fault), "{error}");
    }
}
