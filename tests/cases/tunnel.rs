//! Tunnels to backends whose answers return through Weir, for flows that arrive through a gateway.

use super::addresses::*;
use super::setups::{WEB, aws_chain, aws_tunnel, service};
use super::{Case, Step, arrives, case, wait};
use crate::frames::{Ip, error, flags, tcp, udp};
use tables::reason::DropReason;

/// Returns the packet as an inspection appliance receives it, with Weir's three options.
fn to_appliance(cookie: u32, ip: Ip) -> Ip {
    let options = origin_options(ENDPOINT, NODE, cookie, ANY_TAG);
    ip.in_geneve("10.0.2.10", "10.0.2.11:6081", options).from_port(HASH_1)
}

/// A step in which the gateway's packet reaches the inspection appliance.
fn forward(cookie: u32, ip: Ip) -> Step {
    let out = to_backend(11, to_appliance(cookie, ip.clone().hop()));
    arrives(INGRESS, from_gateway(cookie, ip)).leaves(EGRESS, out, "tunnel")
}

/// A step in which the inspection appliance sends its packet back, as it would to a cloud's
/// gateway, and the gateway gets it.
fn returned(cookie: u32, ip: Ip) -> Step {
    let frame = to_backend(11, to_appliance(cookie, ip.clone().hop())).sent_back();
    arrives(EGRESS, frame).leaves(INGRESS, to_gateway(cookie, ip.hop().hop()), "answer")
}

fn chain() -> Vec<Case> {
    let unknown_sender = to_backend(11, to_appliance(1, syn().hop()))
        .sent_back()
        .with(|ip| ip.from("10.0.2.77").from_port(HASH_1));
    vec![
        case(
            "An inspection appliance receives the flow in GENEVE with the gateway's endpoint and \
             cookie and an attachment of Weir, and packets that it returns go to the gateway with \
             the gateway's latest options.",
            aws_chain(),
            vec![
                forward(1, syn()),
                returned(1, syn()),
                forward(2, syn_ack()),
                returned(2, syn_ack()),
                forward(1, request()),
                returned(1, request()),
            ],
        ),
        case(
            "A plain answer of a backend behind GENEVE goes to the flow's gateway.",
            aws_chain(),
            vec![
                forward(1, syn()),
                arrives(EGRESS, from_backend(11, syn_ack())).leaves(
                    INGRESS,
                    to_gateway(1, syn_ack().hop()),
                    "answer",
                ),
            ],
        ),
        case(
            "A tunnel packet from a sender that is no backend is dropped.",
            aws_chain(),
            vec![
                forward(1, syn()),
                arrives(EGRESS, unknown_sender).dropped(DropReason::UnknownBackendTunnel),
            ],
        ),
        case(
            "A flow with the same 5-tuple as one of another endpoint is dropped if its answers \
             would be ambiguous: IPIP does not carry the endpoint.",
            aws_tunnel("ipip"),
            vec![
                arrives(INGRESS, from_gateway(1, syn())).leaves(
                    EGRESS,
                    to_backend(11, syn().hop().in_ip("10.0.2.10", "10.0.2.11")),
                    "tunnel",
                ),
                arrives(INGRESS, from_node(NODE, OTHER_ENDPOINT, 2, syn()))
                    .dropped(DropReason::FlowAmbiguous),
            ],
        ),
        case(
            "GUE of an unknown variant is dropped.",
            aws_tunnel("gue"),
            vec![
                arrives(
                    EGRESS,
                    from_backend(11, udp("10.0.2.11:50000", "10.0.2.10:6080").payload(&[0x95; 40])),
                )
                .dropped(DropReason::GueHeader),
            ],
        ),
    ]
}

/// A case of a tunnel whose backend answers once through the tunnel and once without it.
fn both_paths(claim: &'static str, tunnel: &str, wrap: fn(Ip) -> Ip, back: fn(Ip) -> Ip) -> Case {
    let forward = |ip: Ip| {
        let out = to_backend(11, wrap(ip.clone().hop()));
        arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, out, "tunnel")
    };
    let answer = |ip: Ip| {
        arrives(EGRESS, from_backend(11, back(ip.clone()))).leaves(
            INGRESS,
            to_gateway(1, ip.hop()),
            "answer",
        )
    };
    let plain = |ip: Ip| {
        arrives(EGRESS, from_backend(11, ip.clone())).leaves(
            INGRESS,
            to_gateway(1, ip.hop()),
            "answer",
        )
    };
    let steps = vec![forward(syn()), answer(syn_ack()), forward(request()), plain(response())];
    case(claim, aws_tunnel(tunnel), steps)
}

