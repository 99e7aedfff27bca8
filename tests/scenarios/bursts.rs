//! Packets of one burst that depend on each other, among them ICMP errors and the packets after
//! them; the backends that ICMP errors without a flow reach; and outer sources of IPIP.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod memory;
}

use fastpath::burst::{Arrival, Burst};
use fastpath::dispatch::Exits;
use fastpath::port::memory::Frame;
use planes::memory::Memory;
use std::collections::{BTreeMap, BTreeSet};
use tables::command::TraceFilter;
use tables::counters::Counter;
use tables::flow::{Flows, TcpState};
use tests::cases::addresses::{
    EGRESS, INGRESS, from_backend, from_gateway, from_router, request, syn,
};
use tests::cases::setups::{Setup, WEB, aws_nat, aws_tunnel, plain_dsr, plain_nat, service};
use tests::cases::{Exit, Plane};
use tests::frames::{Ip, error, flags, tcp};

/// Collects outgoing frames, in order.
#[derive(Default)]
struct Left(Vec<(u8, Vec<u8>)>);

impl Exits<Frame> for Left {
    fn port(&mut self, arm: u8, frame: Frame) {
        self.0.push((arm, frame.to_vec()));
    }

    fn kernel(&mut self, _arm: u8, _frame: Frame) -> bool {
        false
    }
}

/// Forwards frames as one burst.
fn at_once(plane: &mut Memory, frames: &[(u8, Vec<u8>)]) -> Vec<(u8, Vec<u8>)> {
    let (mut burst, mut left) = (Burst::default(), Left::default());
    for (arm, frame) in frames {
        burst.push(Frame::new(frame), *arm, Arrival::Plain);
    }
    plane.loaded().lcore.forward(&mut burst, &mut left);
    left.0
}

/// Creates a setup of two backends with IPIP and direct server return.
fn two_backends() -> Setup {
    let keys = "mode = \"dsr\"\ntunnel = \"ipip\"";
    let backends = r#"{address = "10.0.2.11"}, {address = "10.0.2.12"}"#;
    let setup = plain_dsr("ipip", "10.0.2.11");
    let services = service("web", keys, WEB, backends);
    // The flow table holds all flows of a test while they are unconfirmed.
    Setup { services, seed: Some(0x5745_4952), max_flows: 4096, ..setup }
}

/// Builds a router's too-big error about an answer to a client's port.
fn too_big(port: u16) -> Ip {
    let client = format!("198.51.100.7:{port}");
    let answer = tcp("203.0.113.10:80", &client, flags::ACK).sized(1_500);
    error("192.0.2.1", "203.0.113.10", (3, 4), 1_400, answer)
}

/// Returns the backend of an outgoing IPIP frame: the last byte of the outer destination.
fn backend(left: &[(Exit, Vec<u8>)]) -> u8 {
    let [(Exit::Port(EGRESS), frame)] = left else { panic!("one frame leaves: {left:?}") };
    frame[14 + 19]
}

fn flows(plane: &mut Memory) -> u32 {
    Flows::new(plane.loaded().region).live()
}

#[test]
fn an_icmp_error_reaches_its_flows_backend_and_creates_no_flow() {
    let mut plane = Memory::new();
    plane.load(&two_backends());
    let mut backends = BTreeSet::new();
    for port in 4_000..4_400 {
        let before = flows(&mut plane);
        let by_error = backend(&plane.send(INGRESS, &from_router(too_big(port)).bytes()));
        assert_eq!(flows(&mut plane), before, "an error created a flow");
        let first = tcp(&format!("198.51.100.7:{port}"), "203.0.113.10:80", flags::SYN);
        let by_flow = backend(&plane.send(INGRESS, &from_router(first).bytes()));
        assert_eq!(flows(&mut plane), before + 1);
        assert_eq!(by_error, by_flow, "client's port {port}");
        backends.insert(by_flow);
    }
    assert_eq!(backends, BTreeSet::from([11, 12]));
}

/// The pipeline looks up a burst's packets before it inserts new flows. Packets of a flow that
/// begins in their own burst must find the flow nevertheless.
#[test]
fn packets_find_a_flow_created_in_their_own_burst() {
    let mut plane = Memory::new();
    plane.load(&plain_nat());
    let opened = at_once(&mut plane, &[(INGRESS, from_router(syn()).bytes())]);
    let [(EGRESS, out)] = &opened[..] else { panic!("one frame leaves: {opened:?}") };
    let port = u16::from_be_bytes([out[34], out[35]]);
    let sent = tcp(&format!("10.0.2.20:{port}"), "10.0.2.11:8080", flags::SYN);
    let icmp_error = || error("10.0.2.11", "10.0.2.20", (3, 3), 0, sent.clone());
    let answer = || tcp("10.0.2.11:8080", &format!("10.0.2.20:{port}"), flags::SYN | flags::ACK);

    // A region as new as the first, which allocates the same port.
    let mut plane = Memory::new();
    plane.load(&plain_nat());
    let left = at_once(
        &mut plane,
        &[
            (INGRESS, from_router(syn()).bytes()),
            (EGRESS, from_backend(11, icmp_error()).bytes()),
            (EGRESS, from_backend(11, answer()).bytes()),
        ],
    );
    let arms: Vec<u8> = left.iter().map(|(arm, _)| *arm).collect();
    assert_eq!(arms, [EGRESS, INGRESS, INGRESS], "drops: {:?}", plane.counts());
}

