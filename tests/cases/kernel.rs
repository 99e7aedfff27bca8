//! The exception path: packets for the appliance itself, which are punted (passed to its kernel),
//! and packets of its kernel.

use super::addresses::*;
use super::setups::{Setup, aws_chain, aws_nat, aws_return, plain_nat, service};
use super::{Case, Counted, Step, Wire, arrives, case, kernel_sends, wait};
use crate::frames::{Frame, Ip, arp_reply, arp_request, echo_request, flags, raw, tcp, udp};
use tables::reason::DropReason;

const BROADCAST: [u8; 6] = [0xff; 6];

fn punted() -> Vec<Case> {
    let to_kernel =
        |claim, frame: Frame| case(claim, aws_nat(), vec![arrives(INGRESS, frame).punted()]);
    let solicitation = raw("fe80::1", "ff02::1:ff00:10", 58).ttl(255).payload(&SOLICITATION);
    let mac = [0x33, 0x33, 0xff, 0, 0, 0x10];
    let bgp = tcp("10.0.1.1:50000", "10.0.1.10:179", flags::SYN);
    vec![
        case(
            "ARP goes to the kernel: a broadcast request and a reply to the appliance.",
            aws_return(),
            vec![
                arrives(INGRESS, arp_request(ROUTER, BROADCAST, [10, 0, 1, 1], [10, 0, 1, 10]))
                    .punted(),
                arrives(INGRESS, arp_reply(ROUTER, IN_MAC, [10, 0, 1, 1], [10, 0, 1, 10])).punted(),
            ],
        ),
        to_kernel("Neighbor discovery goes to the kernel.", Frame::new(ROUTER, mac, solicitation)),
        to_kernel(
            "A ping of the appliance's address goes to the kernel.",
            from_router(echo_request("10.0.1.1:7", "10.0.1.10")),
        ),
        to_kernel(
            "A health probe to the appliance's address goes to the kernel.",
            from_router(tcp("10.0.1.100:50000", "10.0.1.10:8080", flags::SYN)),
        ),
        to_kernel("A BGP session goes to the kernel.", from_router(bgp)),
        to_kernel(
            "A ping of the appliance's IPv6 address goes to the kernel.",
            from_router(echo_request("[fd00:1::1]:7", OUR_IN6)),
        ),
        case(
            "With the gateway's no_service = punt a packet that matches no service goes to the \
             kernel decapsulated.",
            aws_return().named("aws, no_service = punt").gateway("no_service = \"punt\""),
            vec![{
                let inner = || tcp(CLIENT, ELSEWHERE, flags::SYN);
                arrives(INGRESS, from_gateway(1, inner()))
                    .to_kernel(INGRESS, Frame::new(IN_MAC, IN_MAC, inner()))
            }],
        ),
    ]
}

fn limits() -> Vec<Case> {
    let ping = || from_router(echo_request("10.0.1.1:7", "10.0.1.10"));
    let mut two = aws_return().named("two punts a second");
    two.punt = "icmp_limit_per_s = 2";
    let mut full = aws_return().named("kernel queue of one frame");
    full.kernel_capacity = 1;
    let mut rejected = arrives(INGRESS, ping()).dropped(DropReason::PuntFull);
    // The packet counts as punted and as dropped: its verdict is punt, but the queue is full.
    rejected.counted.push(Counted::Verdict("punt"));
    let mut punts = plain_nat().named("plain_no_service = punt");
    punts.punt = "plain_no_service = \"punt\"";
    vec![
        case(
            "Punted packets are limited per second, and packets above the limit are counted.",
            two,
            vec![
                arrives(INGRESS, ping()).punted(),
                arrives(INGRESS, ping()).punted(),
                arrives(INGRESS, ping()).dropped(DropReason::PuntLimitedIcmp),
                wait(2),
                arrives(INGRESS, ping()).punted(),
            ],
        ),
        case(
            "A packet for which the queue to the kernel is full is counted.",
            full,
            vec![arrives(INGRESS, ping()).punted(), rejected],
        ),
        case(
            "With plain_no_service = punt a plain packet that matches no service goes to the \
             kernel.",
            punts,
            vec![arrives(INGRESS, from_router(tcp(CLIENT, ELSEWHERE, flags::SYN))).punted()],
        ),
    ]
}

/// Builds packets to the appliance's address that no service of the appliance expects.
fn unsolicited(n: u16) -> [Frame; 3] {
    let from = format!("198.51.100.99:{}", 1024 + n);
    [
        from_router(udp(&from, "10.0.1.10:9999")),
        from_router(tcp(&from, &format!("10.0.1.10:{}", 20_000 + n), flags::SYN)),
        // To the BGP port, from an address that is not a neighbor's.
        from_router(tcp(&from, "10.0.1.10:179", flags::SYN)),
    ]
}

