//! ICMP errors are forwarded along the flow whose packet they quote.

use super::addresses::*;
use super::setups::{aws_nat, aws_return};
use super::{Case, Step, arrives, case};
use crate::frames::{Ip, error, udp};
use tables::reason::DropReason;

/// A step that begins the client's flow.
fn open() -> Step {
    let out = syn().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
    arrives(INGRESS, from_gateway(1, syn())).leaves(EGRESS, to_backend(11, out), "nat")
}

/// Returns the request as the backend receives it, and as errors from the backend's side quote it.
fn as_sent() -> Ip {
    request().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop()
}

fn from_the_backends_side() -> Vec<Case> {
    let router = |quote: usize| {
        let plain = error("10.9.9.9", OUR_NAT, (3, 4), 1_400, as_sent()).quoting(quote);
        let inner = error("10.9.9.9", "198.51.100.7", (3, 4), 1_400, request().hop());
        arrives(EGRESS, from_backend(11, plain)).leaves(
            INGRESS,
            to_gateway(1, inner.quoting(quote).hop()),
            "answer",
        )
    };
    let refused = {
        let plain = error("10.0.2.11", OUR_NAT, (3, 3), 0, as_sent());
        let inner = error("203.0.113.10", "198.51.100.7", (3, 3), 0, request().hop());
        arrives(EGRESS, from_backend(11, plain)).leaves(
            INGRESS,
            to_gateway(1, inner.hop()),
            "answer",
        )
    };
    let unknown = error("10.9.9.9", OUR_NAT, (3, 4), 1_400, udp("10.0.2.20:2000", BACKEND));
    vec![
        case(
            "Fragmentation-needed about a rewritten packet reaches the client with a quote of the \
             client's own packet.",
            aws_nat(),
            vec![open(), router(28)],
        ),
        case(
            "An error that quotes the whole segment has valid checksums at every level.",
            aws_nat(),
            vec![open(), router(1_000)],
        ),
        case(
            "An error that the backend sends reaches the client from the frontend's address.",
            aws_nat(),
            vec![open(), refused],
        ),
        case(
            "An error that quotes no known flow is dropped for a separate reason.",
            aws_nat(),
            vec![arrives(EGRESS, from_backend(11, unknown)).dropped(DropReason::IcmpUnknownFlow)],
        ),
    ]
}

fn from_the_clients_side() -> Vec<Case> {
    let inner = error("198.51.100.1", "203.0.113.10", (3, 4), 1_300, response().hop());
    let quoted = response().from(BACKEND).to(OUR_NAT).to_port(NAT_1).hop();
    let plain = error(OUR_NAT, "10.0.2.11", (3, 4), 1_300, quoted);
    let stray = error("198.51.100.1", "192.0.2.80", (11, 0), 0, udp(ELSEWHERE, CLIENT));
    vec![
        case(
            "An error from the client's side about an answer reaches the backend from the NAT \
             address, with a quote of the backend's own packet.",
            aws_nat(),
            vec![
                open(),
                arrives(INGRESS, from_gateway(1, inner)).leaves(
                    EGRESS,
                    to_backend(11, plain.hop()),
                    "nat",
                ),
            ],
        ),
        case(
            "An error about a flow that matches no service is returned.",
            aws_return(),
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
    [from_the_backends_side(), from_the_clients_side()].into_iter().flatten().collect()
}