/// The second packet of a flow finds the flow that began in the same burst. With direct server
/// return, where answers bypass the appliance, it confirms the flow.
#[test]
fn two_packets_of_a_new_flow_in_one_burst_create_and_confirm_one_flow() {
    let mut plane = Memory::new();
    plane.load(&two_backends());
    let packets = [flags::SYN, flags::ACK];
    let client = |port| format!("198.51.100.7:{port}");
    let sends = |port, flags| from_router(tcp(&client(port), "203.0.113.10:80", flags)).bytes();
    // Other flows begin between the two packets.
    let other = |port| (INGRESS, sends(port, flags::SYN));
    let [first, second] = packets.map(|flags| (INGRESS, sends(4_000, flags)));
    let burst = [other(5_000), first, other(5_001), second, other(5_002)];
    let left = at_once(&mut plane, &burst);
    let backends: Vec<u8> = left.iter().map(|(_, frame)| frame[14 + 19]).collect();
    assert_eq!((backends.len(), backends[1]), (5, backends[3]), "{:?}", plane.counts());
    let flows = Flows::new(plane.loaded().region);
    let all = (0..flows.capacity()).filter_map(|path| flows.snapshot(path));
    let states: Vec<_> = all.map(|flow| flow.tcp).collect();
    let established = states.iter().filter(|tcp| **tcp == Some(TcpState::Established)).count();
    assert_eq!((states.len(), established), (4, 1), "{states:?}");
}

/// The cookies of frames to a gateway, the arms of all frames, the count of leg changes, and the
/// states of TCP flows.
type Outcome = (Vec<u32>, Vec<u8>, u64, Vec<Option<TcpState>>);

/// Forwards the first `alone` frames one by one and the others in bursts of `burst` frames. Returns
/// the plane and the outgoing frames. With `traced` all packets are traced.
fn in_bursts(
    setup: &Setup,
    alone: usize,
    frames: &[(u8, Vec<u8>)],
    burst: usize,
    traced: bool,
) -> (Memory, Vec<(u8, Vec<u8>)>) {
    let mut plane = Memory::new();
    plane.load(setup);
    if traced {
        let all = TraceFilter { count: u32::MAX, ..TraceFilter::default() };
        plane.loaded().lcore.control().trace.borrow_mut().start(all);
    }
    let (alone, rest) = frames.split_at(alone);
    let mut left = Vec::new();
    for frames in alone.chunks(1).chain(rest.chunks(burst)) {
        left.extend(at_once(&mut plane, frames));
    }
    (plane, left)
}

/// Returns the outcome of these frames, forwarded as by [`in_bursts`].
fn outcome(
    setup: &Setup,
    alone: usize,
    frames: &[(u8, Vec<u8>)],
    burst: usize,
    traced: bool,
) -> Outcome {
    let (mut plane, left) = in_bursts(setup, alone, frames, burst, traced);
    let to_gateway = left.iter().filter(|(arm, _)| *arm == INGRESS);
    // After 14 bytes of Ethernet, 20 of IP, 8 of UDP and 8 of GENEVE: the last of 32 bytes of
    // options.
    let cookies = to_gateway.filter_map(|(_, frame)| Some(*frame.get(78..)?.first_chunk()?));
    let cookies = cookies.map(u32::from_be_bytes).collect();
    let loaded = plane.loaded();
    let page = loaded.region.counters().lcore(0).expect("the lcore's counter page");
    let flows = Flows::new(loaded.region);
    let states = (0..flows.capacity()).filter_map(|path| flows.snapshot(path)).map(|f| f.tcp);
    let changes = page.lcore_count(Counter::GatewayLegChanges);
    (cookies, left.iter().map(|(arm, _)| *arm).collect(), changes, states.collect())
}

