//! Full tables, limits per second, packets that exceed the path MTU, and expired TTLs.

use super::addresses::*;
use super::setups::{
    Setup, aws_chain, aws_nat, aws_return, aws_tunnel, plain_dsr, service, web_by_tunnel,
};
use super::{Act, Case, Step, arrives, arrives_split, case, services, wait};
use crate::frames::{Frame, Ip, error, flags, tcp, udp};
use tables::reason::DropReason;

/// A step in which `count` flows arrive and each is forwarded with this verdict.
fn flood(arm: u8, make: fn(u16) -> Frame, count: u16, verdict: &'static str) -> Step {
    let mut step = Step::new(Act::Flood { arm, make, count });
    step.counted.push(super::Counted::Verdict(verdict));
    step
}

/// A step in which NAT flows arrive until one is dropped for `reason`; at least `min` flows and
/// fewer than `max` are forwarded before it.
fn until(make: fn(u16) -> Frame, min: u16, max: u16, reason: DropReason) -> Step {
    let mut step = Step::new(Act::Until { arm: INGRESS, make, min, max });
    step.counted.push(super::Counted::Verdict("nat"));
    step.counted.push(super::Counted::Drop(reason));
    step
}

/// Builds the first packet of the client's flow number n.
fn flow(n: u16) -> Frame {
    from_gateway(u32::from(n), syn().from_port(1024 + n))
}

/// Builds the first packet of flow number n, which matches no service.
fn stray(n: u16) -> Frame {
    from_gateway(u32::from(n), tcp(CLIENT, ELSEWHERE, flags::SYN).from_port(1024 + n))
}

/// Builds a packet of a client behind gateway endpoint number n.
fn from_endpoint(n: u16) -> Frame {
    from_node(NODE, 0x1000 + u64::from(n), 1, tcp(CLIENT, ELSEWHERE, flags::SYN))
}

/// Builds a packet of a client behind gateway endpoint number 0x100 + n, which is none of those of
/// [`fill_scopes`] with [`from_endpoint`].
fn from_other_endpoint(n: u16) -> Frame {
    from_endpoint(0x100 + n)
}

/// Limits the flow table to 64 flows.
fn small(setup: Setup) -> Setup {
    Setup { max_flows: 64, ..setup }
}

fn few_ports(name: &'static str, nat_ports: &'static str) -> Setup {
    Setup { nat_ports, ..aws_nat().named(name) }
}

/// A step in which the client's packet reaches the backend from the NAT port that the plane chose
/// for the flow.
fn translated(ip: Ip) -> Step {
    let out = to_backend(11, ip.clone().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop());
    arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, out, "nat")
}

/// Steps that confirm a flow: SYN, the backend's SYN-ACK, and the client's request.
fn confirmed() -> Vec<Step> {
    let back = from_backend(11, syn_ack().from(BACKEND).to(OUR_NAT).to_port(NAT_1));
    let answered = arrives(EGRESS, back).leaves(INGRESS, to_gateway(1, syn_ack().hop()), "answer");
    vec![translated(syn()), answered, translated(request())]
}

/// A step in which the client's request reaches the backend from the same NAT port.
fn continues() -> Step {
    translated(request())
}

