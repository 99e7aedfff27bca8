//! Plain traffic (packets without a gateway's tunnel): an appliance behind a router, with NAT or
//! direct server return.

use super::addresses::*;
use super::setups::{plain_dsr, plain_nat};
use super::{Case, arrives, case};
use crate::frames::Ip;

/// A case in which the client's SYN and request are tunneled to backend 11; `wrap` adds the outer
/// headers.
fn dsr(claim: &'static str, tunnel: &str, wrap: fn(Ip) -> Ip) -> Case {
    dsr_of([syn(), request()], claim, tunnel, wrap)
}

/// As [`dsr`], with two other packets of the client.
fn dsr_of(packets: [Ip; 2], claim: &'static str, tunnel: &str, wrap: fn(Ip) -> Ip) -> Case {
    let step = |ip: Ip| {
        let out = to_backend(11, wrap(ip.clone().hop()));
        arrives(INGRESS, from_router(ip)).leaves(EGRESS, out, "tunnel")
    };
    case(claim, plain_dsr(tunnel, "10.0.2.11"), packets.map(step).into())
}

fn direct_server_return() -> Vec<Case> {
    vec![
        dsr(
            "Direct server return by IPIP changes only the TTL of the inner packet.",
            "ipip",
            |ip| ip.in_ip("10.0.2.10", "10.0.2.11"),
        ),
        dsr("Direct server return by GUE reaches the backend.", "gue", |ip| {
            ip.in_gue("10.0.2.10", "10.0.2.11:6080").from_port(HASH_1)
        }),
        case(
            "Direct server return by IPIP reaches an IPv6 backend.",
            plain_dsr("ipip", "fd00:2::11"),
            vec![arrives(INGRESS, from_router(syn())).leaves(
                EGRESS,
                to_backend(11, syn().hop().in_ip(OUR_OUT6, "fd00:2::11").label(HASH_1)),
                "tunnel",
            )],
        ),
        dsr_of(
            [syn().tos(0xb8), request().tos(0xb8)],
            "The outer header carries the traffic class of the inner one.",
            "ipip",
            |ip| ip.in_ip("10.0.2.10", "10.0.2.11").tos(0xb8),
        ),
    ]
}

fn nat() -> Vec<Case> {
    let out = |ip: Ip| to_backend(11, ip.from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop());
    let back = |ip: Ip| from_backend(11, ip.from(BACKEND).to(OUR_NAT).to_port(NAT_1));
    vec![case(
        "A plain connection is rewritten to its backend, and the answers go to the router that \
         delivered the request.",
        plain_nat(),
        vec![
            arrives(INGRESS, from_router(syn())).leaves(EGRESS, out(syn()), "nat"),
            arrives(EGRESS, back(syn_ack())).leaves(INGRESS, to_router(syn_ack().hop()), "answer"),
            arrives(INGRESS, from_router(request())).leaves(EGRESS, out(request()), "nat"),
            arrives(EGRESS, back(response())).leaves(
                INGRESS,
                to_router(response().hop()),
                "answer",
            ),
        ],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [direct_server_return(), nat()].into_iter().flatten().collect()
}
