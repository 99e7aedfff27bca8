//! NAT44 and NAT66 behind a gateway, with two arms.

use super::addresses::*;
use super::setups::{WEB, aws_nat, service};
use super::{Case, Step, arrives, case, services, wait};
use crate::frames::{Frame, Ip, echo_reply, echo_request, flags, tcp, udp};
use tables::reason::DropReason;

/// Returns the packet as the backend of "web" receives it.
fn out(ip: Ip, nat: u16) -> Frame {
    to_backend(11, ip.from(OUR_NAT).from_port(nat).to(BACKEND).hop())
}

/// Returns the packet as the backend of "web" sends it.
fn back(ip: Ip, nat: u16) -> Frame {
    from_backend(11, ip.from(BACKEND).to(OUR_NAT).to_port(nat))
}

/// A step in which the gateway's packet with this cookie reaches the backend of "web".
fn forward(cookie: u32, ip: Ip) -> Step {
    arrives(INGRESS, from_gateway(cookie, ip.clone())).leaves(EGRESS, out(ip, NAT_1), "nat")
}

/// A step in which the backend's answer reaches the gateway with this cookie.
fn and_back(cookie: u32, ip: Ip) -> Step {
    let frame = to_gateway(cookie, ip.clone().hop());
    arrives(EGRESS, back(ip, NAT_1)).leaves(INGRESS, frame, "answer")
}

fn tcp_cases() -> Vec<Case> {
    let mut own = aws_nat().named("nat from the arm's own address");
    own.nat_addresses = r#"["10.0.2.10"]"#;
    own.services = service("web", "mode = \"nat\"", WEB, super::setups::WEB_BACKEND);
    let stray = tcp(BACKEND, "10.0.2.10:30000", flags::ACK);
    let wrong = request().wrong_by(0x0101);
    let fin = tcp(CLIENT, FRONTEND, flags::FIN | flags::ACK).numbers(7_017, 9_018);
    vec![
        case(
            "Packets of a connection to a frontend are rewritten for the backend, and its answers \
             for the client; only addresses, ports, checksums and the TTL (by one) change.",
            aws_nat(),
            vec![
                forward(1, syn()),
                and_back(1, syn_ack()),
                forward(1, request()),
                and_back(1, response()),
                forward(1, fin),
            ],
        ),
        case(
            "A wrong inner checksum stays wrong by the same difference after NAT.",
            aws_nat(),
            vec![forward(1, syn()), forward(1, wrong), and_back(1, response().wrong_by(0x7001))],
        ),
        case(
            "NAT keeps the traffic class and IPv4 options of the inner packet.",
            aws_nat(),
            vec![
                forward(1, syn()),
                forward(1, request().tos(0xb8).options(&[7, 7, 4, 0, 0, 0, 0]).id(99)),
            ],
        ),
        case(
            "An answer of no known flow to a NAT address that is also the arm's address goes to \
             the kernel.",
            own,
            vec![arrives(EGRESS, from_backend(11, stray)).punted()],
        ),
    ]
}

fn lifetimes() -> Vec<Case> {
    vec![
        case(
            "A terminating backend keeps its flow, and a new flow goes to the other backend.",
            aws_nat(),
            vec![
                forward(1, syn()),
                services(two_backends("terminating")),
                forward(1, request()),
                and_back(1, response()),
                new_flow_to_the_other(),
            ],
        ),
        case(
            "A backend that is removed from the service keeps its flow.",
            aws_nat(),
            vec![
                forward(1, syn()),
                services(service(
                    "web",
                    "mode = \"nat\"",
                    WEB,
                    r#"{address = "10.0.2.12", port = 8080}"#,
                )),
                forward(1, request()),
                and_back(1, response()),
                new_flow_to_the_other(),
            ],
        ),
        case(
            "A flow that is idle for longer than its timeout ends.",
            aws_nat(),
            // The default of `flows.tcp_established_s` is 350.
            vec![
                forward(1, syn()),
                and_back(1, syn_ack()),
                forward(1, request()),
                wait(352),
                arrives(EGRESS, back(response(), NAT_1)).dropped(DropReason::NoFlow),
            ],
        ),
    ]
}

/// Builds the frontend's reset.
fn rst() -> Ip {
    tcp(FRONTEND, CLIENT, flags::RST | flags::ACK)
}

