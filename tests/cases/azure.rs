//! Azure gateways: external traffic leaves through the internal tunnel, and the reverse.

use super::addresses::*;
use super::setups::{Setup, azure_nat, azure_return, web_by_tunnel};
use super::{Case, Step, arrives, case, tunnels};
use crate::frames::{Frame, Ip, echo_reply, echo_request, end, flags, tcp};

/// Builds a packet that matches no service.
fn elsewhere() -> Ip {
    tcp(CLIENT, ELSEWHERE, flags::ACK).payload(b"no such service")
}

/// Returns the frame as Weir returns it through the tunnel with this port and VNI.
fn crossed(frame: Frame, port: u16, vni: u32) -> Frame {
    frame.sent_back().with(|ip| ip.to_port(port).vxlan(|v| v.vni = vni))
}

/// Returns the frame of an answer that leaves by the request's tunnel, with inner MACs swapped.
fn answered(frame: Frame) -> Frame {
    frame.sent_back().with(|ip| {
        ip.may_fragment().id(u32::from(ANY_ID)).vxlan(|v| std::mem::swap(&mut v.from, &mut v.to))
    })
}

fn crossing() -> Vec<Case> {
    let external = from_external(elsewhere());
    let internal = from_internal(elsewhere().from(ELSEWHERE).to(CLIENT));
    let summed = from_external(elsewhere()).with(Ip::summed);
    let same = azure_return().named("azure return, same tunnel").gateway("cross = false");
    vec![
        case(
            "A packet of the external tunnel is returned by the internal one, and the reverse.",
            azure_return(),
            vec![
                arrives(INGRESS, external.clone()).leaves(
                    INGRESS,
                    crossed(external.clone(), 10_800, 800),
                    "return",
                ),
                arrives(INGRESS, internal.clone()).leaves(
                    INGRESS,
                    crossed(internal, 10_801, 801),
                    "return",
                ),
            ],
        ),
        case(
            "An outer UDP checksum is valid after the change of port and VNI.",
            azure_return(),
            vec![arrives(INGRESS, summed.clone()).leaves(
                INGRESS,
                crossed(summed, 10_800, 800),
                "return",
            )],
        ),
        case(
            "With cross = false a packet is returned by the tunnel on which it arrived.",
            same,
            vec![arrives(INGRESS, external.clone()).leaves(
                INGRESS,
                external.sent_back(),
                "return",
            )],
        ),
        case(
            "An inner IPv6 packet crosses to the other tunnel.",
            azure_return(),
            vec![{
                let frame = from_external(tcp(CLIENT6, ELSEWHERE6, flags::SYN));
                let out = crossed(frame.clone(), 10_800, 800);
                arrives(INGRESS, frame).leaves(INGRESS, out, "return")
            }],
        ),
    ]
}

fn nat() -> Vec<Case> {
    let request = |by: fn(Ip) -> Frame, ip: Ip| {
        let out = ip.clone().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
        arrives(INGRESS, by(ip)).leaves(EGRESS, to_backend(11, out), "nat")
    };
    let response = |by: fn(Ip) -> Frame| {
        let plain = response().from(BACKEND).to(OUR_NAT).to_port(NAT_1);
        let back = answered(by(response().hop()));
        arrives(EGRESS, from_backend(11, plain)).leaves(INGRESS, back, "answer")
    };
    vec![case(
        "A NAT answer leaves by the tunnel of the request, with inner MACs swapped.",
        azure_nat(),
        vec![
            request(from_external, syn()),
            response(from_external),
            request(from_external, super::addresses::request()),
            response(from_external),
        ],
    )]
}

/// Ports and VNIs of the pool's tunnels, external and internal: at first, and after changes.
const POOL: [[(u16, u32); 2]; 3] = [
    [(10_801, 801), (10_800, 800)],
    [(10_811, 811), (10_810, 810)],
    [(10_811, 821), (10_820, 810)],
];

/// A step in which the pool gets these tunnels.
fn pool_changes([external, internal]: [(u16, u32); 2]) -> Step {
    tunnels(external, internal)
}

/// Returns a frame to the gateway as it leaves by another tunnel.
fn by(frame: Frame, (port, vni): (u16, u32)) -> Frame {
    frame.with(|ip| ip.to_port(port).vxlan(|v| v.vni = vni))
}