/// An answer leaves with the options that its flow has when the answer arrives, whatever follows in
/// the burst.
#[test]
fn a_reply_uses_the_leg_from_before_a_later_packet_of_its_burst_changes_it() {
    let setup = Setup { seed: Some(0x5745_4952), ..aws_nat() };
    let mut plane = Memory::new();
    plane.load(&setup);
    let opened = at_once(&mut plane, &[(INGRESS, from_gateway(1, syn()).bytes())]);
    let [(EGRESS, out)] = &opened[..] else { panic!("one frame leaves: {opened:?}") };
    let nat = format!("10.0.2.20:{}", u16::from_be_bytes([out[34], out[35]]));
    let requests = |cookie, ip| (INGRESS, from_gateway(cookie, ip).bytes());
    let answers = |flags| (EGRESS, from_backend(11, tcp("10.0.2.11:8080", &nat, flags)).bytes());
    let ack = flags::ACK;
    let frames = [
        requests(1, syn()),
        answers(flags::SYN | ack),
        requests(1, request()),
        // The bursts begin with this frame.
        answers(ack),
        requests(2, request()),
        requests(2, request()),
        answers(ack),
        requests(1, request()),
        answers(flags::RST),
        answers(ack),
        answers(ack),
    ];
    let expected = outcome(&setup, 3, &frames, 1, false);
    assert_eq!((&expected.0[..], expected.2), (&[1, 1, 2, 1, 1, 1][..], 2));
    assert_eq!(expected.3, [Some(TcpState::Established)]);
    for (burst, traced) in (1..=8).flat_map(|burst| [(burst, false), (burst, true)]) {
        let found = outcome(&setup, 3, &frames, burst, traced);
        assert_eq!(found, expected, "bursts of {burst}, traced: {traced}");
    }
}

/// The flows are unconfirmed, and each takes the entry or the port of an older one.
#[test]
fn new_flows_that_evict_others_get_the_same_ports_in_bursts() {
    let by_port = Setup { nat_ports: "2000-2007", ..plain_nat() };
    let by_capacity = Setup { nat_ports: "2000-2039", max_flows: 64, ..plain_nat() };
    let client = |n: u16| format!("198.51.100.{}:{}", 1 + n % 200, 4_000 + n);
    let sends = |n| tcp(&client(n), "203.0.113.10:80", flags::SYN);
    let frames: Vec<_> = (0..200).map(|n| (INGRESS, from_router(sends(n)).bytes())).collect();
    for setup in [by_port, by_capacity] {
        let setup = Setup { seed: Some(0x5745_4952), ..setup };
        let (mut plane, expected) = in_bursts(&setup, 0, &frames, 1, false);
        let page = plane.loaded().region.counters().lcore(0).expect("the lcore's counter page");
        assert!(page.lcore_count(Counter::FlowsEvicted) > 100, "evicted by {}", setup.nat_ports);
        assert_eq!(expected.len(), frames.len());
        for (burst, traced) in [(2, false), (7, false), (64, false), (64, true)] {
            let (_, left) = in_bursts(&setup, 0, &frames, burst, traced);
            assert_eq!(left, expected, "bursts of {burst}, ports {}", setup.nat_ports);
        }
    }
}

/// A router's error about Weir's tunnel makes packets of its burst too big only if they follow it.
#[test]
fn a_path_mtu_applies_to_packets_after_the_error_in_its_burst() {
    let setup = aws_tunnel("ipip");
    let long = || tcp("198.51.100.7:40000", "203.0.113.10:80", flags::ACK).sized(1_400);
    let large = || (INGRESS, from_gateway(1, long()).bytes());
    let sent = long().hop().in_ip("10.0.2.10", "10.0.2.11");
    let icmp_error = error("10.0.2.1", "10.0.2.10", (3, 4), 1_300, sent).quoting(548);
    let icmp_error = (EGRESS, from_backend(1, icmp_error).bytes());
    let frames = [large(), large(), icmp_error, large(), large()];
    for (burst, traced) in (1..=5).flat_map(|burst| [(burst, false), (burst, true)]) {
        let (_, arms, ..) = outcome(&setup, 0, &frames, burst, traced);
        let expected = [EGRESS, EGRESS, INGRESS, INGRESS];
        assert_eq!(arms, expected, "bursts of {burst}, traced: {traced}");
    }
}

/// The flow's hash selects the outer source, independently of the backend, so that the backend's
/// NIC distributes flows over its queues.
#[test]
fn each_backends_flows_come_from_many_sources() {
    let mut plane = Memory::new();
    plane.load(&Setup { ipip_sources: "100.64.7.0/24", ..two_backends() });
    let mut of_backend: BTreeMap<u8, Vec<[u8; 4]>> = BTreeMap::new();
    for port in 4_000..4_400 {
        let first = tcp(&format!("198.51.100.7:{port}"), "203.0.113.10:80", flags::SYN);
        let left = plane.send(INGRESS, &from_router(first).bytes());
        let [(Exit::Port(EGRESS), frame)] = &left[..] else { panic!("one frame leaves: {left:?}") };
        let source = <[u8; 4]>::try_from(&frame[26..30]).expect("four bytes");
        assert_eq!(source[..3], [100, 64, 7], "client's port {port}");
        of_backend.entry(backend(&left)).or_default().push(source);
    }
    assert_eq!(of_backend.len(), 2);
    for (backend, sources) in of_backend {
        let flows = sources.len() as f64;
        let distinct = sources.into_iter().collect::<BTreeSet<_>>().len() as f64;
        // The expected number of distinct values in `flows` random selections from 256; the
        // tolerance is a tenth of the network.
        let expected = 256.0 * (1.0 - (1.0 - 1.0 / 256.0_f64).powf(flows));
        assert!((distinct - expected).abs() < 25.6, "backend {backend}: {distinct} of {flows}");
    }
}