fn udp_states() -> Vec<Case> {
    let query = || udp(CLIENT, "203.0.113.10:53").payload(b"who?");
    let answer = || udp("203.0.113.10:53", CLIENT).payload(b"he!");
    let to = "10.0.2.11:5353";
    let forward = |n| {
        let out = to_backend(11, query().from(OUR_NAT).from_port(n).to(to).hop());
        arrives(INGRESS, from_gateway(1, query())).leaves(EGRESS, out, "nat")
    };
    let back = || from_backend(11, answer().from(to).to(OUR_NAT).to_port(NAT_1));
    let and_back =
        || arrives(EGRESS, back()).leaves(INGRESS, to_gateway(1, answer().hop()), "answer");
    let setup = |name: &'static str, policy| {
        let mut setup = aws_nat().named(name);
        setup.services = service(
            "dns",
            policy,
            r#"{address = "203.0.113.10", port = 53, protocol = "udp"}"#,
            r#"{address = "10.0.2.11", port = 5353}"#,
        );
        setup
    };
    let default_time = setup("nat, UDP", "mode = \"nat\"");
    let own_time = setup("nat, UDP, 45 s", "mode = \"nat\"\nudp_idle_s = 45");
    vec![
        case(
            "A UDP flow whose client sends no second packet ends after thirty seconds, although it \
             was answered.",
            default_time.clone(),
            vec![
                forward(NAT_1),
                and_back(),
                wait(32),
                arrives(EGRESS, back()).dropped(DropReason::NoFlow),
            ],
        ),
        case(
            "A UDP flow whose client sends after an answer has the full idle timeout.",
            default_time,
            vec![forward(NAT_1), and_back(), forward(NAT_1), wait(118), and_back(), forward(NAT_1)],
        ),
        case(
            "A service's UDP idle timeout replaces the appliance's.",
            own_time,
            vec![
                forward(NAT_1),
                and_back(),
                forward(NAT_1),
                wait(43),
                and_back(),
                wait(47),
                arrives(EGRESS, back()).dropped(DropReason::NoFlow),
            ],
        ),
    ]
}

fn tcp_states() -> Vec<Case> {
    vec![
        case(
            "A connection without an answer ends after twenty seconds.",
            aws_nat(),
            vec![
                forward(1, syn()),
                wait(22),
                arrives(EGRESS, back(syn_ack(), NAT_1)).dropped(DropReason::NoFlow),
            ],
        ),
        case(
            "A refused connection ends after ten seconds.",
            aws_nat(),
            vec![
                forward(1, syn()),
                and_back(1, rst()),
                wait(12),
                arrives(EGRESS, back(syn_ack(), NAT_1)).dropped(DropReason::NoFlow),
            ],
        ),
        case(
            "A reset of an established connection, which may be forged, does not end the flow.",
            aws_nat(),
            vec![
                forward(1, syn()),
                and_back(1, syn_ack()),
                forward(1, request()),
                forward(1, tcp(CLIENT, FRONTEND, flags::RST)),
                wait(340),
                and_back(1, response()),
                forward(1, request()),
                wait(340),
                and_back(1, response()),
                wait(352),
                arrives(EGRESS, back(response(), NAT_1)).dropped(DropReason::NoFlow),
            ],
        ),
        case(
            "A SYN on a reset connection opens it again with the same NAT port.",
            aws_nat(),
            vec![
                forward(1, syn()),
                and_back(1, syn_ack()),
                forward(1, tcp(CLIENT, FRONTEND, flags::RST)),
                forward(2, syn()),
                and_back(2, syn_ack()),
                forward(2, request()),
                wait(60),
                and_back(2, response()),
            ],
        ),
    ]
}

/// Builds "web" with backend 11 in this state and backend 12, which is active.
fn two_backends(state: &str) -> String {
    let backends = format!(
        "{{address = \"10.0.2.11\", port = 8080, state = \"{state}\"}}, \
         {{address = \"10.0.2.12\", port = 8080}}"
    );
    service("web", "mode = \"nat\"", WEB, &backends)
}

/// A step in which a new flow's first packet reaches backend 12.
fn new_flow_to_the_other() -> Step {
    let other = syn().from_port(41_000);
    let out = other.clone().from(OUR_NAT).from_port(NAT_2).to("10.0.2.12:8080").hop();
    arrives(INGRESS, from_gateway(8, other)).leaves(EGRESS, to_backend(12, out), "nat")
}