fn full_tables() -> Vec<Case> {
    vec![
        case(
            "A flood of unconfirmed flows displaces no confirmed flow and does not block new ones.",
            small(aws_nat().named("nat, 64 flows")),
            [confirmed(), vec![flood(INGRESS, |n| flow(n + 1), 300, "nat"), continues()]].concat(),
        ),
        case(
            "More unmatched flows than the flow table has entries are returned: they take none.",
            small(aws_return().named("return, 64 flows")),
            vec![flood(INGRESS, stray, 300, "return")],
        ),
        case(
            "More unconfirmed tunnel flows than the flow table has entries are all forwarded.",
            small(aws_chain().named("tunnel, 64 flows")),
            vec![flood(INGRESS, flow, 300, "tunnel")],
        ),
        case(
            "A flood of unconfirmed flows takes no NAT port of a confirmed flow towards a backend.",
            few_ports("eight NAT ports", "2000-2007"),
            [confirmed(), vec![flood(INGRESS, |n| flow(n + 1), 300, "nat"), continues()]].concat(),
        ),
        case(
            "A confirmed flow keeps the last NAT port towards its backend.",
            few_ports("one NAT port", "2000-2000"),
            [
                confirmed(),
                vec![arrives(INGRESS, flow(1)).dropped(DropReason::NatPortsExhausted), continues()],
            ]
            .concat(),
        ),
        case(
            "Packets of gateway endpoints beyond the scope table's capacity are dropped for a \
             separate reason.",
            Setup { max_scopes: 8, ..aws_return().named("eight scopes") },
            vec![fill_scopes(from_endpoint)],
        ),
        case(
            "The scope of an endpoint that is idle for longer than the longest flow timeout is \
             evicted for another endpoint; the endpoint of a flow in use keeps its scope.",
            Setup { max_scopes: 8, ..aws_nat().named("nat, eight scopes") },
            [
                confirmed(),
                vec![fill_scopes(from_endpoint), wait(200), continues(), wait(200)],
                vec![fill_scopes(from_other_endpoint), continues()],
            ]
            .concat(),
        ),
    ]
}

/// A step in which packets of ever more endpoints are returned, until one is dropped because the
/// scope table is full.
fn fill_scopes(endpoint: fn(u16) -> Frame) -> Step {
    let mut step = until(endpoint, 4, 64, DropReason::ScopeTableFull);
    step.counted[0] = super::Counted::Verdict("return");
    step
}

fn sizes() -> Vec<Case> {
    let big = |len| tcp(CLIENT, ELSEWHERE, flags::ACK).sized(len);
    let six = |len| tcp(CLIENT6, ELSEWHERE6, flags::ACK).sized(len);
    let silent = aws_return().named("aws, too_big = drop").gateway("too_big = \"drop\"");
    // The source of an error is the destination of the packet that it reports: Weir has no address
    // of its own that the sender knows.
    let needed =
        |ip: Ip, mtu| error("192.0.2.80", "198.51.100.7", (3, 4), mtu, ip).quoting(548).tos(0xc0);
    let six_needed =
        |ip: Ip, mtu| error("2001:db8:e::80", "2001:db8:c::7", (2, 0), mtu, ip).tos(0xc0);
    vec![
        case(
            "An inner packet of 8,500 bytes is returned.",
            aws_return(),
            vec![arrives(INGRESS, from_gateway(1, big(8_500))).leaves(
                INGRESS,
                from_gateway(1, big(8_500)).sent_back(),
                "return",
            )],
        ),
        case(
            "With too_big = reply an inner packet of 8,501 bytes is answered with \
             fragmentation-needed.",
            aws_return(),
            vec![arrives(INGRESS, from_gateway(1, big(8_501))).answered(
                INGRESS,
                from_gateway(1, needed(big(8_501), 8_500)).sent_back(),
                DropReason::TooBigAnswered,
            )],
        ),
        case(
            "With too_big = reply an inner IPv6 packet of 8,501 bytes is answered with \
             packet-too-big.",
            aws_return(),
            vec![arrives(INGRESS, from_gateway(1, six(8_501))).answered(
                INGRESS,
                from_gateway(1, six_needed(six(8_501), 8_500)).sent_back(),
                DropReason::TooBigAnswered,
            )],
        ),
        case(
            "An error about a packet in two buffer segments quotes bytes of the first segment \
             only.",
            aws_return(),
            vec![{
                // The inner packet begins at byte 82, after Ethernet, IPv4, UDP and GENEVE.
                let quoting = |ip: Ip| ip.quoting(300 - 82);
                arrives_split(INGRESS, from_gateway(1, big(8_501)), 300).answered(
                    INGRESS,
                    from_gateway(1, quoting(needed(big(8_501), 8_500))).sent_back(),
                    DropReason::TooBigAnswered,
                )
            }],
        ),
        case(
            "With too_big = drop an inner packet of 8,501 bytes is dropped without an ICMP error.",
            silent.clone(),
            vec![arrives(INGRESS, from_gateway(1, big(8_501))).dropped(DropReason::TooBig)],
        ),
        case(
            "An ICMP error that is too big is not answered with another error.",
            aws_return(),
            vec![{
                let quote = tcp(ELSEWHERE, CLIENT, flags::ACK).sized(8_600);
                let error = error("198.51.100.9", "192.0.2.80", (3, 1), 0, quote).quoting(8_600);
                arrives(INGRESS, from_gateway(1, error)).dropped(DropReason::TooBig)
            }],
        ),
    ]
}

