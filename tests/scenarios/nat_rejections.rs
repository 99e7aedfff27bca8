//! The cost of a new NAT flow that finds no free port, measured as the number of examined ports, on
//! both planes.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use planes::loaded::Loaded;
use planes::memory::Memory;
use planes::xdp::{Xdp, namespace};
use std::error::Error;
use tables::flow::EVICTION_PORTS;
use tables::nat_port::NatPorts;
use tables::reason::DropReason;
use tests::cases::addresses::{BACKEND, EGRESS, FRONTEND, INGRESS, from_backend, from_gateway};
use tests::cases::setups::{Setup, aws_nat};
use tests::cases::{Exit, Plane};
use tests::frames::{flags, tcp};

/// Ports of each NAT address.
const RANGE: u32 = 64;

fn setup(addresses: &'static str) -> Setup {
    let nat = Setup { nat_addresses: addresses, nat_ports: "2000-2063", ..aws_nat() };
    Setup { max_flows: 4096, ..nat }
}

fn client(number: u32) -> String {
    format!("198.51.{}.{}:{}", 100 + number / 250, 1 + number % 250, 20_000 + number % 9)
}

/// Opens a client's connection and returns its NAT address and port, if it gets one.
fn opens(plane: &mut dyn Plane, number: u32) -> Option<(String, u16)> {
    let syn = tcp(&client(number), FRONTEND, flags::SYN);
    match &plane.send(INGRESS, &from_gateway(1, syn).bytes())[..] {
        [(Exit::Port(EGRESS), frame)] => {
            let [a, b, c, d] = [26, 27, 28, 29].map(|at| frame[at]);
            Some((format!("{a}.{b}.{c}.{d}"), u16::from_be_bytes([frame[34], frame[35]])))
        }
        _ => None,
    }
}

/// Opens a connection and confirms it.
fn connects(plane: &mut dyn Plane, number: u32) {
    let (addr, port) =
        opens(plane, number).unwrap_or_else(|| panic!("no NAT port for flow {number}"));
    let answer = tcp(BACKEND, &addr, flags::SYN | flags::ACK).to_port(port);
    assert_eq!(plane.send(EGRESS, &from_backend(11, answer).bytes()).len(), 1);
    let ack = tcp(&client(number), FRONTEND, flags::ACK);
    assert_eq!(plane.send(INGRESS, &from_gateway(1, ack).bytes()).len(), 1);
}

/// Returns the number of ports examined so far: the positions of the port searches of all maps.
fn examined(loaded: &Loaded) -> u64 {
    let ports = NatPorts::new(loaded.region);
    (0..ports.count()).map(|map| ports.rotation(map)).sum()
}

/// Exhausts the NAT ports with confirmed flows, and checks how many ports are examined for each
/// further flow.
fn check_cost<P: Plane>(plane: &mut P, examined: fn(&mut P) -> u64, addresses: &'static str) {
    let about = format!("{} from {addresses}", plane.name());
    plane.load(&setup(addresses));
    let all = RANGE * addresses.matches("10.0.2.").count() as u32;
    for number in 0..all {
        connects(plane, number);
    }
    // The first search finds that an address is exhausted, and records it.
    assert_eq!(opens(plane, all), None);
    let (before, rejected) = (examined(plane), 200);
    for number in 0..rejected {
        assert_eq!(opens(plane, all + 1 + number), None, "{about}: all flows are confirmed");
    }
    let each = (examined(plane) - before) as f64 / f64::from(rejected);
    println!("{about}: {each} ports examined per dropped packet");
    assert_eq!(examined(plane) - before, u64::from(rejected * EVICTION_PORTS), "{about}");
    let drops = plane.counts().drops[&DropReason::NatPortsExhausted];
    assert_eq!(drops, u64::from(rejected) + 1, "{about}");
}

/// Checks that a new flow takes over the only port of an unconfirmed flow, however many others are
/// examined before it.
fn finds_the_only_available_port(plane: &mut dyn Plane) {
    plane.load(&setup(ONE));
    for number in 0..RANGE - 1 {
        connects(plane, number);
    }
    let unconfirmed = opens(plane, RANGE).unwrap_or_else(|| panic!("a NAT port is free"));
    // The unconfirmed flow's port was allocated last, so that all others are examined first.
    let tries = (1..=RANGE).find(|_| opens(plane, RANGE + 1) == Some(unconfirmed.clone()));
    assert!(
        tries.is_some_and(|tries| tries <= RANGE / EVICTION_PORTS + 1),
        "{}: {tries:?}",
        plane.name()
    );
}

/// `nat.addresses` with one IPv4 address; the cases' services also need an IPv6 address.
const ONE: &str = r#"["10.0.2.20", "fd00:2::20"]"#;
/// The same with seven IPv4 addresses.
const SEVEN: &str = r#"["10.0.2.20", "10.0.2.21", "10.0.2.22", "10.0.2.23", "10.0.2.24",
    "10.0.2.25", "10.0.2.26", "fd00:2::20"]"#;

#[test]
fn a_nat_rejection_costs_the_same_for_any_number_of_addresses_in_memory() {
    let mut plane = Memory::new();
    for addresses in [ONE, SEVEN] {
        check_cost(&mut plane, |plane| examined(plane.loaded()), addresses);
    }
    finds_the_only_available_port(&mut plane);
}

#[test]
fn a_nat_rejection_costs_the_same_for_any_number_of_addresses_in_the_kernel()
-> Result<(), Box<dyn Error>> {
    let namespace = namespace("nat-rejections")?;
    namespace.run(|| {
        let mut plane = Xdp::new();
        for addresses in [ONE, SEVEN] {
            check_cost(&mut plane, |plane| examined(plane.loaded()), addresses);
        }
        finds_the_only_available_port(&mut plane);
    })?;
    Ok(())
}