/// A step in which a client's packet to 203.0.113.20 reaches the backend of service "any" at the
/// same port.
fn any_forward(ip: Ip, nat: u16) -> Step {
    let port = ip.dst.port();
    let out = ip.clone().from(OUR_NAT).from_port(nat).to("10.0.2.12").to_port(port).hop();
    arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, to_backend(12, out), "nat")
}

fn other_protocols() -> Vec<Case> {
    let question = udp(CLIENT, "203.0.113.20:53").payload(b"question");
    let answer = udp("203.0.113.20:53", CLIENT).payload(b"answer");
    let answered = |ip: Ip| {
        let plain = ip.clone().from("10.0.2.12:53").to(OUR_NAT).to_port(NAT_1);
        arrives(EGRESS, from_backend(12, plain)).leaves(INGRESS, to_gateway(1, ip.hop()), "answer")
    };
    let ping = echo_request("198.51.100.7:77", "203.0.113.20").payload(b"ping");
    let pong = echo_reply("203.0.113.20:77", "198.51.100.7").payload(b"ping");
    let pong_plain = echo_reply("10.0.2.12", OUR_NAT).from_port(NAT_1).payload(b"ping");
    vec![
        case(
            "NAT rewrites UDP in both directions.",
            aws_nat(),
            vec![any_forward(question.clone(), NAT_1), answered(answer.clone())],
        ),
        case(
            "NAT44 leaves a UDP checksum of zero (none) as it is.",
            aws_nat(),
            vec![any_forward(question.unsummed(), NAT_1), answered(answer.unsummed())],
        ),
        case(
            "NAT replaces the identifier of a ping and restores the client's in the answer.",
            aws_nat(),
            vec![
                any_forward(ping, NAT_1),
                arrives(EGRESS, from_backend(12, pong_plain)).leaves(
                    INGRESS,
                    to_gateway(1, pong.hop()),
                    "answer",
                ),
            ],
        ),
        case(
            "ESP to a NAT service is dropped for a separate reason: it has no ports.",
            aws_nat(),
            vec![
                arrives(
                    INGRESS,
                    from_gateway(
                        1,
                        crate::frames::raw("198.51.100.7", "203.0.113.20", 50).payload(&[1; 40]),
                    ),
                )
                .dropped(DropReason::NatProtocol),
            ],
        ),
    ]
}

fn nat66() -> Vec<Case> {
    let request = tcp(CLIENT6, FRONTEND6, flags::SYN).mss(1440);
    let response = tcp(FRONTEND6, CLIENT6, flags::SYN | flags::ACK).mss(1440);
    let out = request.clone().from(OUR_NAT6).from_port(NAT_1).to(BACKEND6).hop();
    let plain = response.clone().from(BACKEND6).to(OUR_NAT6).to_port(NAT_1);
    vec![case(
        "NAT66 rewrites a connection in both directions.",
        aws_nat(),
        vec![
            arrives(INGRESS, from_gateway(1, request)).leaves(EGRESS, to_backend(11, out), "nat"),
            arrives(EGRESS, from_backend(11, plain)).leaves(
                INGRESS,
                to_gateway(1, response.hop()),
                "answer",
            ),
        ],
    )]
}

fn scopes() -> Vec<Case> {
    let by = |endpoint, cookie, nat| {
        arrives(INGRESS, from_node(NODE, endpoint, cookie, syn())).leaves(
            EGRESS,
            out(syn(), nat),
            "nat",
        )
    };
    let answered = |endpoint, cookie, nat| {
        arrives(EGRESS, back(syn_ack(), nat)).leaves(
            INGRESS,
            to_node(NODE, endpoint, cookie, syn_ack().hop()),
            "answer",
        )
    };
    vec![case(
        "Equal 5-tuples of two endpoints are two flows, each with its own answers.",
        aws_nat(),
        vec![
            by(ENDPOINT, 1, NAT_1),
            by(OTHER_ENDPOINT, 2, NAT_2),
            answered(OTHER_ENDPOINT, 2, NAT_2),
            answered(ENDPOINT, 1, NAT_1),
        ],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [tcp_cases(), lifetimes(), tcp_states(), udp_states(), other_protocols(), nat66(), scopes()]
        .into_iter()
        .flatten()
        .collect()
}
