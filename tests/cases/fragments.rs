//! Fragments: later ones are forwarded like the first one of their datagram, and none is queued.

use super::addresses::*;
use super::setups::{Setup, aws_chain, aws_nat, aws_return};
use super::{Act, Case, Counted, Step, arrives, case, wait};
use crate::frames::{Ip, udp};
use tables::reason::DropReason;

/// Builds a datagram for the service "any", whose backend receives it at the same port.
fn datagram() -> Ip {
    udp(CLIENT, "203.0.113.20:53").id(4711).payload(&[0x5a; 3_000])
}

fn first(ip: Ip) -> Ip {
    ip.part(0, 1_480, true)
}

fn second(ip: Ip) -> Ip {
    ip.part(1_480, 1_480, true)
}

fn last(ip: Ip) -> Ip {
    ip.part(2_960, 48, false)
}

/// Returns the packet as the backend of "any" receives it.
fn out(ip: Ip) -> Ip {
    ip.from(OUR_NAT).from_port(NAT_1).to("10.0.2.12:53").hop()
}

/// A step in which a fragment of the datagram reaches the backend of "any".
fn forward(part: fn(Ip) -> Ip) -> Step {
    let frame = from_gateway(1, part(datagram()));
    arrives(INGRESS, frame).leaves(EGRESS, to_backend(12, part(out(datagram()))), "nat")
}

fn nat() -> Vec<Case> {
    let answer = || udp("203.0.113.20:53", CLIENT).id(99).payload(&[0xa5; 2_000]);
    let plain = || answer().from("10.0.2.12:53").to(OUR_NAT).to_port(NAT_1);
    let back = |part: fn(Ip) -> Ip| {
        arrives(EGRESS, from_backend(12, part(plain()))).leaves(
            INGRESS,
            to_gateway(1, part(answer().hop())),
            "answer",
        )
    };
    let rest = |ip: Ip| ip.part(1_480, 528, false);
    vec![
        case(
            "The fragments of a datagram are rewritten to the backend of its first one.",
            aws_nat(),
            vec![forward(first), forward(second), forward(last), back(first), back(rest)],
        ),
        case(
            "A later fragment that arrives before the first one is dropped for a separate reason.",
            aws_nat(),
            vec![
                arrives(INGRESS, from_gateway(1, last(datagram())))
                    .dropped(DropReason::FragmentBeforeFirst),
                forward(first),
                forward(last),
            ],
        ),
        case(
            "A later fragment is dropped after the fifteen seconds for which the fragment table \
             keeps its datagram.",
            aws_nat(),
            vec![
                forward(first),
                wait(17),
                arrives(INGRESS, from_gateway(1, last(datagram())))
                    .dropped(DropReason::FragmentBeforeFirst),
            ],
        ),
        case(
            "Two datagrams with the same identification from two endpoints are distinguished.",
            aws_nat(),
            vec![
                forward(first),
                arrives(INGRESS, from_node(NODE, OTHER_ENDPOINT, 1, last(datagram())))
                    .dropped(DropReason::FragmentBeforeFirst),
                forward(last),
            ],
        ),
    ]
}

fn others() -> Vec<Case> {
    let stray = || udp(CLIENT, ELSEWHERE).id(5).payload(&[1; 3_000]);
    let six = || udp(CLIENT6, ELSEWHERE6).id(5).payload(&[1; 3_000]);
    let returned = |ip: Ip| {
        let frame = from_gateway(1, ip);
        arrives(INGRESS, frame.clone()).leaves(INGRESS, frame.sent_back(), "return")
    };
    let mut chain = aws_chain();
    chain.services =
        chain.services.replace(r#"port = 80, protocol = "tcp""#, r#"port = 80, protocol = "udp""#);
    vec![
        case(
            "Fragments that match no service are returned in any order.",
            aws_return(),
            vec![returned(last(stray())), returned(first(stray())), returned(second(stray()))],
        ),
        case(
            "IPv6 fragments that match no service are returned.",
            aws_return(),
            vec![returned(first(six())), returned(last(six()))],
        ),
        case(
            "In tunnel mode a later fragment for a frontend's address that arrives before the \
             first one is dropped.",
            chain,
            vec![
                arrives(INGRESS, from_gateway(1, last(udp(CLIENT, FRONTEND).payload(&[1; 3_000]))))
                    .dropped(DropReason::FragmentBeforeFirst),
            ],
        ),
    ]
}

/// Builds the first fragment of datagram number n of one flow through "any".
fn numbered(n: u16) -> crate::frames::Frame {
    from_gateway(1, first(datagram().id(u32::from(n))))
}

fn full() -> Vec<Case> {
    let mut flood = Step::new(Act::Flood { arm: INGRESS, make: numbered, count: 200 });
    flood.counted.push(Counted::Verdict("nat"));
    vec![case(
        "A first fragment is forwarded even if the fragment table is full.",
        Setup { max_fragments: 8, ..aws_nat().named("eight datagrams") },
        vec![flood],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [nat(), others(), full()].into_iter().flatten().collect()
}