fn answers() -> Vec<Case> {
    vec![
        both_paths(
            "A backend behind IPIP may answer by the tunnel or plain.",
            "ipip",
            |ip| ip.in_ip("10.0.2.10", "10.0.2.11"),
            |ip| ip.in_ip("10.0.2.11", "10.0.2.10"),
        ),
        both_paths(
            "A backend behind GUE may answer by the tunnel or plain.",
            "gue",
            |ip| ip.in_gue("10.0.2.10", "10.0.2.11:6080").from_port(HASH_1),
            |ip| ip.in_gue("10.0.2.11:55555", "10.0.2.10:6080"),
        ),
        both_paths(
            "A backend behind VXLAN may answer by the tunnel or plain.",
            "vxlan",
            |ip| {
                ip.in_vxlan("10.0.2.10", "10.0.2.11:4789", 0, OUT_MAC, backend_mac(11))
                    .from_port(HASH_1)
            },
            |ip| ip.in_vxlan("10.0.2.11:55555", "10.0.2.10:4789", 0, backend_mac(11), OUT_MAC),
        ),
    ]
}

fn headers() -> Vec<Case> {
    let with_tos = |tos| syn().tos(tos);
    let keys = "mode = \"tunnel\"\ntunnel = \"ipip\"\nmss = 1380\ndont_fragment = false";
    let mut clamped = aws_tunnel("ipip").named("ipip, mss 1380, no DF");
    clamped.services = service("web", keys, WEB, r#"{address = "10.0.2.11"}"#);
    let wrap = |ip: Ip| ip.in_ip("10.0.2.10", "10.0.2.11");
    let out = |ip: Ip| {
        let outer = wrap(ip.clone().hop()).tos(ip.tos);
        arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, to_backend(11, outer), "tunnel")
    };
    vec![
        case(
            "DSCP is copied to the outer header, ECN according to RFC 6040.",
            aws_tunnel("ipip"),
            vec![out(with_tos(0xb8)), out(with_tos(0xb9)), out(with_tos(0xba))],
        ),
        case(
            "UDP to port 0 matches no tunnel, whatever its length field.",
            aws_tunnel("ipip"),
            vec![{
                let mut ip = udp("10.0.1.100:5", "10.0.1.10:0").payload(&[7; 20]);
                ip.claimed_udp_len = Some(30);
                arrives(INGRESS, from_router(ip)).punted()
            }],
        ),
        case(
            "Congestion marked in the outer header is copied to the inner packet; an inner packet \
             that is not ECN-capable is dropped (RFC 6040).",
            aws_tunnel("ipip"),
            vec![
                arrives(INGRESS, from_gateway(1, syn().tos(2)).with(|ip| ip.tos(3))).leaves(
                    EGRESS,
                    to_backend(11, wrap(syn().tos(3).hop()).tos(3)),
                    "tunnel",
                ),
                arrives(INGRESS, from_gateway(1, syn()).with(|ip| ip.tos(3)))
                    .dropped(DropReason::Congestion),
            ],
        ),
        case(
            "With mss and dont_fragment = false of the service, the MSS of a SYN is limited and \
             the outer header has no DF.",
            clamped,
            vec![{
                let small = wrap(syn().mss(1380).hop()).may_fragment().id(u32::from(ANY_ID));
                arrives(INGRESS, from_gateway(1, syn())).leaves(
                    EGRESS,
                    to_backend(11, small),
                    "tunnel",
                )
            }],
        ),
    ]
}