fn ttl() -> Vec<Case> {
    let expired = error("203.0.113.10", "198.51.100.7", (11, 0), 0, syn().ttl(1)).quoting(548);
    let quote = tcp(FRONTEND, CLIENT, flags::ACK);
    let error = error("198.51.100.1", "203.0.113.10", (3, 1), 0, quote).ttl(1);
    vec![case(
        "A packet to a backend whose TTL expires at Weir is answered with time-exceeded; an ICMP \
         error whose TTL expires is not answered. Both are dropped for the same reason.",
        aws_nat(),
        vec![
            arrives(INGRESS, from_gateway(1, syn())).leaves(
                EGRESS,
                to_backend(11, syn().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop()),
                "nat",
            ),
            arrives(INGRESS, from_gateway(1, syn().ttl(1))).answered(
                INGRESS,
                from_gateway(1, expired.tos(0xc0)).sent_back(),
                DropReason::TtlExceeded,
            ),
            arrives(INGRESS, from_gateway(1, error)).dropped(DropReason::TtlExceeded),
        ],
    )]
}

/// Cases of the limits of ICMP errors per second: per network of the receiver, and per arm.
fn errors() -> Vec<Case> {
    let frames = |client: &str| {
        let syn = tcp(client, FRONTEND, flags::SYN).ttl(1);
        let host = client.split(':').next().unwrap_or_default();
        let expired = error("203.0.113.10", host, (11, 0), 0, syn.clone()).quoting(548).tos(0xc0);
        (from_gateway(1, syn), from_gateway(1, expired).sent_back())
    };
    let answered = |client: &str| {
        let (arrived, left) = frames(client);
        arrives(INGRESS, arrived).answered(INGRESS, left, DropReason::TtlExceeded)
    };
    let silent = |client: &str| arrives(INGRESS, frames(client).0).dropped(DropReason::TtlExceeded);
    let mut few = aws_nat().named("three errors a second, two per network");
    few.icmp = "errors_per_s = 3\nerrors_per_network_per_s = 2";
    // With some seeds two of the networks share a token bucket.
    few.seed = Some(1);
    vec![case(
        "ICMP errors sent are limited per second, per network of the receiver and per arm; packets \
         beyond a limit are dropped without an error.",
        few,
        vec![
            answered("198.51.100.7:1"),
            answered("198.51.100.8:1"),
            silent("198.51.100.9:1"),
            answered("198.51.101.7:1"),
            silent("198.51.102.7:1"),
            wait(2),
            answered("198.51.102.7:1"),
        ],
    )]
}

/// Limits new flows to one per second, for NAT and for tunnels.
fn one_new_flow(setup: Setup, name: &'static str) -> Setup {
    Setup { new_flows: "nat_new_per_s = 1\ntunnel_new_per_s = 1", ..setup.named(name) }
}

