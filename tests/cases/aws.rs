//! AWS gateways: traffic that matches no service is returned unchanged.

use super::addresses::*;
use super::setups::{aws_nat, aws_return};
use super::{Case, arrives, case};
use crate::frames::{Frame, Ip, echo_request, flags, option, options, raw, tcp, udp};

/// A case in which the frame is returned: only MACs and outer addresses are swapped.
fn returned(claim: &'static str, frame: Frame) -> Case {
    let back = frame.clone().sent_back();
    case(claim, aws_return(), vec![arrives(INGRESS, frame).leaves(INGRESS, back, "return")])
}

/// Builds a packet that matches no service.
fn elsewhere() -> Ip {
    tcp(CLIENT, ELSEWHERE, flags::ACK).payload(b"no such service")
}

/// Builds a frame with the gateway's three options among unknown ones.
fn with_unknown_options() -> Frame {
    let unknown = options(&[
        option(0x0103, 0x11, &[1, 2, 3, 4]),
        option(0x0108, 1, &ENDPOINT.to_be_bytes()),
        option(0x0108, 2, &[0; 8]),
        option(0x0108, 0x7f, &[]),
        option(0x0108, 3, &77u32.to_be_bytes()),
        option(0xffff, 0x01, &[9; 124]),
    ]);
    let outer = elsewhere().in_geneve(NODE, OUR_GENEVE, unknown);
    Frame::new(ROUTER, IN_MAC, outer)
}

/// Builds a frame with 252 bytes of GENEVE options, the maximum (RFC 8926 3.4).
fn longest_options() -> Frame {
    let mut all = crate::frames::aws_options(ENDPOINT, 0, 5);
    all.extend(option(0x0103, 2, &[7; 124]));
    all.extend(option(0x0103, 2, &[8; 84]));
    assert_eq!(all.len(), 248);
    all.extend(option(0x0103, 2, &[]));
    Frame::new(ROUTER, IN_MAC, elsewhere().in_geneve(NODE, OUR_GENEVE, all))
}

fn return_cases() -> Vec<Case> {
    let six = tcp(CLIENT6, ELSEWHERE6, flags::SYN).mss(1440);
    vec![
        returned(
            "A packet that matches no service is returned to the gateway byte for byte, with outer \
             addresses swapped and the UDP ports as received.",
            from_gateway(1, elsewhere()),
        ),
        returned(
            "A returned packet keeps a valid outer UDP checksum where the gateway set one.",
            from_gateway(1, elsewhere()).with(Ip::summed),
        ),
        returned(
            "Unknown options that are not critical are returned unchanged.",
            with_unknown_options(),
        ),
        returned("An option area of the maximum length is returned unchanged.", longest_options()),
        returned("An inner IPv6 packet is returned.", from_gateway(1, six)),
        returned(
            "A VLAN tag is returned with the frame.",
            from_gateway(1, elsewhere()).vlan(0x2007),
        ),
        returned(
            "Outer TTL, traffic class and identification are returned unchanged.",
            from_gateway(1, elsewhere()).with(|ip| ip.ttl(3).tos(0xb9).id(4711)),
        ),
        returned(
            "Outer IPv4 options are returned unchanged.",
            from_gateway(1, elsewhere()).with(|ip| ip.options(&[0x94, 4, 0, 0])),
        ),
        returned(
            "A packet with inner IPv4 options is returned.",
            from_gateway(1, elsewhere().options(&[7, 7, 4, 0, 0, 0, 0])),
        ),
        returned(
            "A packet with inner IPv6 extension headers is returned.",
            from_gateway(
                1,
                udp(CLIENT6, ELSEWHERE6)
                    .extension(0, &[1, 4, 0, 0, 0, 0])
                    .extension(60, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
                    .payload(b"x"),
            ),
        ),
        returned(
            "ESP is returned.",
            from_gateway(1, raw("198.51.100.7", "192.0.2.80", 50).payload(&[0xe5; 60])),
        ),
        returned(
            "GRE is returned.",
            from_gateway(1, raw("198.51.100.7", "192.0.2.80", 47).payload(&[0, 0, 8, 0])),
        ),
        returned(
            "An inner packet with no byte after its IP header is returned.",
            from_gateway(1, raw("198.51.100.7", "192.0.2.80", 59)),
        ),
        returned(
            "An inner ping that matches no service is returned.",
            from_gateway(1, echo_request("198.51.100.7:9", "192.0.2.80").payload(b"ping")),
        ),
        returned(
            "A packet with an inner TTL of 1 is returned.",
            from_gateway(1, elsewhere().ttl(1)),
        ),
        returned(
            "A wrong inner checksum is returned unchanged.",
            from_gateway(1, elsewhere().wrong_by(0x1234)),
        ),
        returned(
            "A frame with Ethernet padding is returned with the padding.",
            from_gateway(1, udp(CLIENT, ELSEWHERE)).pad(160),
        ),
    ]
}

fn cookies() -> Vec<Case> {
    let own = |node, cookie| {
        let frame = from_node(node, ENDPOINT, cookie, elsewhere());
        let back = frame.clone().sent_back();
        arrives(INGRESS, frame).leaves(INGRESS, back, "return")
    };
    let nat = |frame: Frame, out: Frame| arrives(INGRESS, frame).leaves(EGRESS, out, "nat");
    let to_web = |ip: Ip| to_backend(11, ip.from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop());
    let answer = response().from(BACKEND).to(OUR_NAT).to_port(NAT_1);
    let answered = |node, cookie| {
        let frame = to_node(node, ENDPOINT, cookie, response().hop());
        arrives(EGRESS, from_backend(11, answer.clone())).leaves(INGRESS, frame, "answer")
    };
    vec![
        case(
            "Two packets of one 5-tuple with different cookies are each returned with their own \
             cookie.",
            aws_return(),
            vec![own(NODE, 1), own(NODE, 2), own(NODE, 1), own(OTHER_NODE, 3)],
        ),
        case(
            "A backend's answer carries the flow's latest cookie and goes to the latest node.",
            aws_nat(),
            vec![
                nat(from_node(NODE, ENDPOINT, 1, syn()), to_web(syn())),
                answered(NODE, 1),
                nat(from_node(NODE, ENDPOINT, 2, request()), to_web(request())),
                answered(NODE, 2),
                answered(NODE, 2),
                nat(from_node(OTHER_NODE, ENDPOINT, 3, request()), to_web(request())),
                answered(OTHER_NODE, 3),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [return_cases(), cookies()].into_iter().flatten().collect()
}
