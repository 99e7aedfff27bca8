//! Martian sources (addresses that no valid packet has as source): loopback, multicast, broadcast,
//! and a frontend's own address.

use super::addresses::*;
use super::setups::{
    Setup, WEB_BACKEND, aws_nat, aws_return, azure_nat, plain_dsr, plain_nat, service,
};
use super::{Case, arrives, case};
use crate::frames::{Ip, aws_options, echo_request, error, flags, tcp, udp};
use tables::reason::DropReason::MartianSource;

/// IPv4 addresses that are invalid as a source.
const MARTIANS: [&str; 5] = [
    "127.0.0.1:40000",
    "127.255.255.254:40000",
    "224.0.0.5:40000",
    "239.255.255.255:40000",
    "255.255.255.255:40000",
];
/// IPv6 addresses that are invalid as a source.
const MARTIANS6: [&str; 3] = ["[::1]:40000", "[ff02::1]:40000", "[ff0e::7]:40000"];
/// Addresses next to those of [`MARTIANS`], which are valid clients.
const BESIDE: [(&str, &str); 3] = [
    ("The address before the loopback network is accepted as a client's.", "126.255.255.255:40000"),
    ("The address after the loopback network is accepted as a client's.", "128.0.0.1:40000"),
    ("The address before multicast is accepted as a client's.", "223.255.255.255:40000"),
];

/// Builds a SYN.
fn opens(from: &str, to: &str) -> Ip {
    tcp(from, to, flags::SYN)
}

fn plain() -> Vec<Case> {
    let all = |claim, setup: Setup, packets: Vec<Ip>| {
        let steps = packets.into_iter();
        let steps = steps.map(|ip| arrives(INGRESS, from_router(ip)).dropped(MartianSource));
        case(claim, setup, steps.collect())
    };
    let to_web = || MARTIANS.map(|from| opens(from, FRONTEND)).to_vec();
    let beside = BESIDE.map(|(claim, from)| {
        let translated = opens(from, FRONTEND).from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
        let arrival = arrives(INGRESS, from_router(opens(from, FRONTEND)));
        case(claim, plain_nat(), vec![arrival.leaves(EGRESS, to_backend(11, translated), "nat")])
    });
    let mut cases = vec![
        all(
            "A plain packet for a service from a martian source is dropped.",
            plain_nat(),
            to_web(),
        ),
        all(
            "A plain IPv6 packet for a service from a martian source is dropped.",
            plain_nat(),
            MARTIANS6.map(|from| opens(from, FRONTEND6)).to_vec(),
        ),
        all(
            "A plain packet for a service with direct server return from a martian source is \
             dropped.",
            plain_dsr("ipip", "10.0.2.11"),
            to_web(),
        ),
        all(
            "A packet to the appliance's own address from a martian source is dropped.",
            aws_nat(),
            vec![
                opens("127.0.0.1:40000", "10.0.1.10:8080"),
                echo_request("255.255.255.255:7", "10.0.1.10"),
                opens("[::1]:40000", "[fd00:1::10]:8080"),
                udp("224.0.0.5:40000", "10.0.1.10:9999"),
            ],
        ),
        all(
            "A gateway's tunnel packet with a martian outer source is dropped.",
            aws_return(),
            vec![opens(CLIENT, ELSEWHERE).in_geneve(
                "127.0.0.1:60001",
                OUR_GENEVE,
                aws_options(ENDPOINT, 0, 1),
            )],
        ),
        all(
            "A plain packet for a service from a frontend's address, the service's own or \
             another's, is dropped: the answer would be a packet for a service.",
            plain_nat(),
            vec![
                opens(FRONTEND, FRONTEND),
                opens("203.0.113.10:7", FRONTEND),
                opens("203.0.113.20:40000", FRONTEND),
                opens("[2001:db8:f::10]:40000", FRONTEND6),
                echo_request("203.0.113.20:7", "203.0.113.10"),
            ],
        ),
    ];
    cases.extend(beside);
    cases
}

fn inside_tunnels() -> Vec<Case> {
    let to_web = |from: &str| opens(from, FRONTEND);
    let dropped = |ip: Ip| arrives(INGRESS, from_gateway(1, ip)).dropped(MartianSource);
    let mut by_aws: Vec<_> = MARTIANS.map(|from| dropped(to_web(from))).into();
    by_aws.extend(MARTIANS6.map(|from| dropped(opens(from, FRONTEND6))));
    by_aws.push(dropped(opens("203.0.113.10:7", FRONTEND)));
    by_aws.push(dropped(echo_request("127.0.0.1:7", "203.0.113.10")));
    by_aws.push(dropped(echo_request("203.0.113.10:7", "203.0.113.10")));
    let by_azure = MARTIANS
        .map(|from| arrives(INGRESS, from_external(to_web(from))).dropped(MartianSource))
        .into();
    let returned = MARTIANS.map(|from| {
        let sent = from_gateway(1, opens(from, ELSEWHERE));
        arrives(INGRESS, sent.clone()).leaves(INGRESS, sent.sent_back(), "return")
    });
    let mut host = aws_nat().named("two frontends behind a gateway");
    host.services += &service(
        "other",
        "mode = \"nat\"",
        r#"{address = "203.0.113.30", port = 80, protocol = "tcp"}"#,
        WEB_BACKEND,
    );
    let from_host = opens("203.0.113.30:40000", FRONTEND);
    let translated = from_host.clone().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
    let punts = aws_return().named("aws, no_service = punt").gateway("no_service = \"punt\"");
    let open = syn().from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop();
    let open = arrives(INGRESS, from_gateway(1, syn())).leaves(EGRESS, to_backend(11, open), "nat");
    let stray = error("127.0.0.1", "203.0.113.10", (3, 4), 1_300, response().hop());
    let stray = from_gateway(1, stray);
    vec![
        case(
            "A gateway's packet for a service with a martian inner source is dropped.",
            aws_nat(),
            by_aws,
        ),
        case(
            "A gateway's VXLAN packet for a service with a martian inner source is dropped.",
            azure_nat(),
            by_azure,
        ),
        case(
            "A gateway's packet that matches no service is returned whatever its inner source.",
            aws_return(),
            returned.into(),
        ),
        case(
            "Behind a gateway a frontend's address may be the client of another frontend.",
            host,
            vec![arrives(INGRESS, from_gateway(1, from_host)).leaves(
                EGRESS,
                to_backend(11, translated),
                "nat",
            )],
        ),
        case(
            "With no_service = punt a packet that matches no service is dropped if its inner \
             source is martian.",
            punts,
            vec![dropped(opens("127.0.0.1:40000", ELSEWHERE))],
        ),
        case(
            "An ICMP error from a martian source matches no flow and is returned.",
            aws_nat(),
            vec![
                open,
                arrives(INGRESS, stray.clone()).leaves(INGRESS, stray.sent_back(), "return"),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [plain(), inside_tunnels()].into_iter().flatten().collect()
}