/// A step in which a packet is forwarded to backend number n through an IPIP tunnel.
fn by_ipip(arrived: fn(Ip) -> Frame, ip: Ip, n: u8) -> Step {
    let out = ip.clone().hop().in_ip("10.0.2.10", &format!("10.0.2.{n}"));
    arrives(INGRESS, arrived(ip)).leaves(EGRESS, to_backend(n, out), "tunnel")
}

/// Builds a UDP service with direct server return and two backends in these states.
fn dns(first: &str, second: &str) -> String {
    let backends = format!(
        "{{address = \"10.0.2.11\", state = \"{first}\"}}, \
         {{address = \"10.0.2.12\", state = \"{second}\"}}"
    );
    let frontend = r#"{address = "203.0.113.10", port = 53, protocol = "udp"}"#;
    service("dns", "mode = \"dsr\"\ntunnel = \"ipip\"", frontend, &backends)
}

fn query() -> Ip {
    udp(CLIENT, "203.0.113.10:53").payload(b"who?")
}

fn new_flows() -> Vec<Case> {
    let other = |ip: Ip| ip.from_port(4001);
    let through_gateway: fn(Ip) -> Frame = |ip| from_gateway(1, ip);
    let answer = || arrives(EGRESS, from_backend(11, syn_ack()));
    let other_answer = || arrives(EGRESS, from_backend(11, syn_ack().to_port(4001)));
    let to_client = |ip: Ip| to_gateway(1, ip.hop());
    vec![
        case(
            "Above the limit a new NAT flow is dropped and existing flows are forwarded; after two \
             seconds a new flow is accepted.",
            one_new_flow(aws_nat(), "nat, one new flow a second"),
            [
                vec![translated(syn())],
                vec![arrives(INGRESS, flow(1)).dropped(DropReason::NewFlowLimited)],
                vec![translated(syn()), continues(), wait(2)],
                vec![flood(INGRESS, |n| flow(n + 1), 1, "nat"), continues()],
                vec![arrives(INGRESS, flow(2)).dropped(DropReason::NewFlowLimited)],
            ]
            .concat(),
        ),
        case(
            "Above the limit a new flow by tunnel is forwarded without an entry in the flow table.",
            one_new_flow(aws_tunnel("ipip"), "tunnel, one new flow a second"),
            vec![
                by_ipip(through_gateway, syn(), 11),
                by_ipip(through_gateway, other(syn()), 11),
                by_ipip(through_gateway, other(request()), 11),
                answer().leaves(INGRESS, to_client(syn_ack()), "answer"),
                other_answer().dropped(DropReason::NoMatchingService),
                wait(2),
                by_ipip(through_gateway, other(syn()), 11),
                other_answer().leaves(INGRESS, to_client(syn_ack().to_port(4001)), "answer"),
            ],
        ),
        case(
            "Above the limit a new flow with direct server return is forwarded without an entry: \
             it moves when the backends change, and a flow with an entry stays.",
            one_new_flow(plain_dsr("ipip", "10.0.2.11"), "dsr, one new flow a second"),
            vec![
                by_ipip(from_router, syn(), 11),
                by_ipip(from_router, other(syn()), 11),
                services(web_by_tunnel("dsr", "ipip", "10.0.2.12")),
                by_ipip(from_router, request(), 11),
                by_ipip(from_router, other(request()), 12),
            ],
        ),
        case(
            "Above the limit a flow of a failed backend moves to another backend and loses its \
             entry.",
            one_new_flow(
                Setup { services: dns("active", "maintenance"), ..plain_dsr("ipip", "10.0.2.11") },
                "dsr, one new flow a second, two backends",
            ),
            vec![
                by_ipip(from_router, query(), 11),
                services(dns("quarantined", "active")),
                by_ipip(from_router, query(), 12),
                services(dns("active", "maintenance")),
                by_ipip(from_router, query(), 11),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [full_tables(), sizes(), ttl(), errors(), new_flows()].into_iter().flatten().collect()
}
