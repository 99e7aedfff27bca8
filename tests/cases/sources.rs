//! Outer IPIP source addresses that the flow's hash selects from a network (`ipip_sources`).

use super::addresses::*;
use super::setups::{Setup, WEB, aws_tunnel, plain_dsr, service};
use super::{Case, Step, arrives, case};
use crate::frames::{Ip, error, flags, tcp};
use tables::reason::DropReason;

/// `egress.ipip_sources`.
const NETWORK: &str = "100.64.7.0/24";
/// The seed of the hash; the addresses below result from it.
const SEED: u64 = 0x5745_4952;
/// The outer source of the DSR flow from port 40,000.
const DRAWN: &str = "100.64.7.100";
/// The outer source of the DSR flow from port 40,001.
const DRAWN_OTHER: &str = "100.64.7.167";
/// The outer source of the flow from the AWS gateway.
const DRAWN_TUNNEL: &str = "100.64.7.108";

fn with_sources(setup: Setup) -> Setup {
    Setup { ipip_sources: NETWORK, seed: Some(SEED), ..setup }
}

fn dsr() -> Setup {
    with_sources(plain_dsr("ipip", "10.0.2.11").named("dsr plain, IPIP sources"))
}

fn tunnel() -> Setup {
    with_sources(aws_tunnel("ipip").named("aws, IPIP sources"))
}

/// A step in which a plain packet reaches the backend from this outer source.
fn by_router(ip: Ip, source: &str) -> Step {
    let out = to_backend(11, ip.clone().hop().in_ip(source, "10.0.2.11"));
    arrives(INGRESS, from_router(ip)).leaves(EGRESS, out, "tunnel")
}

fn syn_from_port(port: u16) -> Ip {
    tcp(&format!("198.51.100.7:{port}"), FRONTEND, flags::SYN)
}

/// Steps in which a router reports that an outer packet is too big, to that packet's source, and
/// the next packet that does not fit is answered with an error.
fn too_big_reported() -> Vec<Step> {
    let long = || tcp(CLIENT, FRONTEND, flags::ACK).sized(1_400);
    let sent = || long().hop().in_ip(DRAWN_TUNNEL, "10.0.2.11");
    let router_error = error("10.0.2.1", DRAWN_TUNNEL, (3, 4), 1_300, sent()).quoting(548);
    let too_big = error("203.0.113.10", "198.51.100.7", (3, 4), 1_280, long());
    let too_big = too_big.quoting(548).tos(0xc0);
    let again = || arrives(INGRESS, from_gateway(1, long()));
    vec![
        begun(),
        again().leaves(EGRESS, to_backend(11, sent()), "tunnel"),
        // Host 1 on the egress link is the router.
        arrives(EGRESS, from_backend(1, router_error)).dropped(DropReason::IcmpUnknownFlow),
        again().answered(INGRESS, from_gateway(1, too_big).sent_back(), DropReason::TooBigAnswered),
    ]
}

/// A step in which a flow from the AWS gateway begins.
fn begun() -> Step {
    let out = to_backend(11, syn().hop().in_ip(DRAWN_TUNNEL, "10.0.2.11"));
    arrives(INGRESS, from_gateway(1, syn())).leaves(EGRESS, out, "tunnel")
}

fn ipv6_backend() -> Setup {
    let mut setup = dsr().named("dsr plain, IPIP sources, IPv6 backend");
    let keys = "mode = \"dsr\"\ntunnel = \"ipip\"";
    setup.services = service("web", keys, WEB, r#"{address = "fd00:2::11"}"#);
    setup
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let answered_to = |to: &str| {
        let ip = syn_ack().in_ip("10.0.2.11", to);
        arrives(EGRESS, from_backend(11, ip)).leaves(
            INGRESS,
            to_gateway(1, syn_ack().hop()),
            "answer",
        )
    };
    vec![
        case(
            "The outer IPIP source is chosen from the network by the flow's hash and stays the \
             same.",
            dsr(),
            vec![
                by_router(syn_from_port(40_000), DRAWN),
                by_router(syn_from_port(40_001), DRAWN_OTHER),
                by_router(syn_from_port(40_000), DRAWN),
            ],
        ),
        case(
            "IPIP over IPv6 has the arm's address as source and a flow label derived from the \
             flow.",
            ipv6_backend(),
            vec![{
                let out = syn_from_port(40_000).hop().in_ip(OUR_OUT6, "fd00:2::11").label(HASH_1);
                arrives(INGRESS, from_router(syn_from_port(40_000))).leaves(
                    EGRESS,
                    to_backend(11, out),
                    "tunnel",
                )
            }],
        ),
        case(
            "Answers by the tunnel to the arm's address are accepted.",
            tunnel(),
            vec![begun(), answered_to("10.0.2.10")],
        ),
        case(
            "Answers by the tunnel to the outer source of the request are accepted.",
            tunnel(),
            vec![begun(), answered_to(DRAWN_TUNNEL)],
        ),
        case(
            "A too-big error about an outer packet with a source of the network lowers the path \
             MTU and is dropped: the kernel does not have the address.",
            tunnel(),
            too_big_reported(),
        ),
        case(
            "Any other packet to an address of the source network is dropped: it has no flow.",
            dsr(),
            vec![
                arrives(EGRESS, from_backend(11, tcp("10.0.2.11:80", "100.64.7.9:9", flags::SYN)))
                    .dropped(DropReason::NoFlow),
            ],
        ),
    ]
}