/// Cases in which the pool's tunnels change. The clients send nothing after a change, so that no
/// packet updates their flows.
fn changed_pool() -> Vec<Case> {
    let plain = response().from(BACKEND).to(OUR_NAT).to_port(NAT_1);
    let back = |pool: [(u16, u32); 2]| {
        let frame = by(answered(from_external(response().hop())), pool[0]);
        arrives(EGRESS, from_backend(11, plain.clone())).leaves(INGRESS, frame, "answer")
    };
    let (setup, appliance) = inspection();
    let inspected = |pool: [(u16, u32); 2]| {
        let frame = by(crossed(from_external(syn().hop().hop()), 10_800, 800), pool[1]);
        let frame = frame.with(|ip| ip.may_fragment().id(u32::from(ANY_ID)));
        arrives(EGRESS, appliance(syn().hop()).sent_back()).leaves(INGRESS, frame, "answer")
    };
    let begin = arrives(INGRESS, from_external(syn()));
    let out = syn().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
    vec![
        case(
            "A NAT answer leaves by the tunnel that replaced the request's, after each change of \
             the pool.",
            azure_nat(),
            vec![
                begin.clone().leaves(EGRESS, to_backend(11, out), "nat"),
                back(POOL[0]),
                pool_changes(POOL[1]),
                back(POOL[1]),
                pool_changes(POOL[2]),
                back(POOL[2]),
                pool_changes(POOL[0]),
                back(POOL[0]),
            ],
        ),
        case(
            "A packet that an inspection appliance returns crosses to the tunnel that replaced the \
             internal one.",
            setup,
            vec![
                begin.leaves(EGRESS, appliance(syn().hop()), "tunnel"),
                inspected(POOL[0]),
                pool_changes(POOL[1]),
                inspected(POOL[1]),
                pool_changes(POOL[2]),
                inspected(POOL[2]),
            ],
        ),
    ]
}

/// Returns the tables with an inspection appliance behind GENEVE, and the frames to it.
fn inspection() -> (Setup, fn(Ip) -> Frame) {
    let mut setup = azure_return().named("azure, inspection appliance");
    setup.services = web_by_tunnel("tunnel", "geneve", "10.0.2.11");
    let appliance = |ip: Ip| {
        let outer = ip.in_geneve("10.0.2.10", "10.0.2.11:6081", own_options(801));
        to_backend(11, outer.from_port(HASH_1))
    };
    (setup, appliance)
}

fn chain() -> Vec<Case> {
    let (setup, appliance) = inspection();
    let forward = |frame: Frame, ip: Ip| {
        arrives(INGRESS, frame).leaves(EGRESS, appliance(ip.hop()), "tunnel")
    };
    let back = |ip: Ip, frame: Frame| {
        let received = appliance(ip.hop()).sent_back();
        arrives(EGRESS, received).leaves(INGRESS, frame, "answer")
    };
    let inward = |ip: Ip| {
        let frame = crossed(from_external(ip.hop().hop()), 10_800, 800);
        frame.with(|ip| ip.may_fragment().id(u32::from(ANY_ID)))
    };
    let outward = |ip: Ip| answered(from_external(ip.hop().hop()));
    vec![
        case(
            "A packet that an inspection appliance returns crosses to the internal tunnel.",
            setup.clone(),
            vec![forward(from_external(syn()), syn()), back(syn(), inward(syn()))],
        ),
        case(
            "Both directions of a flow through an inspection appliance cross to the other tunnel.",
            setup,
            vec![
                forward(from_external(syn()), syn()),
                forward(from_internal(syn_ack()), syn_ack()),
                back(syn(), inward(syn())),
                forward(from_external(request()), request()),
                back(syn_ack(), outward(syn_ack())),
                forward(from_internal(response()), response()),
                back(request(), inward(request())),
                back(response(), outward(response())),
            ],
        ),
    ]
}

fn replies() -> Vec<Case> {
    let ping = echo_request("198.51.100.7:9", "203.0.113.10").payload(b"ping");
    let pong = echo_reply("203.0.113.10:9", "198.51.100.7").payload(b"ping");
    let back = from_external(pong).sent_back();
    let back = back.with(|ip| ip.vxlan(|v| std::mem::swap(&mut v.from, &mut v.to)));
    let silent = echo_request("198.51.100.7:0", "203.0.113.10").numbers(0, 0);
    let zeros = echo_reply("203.0.113.10:0", "198.51.100.7").numbers(0, 0);
    let swapped = from_external(zeros).sent_back();
    let swapped = swapped.with(|ip| ip.vxlan(|v| std::mem::swap(&mut v.from, &mut v.to)));
    vec![
        case(
            "A ping of a frontend is answered on the tunnel on which it arrived, with inner MACs \
             swapped.",
            azure_nat(),
            vec![arrives(INGRESS, from_external(ping)).leaves(INGRESS, back, "reply")],
        ),
        case(
            "An echo reply that contains only zeros has the checksum 0xffff.",
            azure_nat(),
            vec![arrives(INGRESS, from_external(silent)).leaves(INGRESS, swapped, "reply")],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    // `POOL` and the cases have ports as numbers, and the frames have those of the constants.
    assert_eq!(end(OUR_EXTERNAL).port(), 10_801);
    [crossing(), nat(), changed_pool(), chain(), replies()].into_iter().flatten().collect()
}