/// A neighbor solicitation (RFC 4861 4.3), with the fields that a plane reads.
const SOLICITATION: [u8; 24] =
    [135, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Builds packets that must not be lost to floods: health probes, BGP and BFD of a neighbor, ARP,
/// neighbor discovery.
fn essential(n: u16) -> Vec<Wire> {
    let (prober, router) =
        (format!("10.0.1.100:{}", 50_000 + n), format!("10.0.1.1:{}", 50_000 + n));
    let solicitation = raw("fe80::1", "ff02::1:ff00:10", 58).ttl(255).payload(&SOLICITATION);
    vec![
        from_router(tcp(&prober, "10.0.1.10:8080", flags::SYN)).into(),
        from_router(tcp(&prober, "10.0.1.10:8081", flags::SYN)).into(),
        from_router(tcp(&router, "10.0.1.10:179", flags::ACK)).into(),
        // A packet of a BGP session that the appliance opened.
        from_router(tcp("10.0.1.1:179", &format!("10.0.1.10:{}", 40_000 + n), flags::ACK)).into(),
        from_router(udp(&router, "10.0.1.10:3784").ttl(255)).into(),
        arp_request(ROUTER, BROADCAST, [10, 0, 1, 1], [10, 0, 1, 10]).into(),
        Frame::new(ROUTER, [0x33, 0x33, 0xff, 0, 0, 0x10], solicitation).into(),
    ]
}

fn classes() -> Vec<Case> {
    let mut flooded = aws_nat().named("one punt a second of two classes");
    flooded.punt = "limit_per_s = 1\nicmp_limit_per_s = 1";
    flooded.routers = vec!["10.0.1.1"];
    let ping = |n: u16| from_router(echo_request(&format!("198.51.100.99:{n}"), "10.0.1.10"));
    let routed = raw("2001:db8:c::7", OUR_IN6, 58).ttl(254).payload(&SOLICITATION);
    let mut steps: Vec<Step> = vec![
        arrives(INGRESS, from_router(udp("198.51.100.99:1", "10.0.1.10:9999"))).punted(),
        arrives(INGRESS, ping(1)).punted(),
    ];
    for n in 0..8 {
        let other = |frame| arrives(INGRESS, frame).dropped(DropReason::PuntLimitedOther);
        steps.extend(unsolicited(n).into_iter().map(other));
        steps.push(arrives(INGRESS, ping(n)).dropped(DropReason::PuntLimitedIcmp));
        // Neighbor discovery that was routed (hop limit below 255) is invalid (RFC 4861 7.1.1).
        let routed = from_router(routed.clone());
        steps.push(arrives(INGRESS, routed).dropped(DropReason::PuntLimitedIcmp));
        steps.extend(essential(n).into_iter().map(|frame| arrives(INGRESS, frame).punted()));
    }
    let mut few = aws_nat().named("one punt a second of local ports and of discovery");
    few.punt = "local_limit_per_s = 1\nneighbor_limit_per_s = 1";
    let probe = || from_router(tcp("10.0.1.100:50000", "10.0.1.10:8080", flags::SYN));
    let who_has = || arp_request(ROUTER, BROADCAST, [10, 0, 1, 1], [10, 0, 1, 10]);
    vec![
        case(
            "During a flood of unsolicited packets to the appliance's address, which are counted \
             by class, no probe, no packet of a BGP neighbor, no ARP and no neighbor discovery is \
             lost.",
            flooded,
            steps,
        ),
        case(
            "Packets to the appliance's own ports, and ARP, have separate limits and drop reasons.",
            few,
            vec![
                arrives(INGRESS, probe()).punted(),
                arrives(INGRESS, probe()).dropped(DropReason::PuntLimitedLocal),
                arrives(INGRESS, who_has()).punted(),
                arrives(INGRESS, who_has()).dropped(DropReason::PuntLimitedNeighbor),
                arrives(INGRESS, from_router(udp("198.51.100.99:1", "10.0.1.10:9999"))).punted(),
                arrives(INGRESS, from_router(echo_request("198.51.100.99:1", "10.0.1.10")))
                    .punted(),
            ],
        ),
    ]
}

/// Cases of frontends whose addresses and ports include the appliance's own.
fn own_ports() -> Vec<Case> {
    let frontends = |list: &str| {
        let mut setup = plain_nat();
        setup.services = service("web", "mode = \"nat\"", list, r#"{address = "10.0.2.11"}"#);
        setup
    };
    let any_port = frontends(r#"{address = "10.0.1.10", protocol = "tcp"}"#);
    let networks = frontends(
        r#"{address = "0.0.0.0/0"}, {address = "10.0.1.0/24", port = 8080, protocol = "tcp"}"#,
    );
    let balanced = |to: &str| {
        let sent = tcp(CLIENT, to, flags::SYN);
        let (_, port) = to.split_once(':').expect("a valid port");
        let backend = format!("10.0.2.11:{port}");
        let forwarded = sent.clone().from(OUR_NAT).from_port(NAT_1).to(&backend).hop();
        let forwarded = to_backend(11, forwarded);
        arrives(INGRESS, from_router(sent)).leaves(EGRESS, forwarded, "nat")
    };
    let own = || {
        ["10.0.1.10:8080", "10.0.1.10:8081", "10.0.1.10:22", "10.0.1.10:179"]
            .map(|to| arrives(INGRESS, from_router(tcp(CLIENT, to, flags::SYN))).punted())
    };
    let mut of_any_port: Vec<Step> = own().into();
    of_any_port.push(balanced("10.0.1.10:9999"));
    let mut of_networks: Vec<Step> = own().into();
    of_networks.push(arrives(INGRESS, from_router(udp(CLIENT, "10.0.1.10:3784"))).punted());
    of_networks.push(balanced("10.0.1.11:8080"));
    vec![
        case(
            "A frontend of any port at the appliance's address receives no packet for the \
             appliance's own ports.",
            any_port.named("frontend of any port at the appliance's address"),
            of_any_port,
        ),
        case(
            "A frontend of a network that contains the appliance's address receives no packet for \
             the appliance's own ports.",
            networks.named("frontends of networks that contain the appliance's address"),
            of_networks,
        ),
    ]
}

fn from_kernel() -> Vec<Case> {
    let session = Frame::new(IN_MAC, ROUTER, tcp("10.0.1.10:179", "10.0.1.1:50000", flags::ACK));
    let question = arp_request(IN_MAC, BROADCAST, [10, 0, 1, 10], [10, 0, 1, 1]);
    vec![
        case(
            "A packet that the kernel sends by an arm leaves by that arm unchanged.",
            aws_return(),
            vec![
                kernel_sends(INGRESS, session.clone()).leaves(INGRESS, session.clone(), "forward"),
                kernel_sends(INGRESS, question.clone()).leaves(INGRESS, question, "forward"),
            ],
        ),
        case(
            "A truncated frame from the kernel is dropped.",
            aws_return(),
            vec![kernel_sends(INGRESS, session.cut(20)).dropped(DropReason::ExceptionMalformed)],
        ),
    ]
}

/// Returns a setup of "web" through GENEVE, with a probe source for its backend.
fn probed() -> Setup {
    let mut setup = aws_chain().named("a chain with a probe source");
    setup.services = setup
        .services
        .replace(r#"{address = "10.0.2.11"}"#, r#"{address = "10.0.2.11", probe = "198.18.0.1"}"#);
    setup
}

fn probes() -> Vec<Case> {
    let probe = || tcp("198.18.0.1:45000", FRONTEND, flags::SYN);
    let reply = || tcp(FRONTEND, "198.18.0.1:45000", flags::SYN | flags::ACK);
    let by = |ip: Ip| Frame::new(OUT_MAC, EGRESS_ROUTER, ip);
    let out = || probe().in_geneve("10.0.2.10", "10.0.2.11:6081", own_options(0)).from_port(HASH_1);
    let back = reply().in_geneve("10.0.2.11", "10.0.2.10:6081", own_options(0)).from_port(HASH_1);
    let sent = || kernel_sends(EGRESS, by(probe())).leaves(EGRESS, to_backend(11, out()), "tunnel");
    let directly = Setup {
        services: probed().services.replace("mode = \"tunnel\"", "mode = \"dsr\""),
        ..probed().named("dsr with a probe source")
    };
    let plain_answer = || arrives(EGRESS, from_backend(11, reply())).punted();
    vec![
        case(
            "A packet from a backend's probe source goes through the tunnel to exactly that \
             backend, and the answer goes to the kernel.",
            probed(),
            vec![
                sent(),
                arrives(EGRESS, from_backend(11, back))
                    .to_kernel(EGRESS, Frame::new(OUT_MAC, OUT_MAC, reply())),
            ],
        ),
        case(
            "An answer to a probe that arrives outside the tunnel, as answers to clients do, goes \
             to the kernel.",
            probed(),
            vec![sent(), plain_answer()],
        ),
        case(
            "Backends with direct server return are probed in the same way.",
            directly,
            vec![sent(), plain_answer()],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [punted(), limits(), classes(), own_ports(), from_kernel(), probes()]
        .into_iter()
        .flatten()
        .collect()
}
