//! Outer headers that Weir writes: address families, checksums, traffic class.

use super::addresses::*;
use super::setups::{Setup, WEB, aws_nat, plain_dsr, service};
use super::{Case, arrives, case};
use crate::frames::{Ip, flags, tcp, udp};

/// Creates a setup of a service with an IPv6 frontend and direct server return.
fn ipv6_frontend(tunnel: &str, backend: &str) -> Setup {
    let keys = format!("mode = \"dsr\"\ntunnel = \"{tunnel}\"");
    let mut setup = plain_dsr(tunnel, backend).named("dsr plain, IPv6 frontend");
    setup.services = service(
        "web6",
        &keys,
        r#"{address = "2001:db8:f::10", port = 80, protocol = "tcp"}"#,
        &format!("{{address = \"{backend}\"}}"),
    );
    setup
}

/// A case in which a plain packet reaches the backend encapsulated by `wrap`.
fn wrapped(claim: &'static str, setup: Setup, ip: Ip, wrap: fn(Ip) -> Ip) -> Case {
    let out = to_backend(11, wrap(ip.clone().hop()));
    case(claim, setup, vec![arrives(INGRESS, from_router(ip)).leaves(EGRESS, out, "tunnel")])
}

fn families() -> Vec<Case> {
    let syn6 = || tcp(CLIENT6, FRONTEND6, flags::SYN).mss(1440);
    vec![
        wrapped(
            "IPv6 is encapsulated in IPv4.",
            ipv6_frontend("ipip", "10.0.2.11"),
            syn6(),
            |ip| ip.in_ip("10.0.2.10", "10.0.2.11"),
        ),
        wrapped(
            "IPv6 is encapsulated in IPv6, with a flow label derived from the flow.",
            ipv6_frontend("ipip", "fd00:2::11"),
            syn6(),
            |ip| ip.in_ip(OUR_OUT6, "fd00:2::11").label(HASH_1),
        ),
        wrapped(
            "GUE over IPv6 has no outer UDP checksum (RFC 6935), and a source port and flow label \
             derived from the flow.",
            ipv6_frontend("gue", "fd00:2::11"),
            syn6(),
            |ip| ip.in_gue(OUR_OUT6, "[fd00:2::11]:6080").from_port(HASH_1).label(HASH_1),
        ),
    ]
}

/// Creates a setup with a service whose tunnel packets have outer UDP checksums.
fn summed(tunnel: &str) -> Setup {
    let keys = format!("mode = \"dsr\"\ntunnel = \"{tunnel}\"\nouter_checksum = true");
    let mut setup = plain_dsr(tunnel, "10.0.2.11").named("dsr plain, outer checksum");
    setup.services = service("web", &keys, WEB, r#"{address = "10.0.2.11"}"#);
    setup
}

fn checksums() -> Vec<Case> {
    let back = || response().from(BACKEND).to(OUR_NAT).to_port(NAT_1);
    vec![
        wrapped(
            "With outer_checksum = true the outer UDP checksum of GUE is valid.",
            summed("gue"),
            request(),
            |ip| ip.in_gue("10.0.2.10", "10.0.2.11:6080").from_port(HASH_1).summed(),
        ),
        wrapped(
            "With outer_checksum = true the outer UDP checksum of VXLAN is valid.",
            summed("vxlan"),
            request(),
            |ip| {
                ip.in_vxlan("10.0.2.10", "10.0.2.11:4789", 0, OUT_MAC, backend_mac(11))
                    .from_port(HASH_1)
                    .summed()
            },
        ),
        case(
            "With outer_checksum = true the outer UDP checksum of answers to the gateway is valid.",
            aws_nat().named("aws nat, outer checksum").gateway("outer_checksum = true"),
            vec![
                arrives(INGRESS, from_gateway(1, syn())).leaves(
                    EGRESS,
                    to_backend(11, syn().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop()),
                    "nat",
                ),
                arrives(EGRESS, from_backend(11, back())).leaves(
                    INGRESS,
                    to_gateway(1, response().hop()).with(Ip::summed),
                    "answer",
                ),
            ],
        ),
        case(
            "NAT over IPv6 keeps a UDP checksum valid.",
            udp_over_six(),
            vec![{
                let ip = udp(CLIENT6, "[2001:db8:f::20]:53").payload(b"question");
                let out = ip.clone().from(OUR_NAT6).from_port(NAT_1).to("[fd00:2::11]:53").hop();
                arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, to_backend(11, out), "nat")
            }],
        ),
    ]
}

fn udp_over_six() -> Setup {
    let mut setup = aws_nat().named("udp over IPv6");
    setup.services = service(
        "dns6",
        "mode = \"nat\"",
        r#"{address = "2001:db8:f::20"}"#,
        r#"{address = "fd00:2::11"}"#,
    );
    setup
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [families(), checksums()].into_iter().flatten().collect()
}