/// Cases of a packet that fits until a router reports a smaller path MTU.
fn lowered_path_mtu() -> Vec<Case> {
    let wrap = |ip: Ip| ip.in_ip("10.0.2.10", "10.0.2.11");
    let long = || tcp(CLIENT, FRONTEND, flags::ACK).sized(1_400);
    let sent = || wrap(long().hop());
    let router_error = || error("10.0.2.1", "10.0.2.10", (3, 4), 1_300, sent()).quoting(548);
    let too_big = error("203.0.113.10", "198.51.100.7", (3, 4), 1_280, long());
    let too_big = too_big.quoting(548).tos(0xc0);
    let lowered = |last: Step| {
        vec![
            arrives(INGRESS, from_gateway(1, syn())).leaves(
                EGRESS,
                to_backend(11, wrap(syn().hop())),
                "tunnel",
            ),
            arrives(INGRESS, from_gateway(1, long())).leaves(
                EGRESS,
                to_backend(11, sent()),
                "tunnel",
            ),
            arrives(EGRESS, from_backend(1, router_error())).punted(),
            last,
        ]
    };
    let arrives_again = || arrives(INGRESS, from_gateway(1, long()));
    let mut silent = aws_tunnel("ipip").named("aws, IPIP, service drops");
    let keys = "mode = \"tunnel\"\ntunnel = \"ipip\"\ntoo_big = \"drop\"";
    silent.services = service("web", keys, WEB, r#"{address = "10.0.2.11"}"#);
    vec![
        case(
            "A too-big error about an outer packet of Weir lowers the path MTU, and the next inner \
             packet that does not fit is answered with an error.",
            aws_tunnel("ipip"),
            lowered(arrives_again().answered(
                INGRESS,
                from_gateway(1, too_big).sent_back(),
                DropReason::TooBigAnswered,
            )),
        ),
        case(
            "With the service's too_big = drop a packet above the path MTU to its backend is \
             dropped without an error.",
            silent,
            lowered(arrives_again().dropped(DropReason::TooBig)),
        ),
        case(
            "With the gateway's too_big = drop a packet above the path MTU to its backend is \
             dropped without an error.",
            aws_tunnel("ipip").named("aws, IPIP, gateway drops").gateway("too_big = \"drop\""),
            lowered(arrives_again().dropped(DropReason::TooBig)),
        ),
    ]
}

/// Cases of too-big errors to Weir's own address that must not lower a path MTU.
fn rejected_too_big() -> Vec<Case> {
    let wrap = |ip: Ip, to: &str| ip.in_ip("10.0.2.10", to);
    let long = || tcp(CLIENT, FRONTEND, flags::ACK).sized(1_400);
    let sent = || wrap(long().hop(), "10.0.2.11");
    let needed = |mtu, ip| error("10.0.2.1", "10.0.2.10", (3, 4), mtu, ip).quoting(548);
    let punted = |ip| arrives(EGRESS, from_backend(1, ip)).punted();
    let begun = || {
        let out = to_backend(11, wrap(syn().hop(), "10.0.2.11"));
        arrives(INGRESS, from_gateway(1, syn())).leaves(EGRESS, out, "tunnel")
    };
    let again = || arrives(INGRESS, from_gateway(1, long()));
    let passes = || again().leaves(EGRESS, to_backend(11, sent()), "tunnel");
    let too_big = error("203.0.113.10", "198.51.100.7", (3, 4), 1_280, long());
    let too_big = from_gateway(1, too_big.quoting(548).tos(0xc0)).sent_back();
    let own = tcp("10.0.2.10:40000", "10.0.2.11:8080", flags::ACK).sized(1_400);
    let junk = udp("10.0.2.10:53", "10.0.2.11:6081").sized(1_400);
    let mut few = aws_tunnel("ipip").named("aws, IPIP, one error a second");
    few.icmp = "path_mtu_errors_per_s = 1";
    vec![
        case(
            "A too-big error does not change a path MTU if its quote is not a tunnel packet of \
             Weir, goes to no next hop, or is not longer than the reported MTU.",
            aws_tunnel("ipip"),
            vec![
                begun(),
                passes(),
                punted(needed(1_300, own)),
                punted(needed(1_300, junk)),
                punted(needed(1_300, wrap(long().hop(), "10.0.2.99"))),
                punted(needed(1_420, sent())),
                passes(),
            ],
        ),
        case(
            "Too-big errors above icmp.path_mtu_errors_per_s do not change a path MTU.",
            few,
            vec![
                begun(),
                punted(needed(1_300, wrap(long().hop(), "10.0.2.99"))),
                punted(needed(1_300, sent())),
                passes(),
                wait(2),
                punted(needed(1_300, sent())),
                again().answered(INGRESS, too_big, DropReason::TooBigAnswered),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [chain(), answers(), headers(), lowered_path_mtu(), rejected_too_big()]
        .into_iter()
        .flatten()
        .collect()
}
