//! ICMP errors about answers of flows that are not in this appliance's flow table: routers that
//! distribute packets over several appliances may send the error to another one than the flow's
//! packets.

use super::addresses::*;
use super::setups::{Setup, WEB, aws_nat, aws_tunnel, plain_dsr, plain_nat, service};
use super::{Case, Step, arrives, case, services};
use crate::frames::{Ip, error, flags, tcp, udp};
use tables::reason::DropReason;

/// The address of a router between the frontend and its clients.
const HOP: &str = "192.0.2.1";

/// Builds a router's error (type and code) about an answer of the frontend to a client's port.
fn about(kind: (u8, u8), port: u16) -> Ip {
    let client = format!("198.51.100.7:{port}");
    error(HOP, "203.0.113.10", kind, 1_400, tcp(FRONTEND, &client, flags::ACK).sized(1_500))
}

/// Builds a router's fragmentation-needed error about an answer to a client's port.
fn too_big(port: u16) -> Ip {
    about((3, 4), port)
}

/// A step in which a router's packet is forwarded through IPIP to a backend.
fn by_ipip(ip: Ip, backend: u8) -> Step {
    let address = format!("10.0.2.{backend}");
    let out = to_backend(backend, ip.clone().hop().in_ip("10.0.2.10", &address));
    arrives(INGRESS, from_router(ip)).leaves(EGRESS, out, "tunnel")
}

/// A step in which a router's packet is dropped for `reason`.
fn dropped(ip: Ip, reason: DropReason) -> Step {
    arrives(INGRESS, from_router(ip)).dropped(reason)
}

fn dsr() -> Setup {
    plain_dsr("ipip", "10.0.2.11")
}

/// Backend 11.
const ONE: &str = r#"{address = "10.0.2.11"}"#;
/// Backend 12.
const OTHER: &str = r#"{address = "10.0.2.12"}"#;

/// Builds "web" with direct server return by IPIP, further keys and these backends.
fn web(keys: &str, backends: &[&str]) -> String {
    let keys = format!("mode = \"dsr\"\ntunnel = \"ipip\"\n{keys}");
    service("web", &keys, WEB, &backends.join(", "))
}

/// Builds a setup with two backends, and with a seed that fixes which backend each port selects.
fn two_backends(name: &'static str, keys: &str) -> Setup {
    Setup { services: web(keys, &[ONE, OTHER]), seed: Some(0x5745_4952), ..dsr().named(name) }
}

/// Builds a flow's first packet from a client's port.
fn syn_from_port(port: u16) -> Ip {
    tcp(&format!("198.51.100.7:{port}"), FRONTEND, flags::SYN)
}

fn forwarded_without_flow() -> Vec<Case> {
    let six = |ip: Ip| {
        let out = to_backend(11, ip.clone().hop().in_ip("10.0.2.10", "10.0.2.11"));
        arrives(INGRESS, from_router(ip)).leaves(EGRESS, out, "tunnel")
    };
    let mut setup6 = dsr().named("dsr plain, IPv6 frontend, IPv4 backend");
    let keys = "mode = \"dsr\"\ntunnel = \"ipip\"";
    let web6 = r#"{address = "2001:db8:f::10", port = 80, protocol = "tcp"}"#;
    setup6.services = service("web", keys, web6, ONE);
    let answer6 = tcp(FRONTEND6, CLIENT6, flags::ACK).sized(1_400);
    vec![
        case(
            "A too-big error about a direct answer reaches the backend although this appliance has \
             no such flow.",
            dsr(),
            vec![by_ipip(too_big(40_000), 11)],
        ),
        case(
            "Time-exceeded and the client's port-unreachable about a direct answer reach the \
             backend.",
            dsr(),
            vec![by_ipip(about((11, 0), 40_001), 11), by_ipip(about((3, 3), 40_002), 11)],
        ),
        case(
            "Packet-too-big about a direct IPv6 answer reaches the backend.",
            setup6,
            vec![six(error("2001:db8:e::1", "2001:db8:f::10", (2, 0), 1_300, answer6))],
        ),
        case(
            "An error goes to the backend that the flow's own packets go to.",
            two_backends("dsr plain, two backends", ""),
            [(4000, 12), (4001, 12), (4002, 12), (4003, 12), (4004, 11)]
                .into_iter()
                .flat_map(|(port, backend)| {
                    [by_ipip(too_big(port), backend), by_ipip(syn_from_port(port), backend)]
                })
                .collect(),
        ),
        case(
            "An error creates no flow: later packets go to the backend that is then selected.",
            dsr(),
            vec![
                by_ipip(too_big(4000), 11),
                services(web("", &[OTHER])),
                by_ipip(too_big(4000), 12),
                by_ipip(syn_from_port(4000), 12),
            ],
        ),
        case(
            "An error about a client with affinity goes to the client's backend and creates no \
             affinity.",
            Setup { services: web("affinity_s = 60", &[ONE]), ..two_backends("affinity", "") },
            vec![
                by_ipip(too_big(4000), 11),
                services(web("affinity_s = 60", &[OTHER])),
                by_ipip(syn_from_port(4000), 12),
                services(web("affinity_s = 60", &[ONE, OTHER])),
                by_ipip(too_big(4001), 12),
            ],
        ),
        case(
            "A gateway's error about a flow by tunnel goes to the flow's backend.",
            aws_tunnel("ipip"),
            vec![{
                let out = too_big(40_000).hop().in_ip("10.0.2.10", "10.0.2.11");
                arrives(INGRESS, from_gateway(1, too_big(40_000))).leaves(
                    EGRESS,
                    to_backend(11, out),
                    "tunnel",
                )
            }],
        ),
    ]
}

fn not_forwarded() -> Vec<Case> {
    let udp_answer = error(HOP, "203.0.113.10", (3, 4), 1_400, udp(FRONTEND, CLIENT));
    let other = error(HOP, "203.0.113.10", (3, 4), 1_400, tcp(ELSEWHERE, CLIENT, flags::ACK));
    let stray = too_big(40_000);
    vec![
        case(
            "An error about a packet that no frontend can have sent matches no service.",
            dsr(),
            vec![
                dropped(udp_answer, DropReason::NoMatchingService),
                dropped(other, DropReason::NoMatchingService),
            ],
        ),
        case(
            "An error about an answer of a NAT service whose flow is unknown is dropped for a \
             separate reason.",
            plain_nat(),
            vec![dropped(too_big(40_000), DropReason::IcmpUnknownFlow)],
        ),
        case(
            "An error about an answer to a client that the service denies is dropped as one about \
             an unknown flow.",
            Setup { services: web("source_ranges = [\"192.0.2.0/24\"]", &[ONE]), ..dsr() }
                .named("dsr plain, source ranges"),
            vec![dropped(too_big(40_000), DropReason::IcmpUnknownFlow)],
        ),
        case(
            "A gateway's error about an answer of a NAT service whose flow is unknown is returned.",
            aws_nat(),
            vec![arrives(INGRESS, from_gateway(1, stray.clone())).leaves(
                INGRESS,
                from_gateway(1, stray).sent_back(),
                "return",
            )],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [forwarded_without_flow(), not_forwarded()].into_iter().flatten().collect()
}
