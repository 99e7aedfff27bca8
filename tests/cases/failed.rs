//! Flows whose backend fails, drains, goes into maintenance, or is removed.

use super::addresses::*;
use super::setups::{Setup, WEB, aws_nat, plain_nat, service};
use super::{Case, Step, arrives, case, services};
use crate::frames::{Frame, Ip, flags, tcp, udp};

/// The frontend of service "dns".
const DNS: &str = r#"{address = "203.0.113.10", port = 53, protocol = "udp"}"#;
/// The address and port of that frontend.
const DNS_FRONTEND: &str = "203.0.113.10:53";

/// Builds "web", "web6" and "dns" with these keys and two backends each: 11 in state `state`, and
/// 12. With `None`, backend 11 is left out.
fn with_first(keys: &str, state: Option<&str>) -> String {
    let keys = format!("mode = \"nat\"\n{keys}");
    let both = |first: &str, second: &str, port: u16| {
        let one =
            |address: &str, rest: &str| format!("{{address = \"{address}\", port = {port}{rest}}}");
        // While backend 11 is active, backend 12 takes no new flow.
        match state {
            Some("active") => {
                let idle = ", state = \"maintenance\"";
                format!("{}, {}", one(first, ""), one(second, idle))
            }
            Some(state) => {
                format!("{}, {}", one(first, &format!(", state = \"{state}\"")), one(second, ""))
            }
            None => one(second, ""),
        }
    };
    let six = WEB.replace("203.0.113.10", "2001:db8:f::10");
    service("web", &keys, WEB, &both("10.0.2.11", "10.0.2.12", 8080))
        + &service("web6", &keys, &six, &both("fd00:2::11", "fd00:2::12", 8080))
        + &service("dns", &keys, DNS, &both("10.0.2.11", "10.0.2.12", 5353))
}

/// Returns `setup` with the services before the change: backend 11 is active.
fn start(setup: Setup, keys: &str) -> Setup {
    let named = setup.named("two backends, one fails");
    Setup { services: with_first(keys, Some("active")), ..named }
}

fn query() -> Ip {
    udp(CLIENT, DNS_FRONTEND).payload(b"who?")
}

/// A step in which the client's packet reaches backend n at `port`, from NAT port `nat`.
fn forwarded(frame: fn(Ip) -> Frame, ip: Ip, n: u8, port: u16, nat: u16) -> Step {
    let (nat_address, backend) = match ip.is_v6() {
        true => (OUR_NAT6, format!("[fd00:2::{n}]:{port}")),
        false => (OUR_NAT, format!("10.0.2.{n}:{port}")),
    };
    let out = ip.clone().from(nat_address).from_port(nat).to(&backend).hop();
    arrives(INGRESS, frame(ip)).leaves(EGRESS, to_backend(n, out), "nat")
}

/// A step in which the client's query reaches backend n from NAT port `nat`.
fn queried(n: u8, nat: u16) -> Step {
    forwarded(by_gateway, query(), n, 5353, nat)
}

fn by_gateway(ip: Ip) -> Frame {
    from_gateway(1, ip)
}

/// A case of a UDP flow: on backend 11 before the change, on backend `then` after it.
fn udp_case(claim: &'static str, keys: &str, state: Option<&str>, then: u8) -> Case {
    let nat = if then == 11 { NAT_1 } else { NAT_2 };
    let after = services(with_first(keys, state));
    case(
        claim,
        start(aws_nat(), keys),
        vec![queried(11, NAT_1), after, queried(then, nat), queried(then, nat)],
    )
}

/// Builds a client's segment to the frontend of its family.
fn web(client: &str, flags: u8) -> Ip {
    let to = if client.starts_with('[') { FRONTEND6 } else { FRONTEND };
    tcp(client, to, flags).numbers(7_001, 9_001)
}

/// A case of a TCP flow: on backend 11 before and after the change.
fn tcp_stays(claim: &'static str, keys: &str, state: Option<&str>) -> Case {
    let push = || web(CLIENT, flags::PSH | flags::ACK).payload(b"more");
    let steps = vec![
        forwarded(by_gateway, web(CLIENT, flags::SYN), 11, 8080, NAT_1),
        services(with_first(keys, state)),
        forwarded(by_gateway, push(), 11, 8080, NAT_1),
        forwarded(by_gateway, push(), 11, 8080, NAT_1),
    ];
    case(claim, start(aws_nat(), keys), steps)
}

/// A step in which Weir answers a frame with a reset.
fn answered(frame: Frame, reset: Frame) -> Step {
    let mut step = arrives(INGRESS, frame);
    step.leaves.push((super::Exit::Port(INGRESS), reset.into()));
    step.counted.push(super::Counted::Verdict("reply"));
    step
}

/// A case of a TCP flow: after the change, its next segment is answered with a reset, and a new
/// SYN goes to backend 12.
fn reset(
    claim: &'static str,
    setup: Setup,
    client: &'static str,
    frame: fn(Ip) -> Frame,
    state: Option<&str>,
) -> Case {
    let keys = "failed_tcp = \"reset\"";
    let to = if client.starts_with('[') { FRONTEND6 } else { FRONTEND };
    let rst = tcp(to, client, flags::RST).numbers(9_001, 0);
    let back = match setup.gateways.is_empty() {
        true => to_router(rst),
        false => by_gateway(rst).sent_back(),
    };
    let push = web(client, flags::PSH | flags::ACK).payload(b"more");
    let steps = vec![
        forwarded(frame, web(client, flags::SYN), 11, 8080, NAT_1),
        services(with_first(keys, state)),
        answered(frame(push), back),
        forwarded(frame, web(client, flags::SYN), 12, 8080, NAT_2),
    ];
    case(claim, start(setup, keys), steps)
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let failed = Some("quarantined");
    let all = "failed_udp = \"move\"\nfailed_tcp = \"reset\"";
    vec![
        udp_case("By default a UDP flow of a failed backend moves to another one.", "", failed, 12),
        udp_case(
            "By default a UDP flow of a backend that no source names any more moves to another \
             backend.",
            "",
            None,
            12,
        ),
        udp_case(
            "With failed_udp = keep a UDP flow of a failed backend stays.",
            "failed_udp = \"keep\"",
            failed,
            11,
        ),
        udp_case(
            "With failed_udp = keep a UDP flow of a removed backend stays.",
            "failed_udp = \"keep\"",
            None,
            11,
        ),
        udp_case("A UDP flow of a draining backend stays.", all, Some("terminating"), 11),
        udp_case("A UDP flow of a backend in maintenance stays.", all, Some("maintenance"), 11),
        tcp_stays("By default a TCP connection to a failed backend stays.", "", failed),
        tcp_stays("By default a TCP connection to a removed backend stays.", "", None),
        tcp_stays("A TCP connection to a draining backend stays.", all, Some("terminating")),
        tcp_stays("A TCP connection to a backend in maintenance stays.", all, Some("maintenance")),
        reset(
            "With failed_tcp = reset a client of a failed backend receives a reset.",
            aws_nat(),
            CLIENT,
            by_gateway,
            failed,
        ),
        reset(
            "With failed_tcp = reset a client of a removed backend receives a reset.",
            aws_nat(),
            CLIENT,
            by_gateway,
            None,
        ),
        reset(
            "With failed_tcp = reset an IPv6 client receives a reset.",
            aws_nat(),
            CLIENT6,
            by_gateway,
            failed,
        ),
        reset(
            "With failed_tcp = reset a plain client receives a reset.",
            plain_nat(),
            CLIENT,
            from_router,
            failed,
        ),
        reset(
            "With failed_tcp = reset a plain IPv6 client receives a reset.",
            plain_nat(),
            CLIENT6,
            from_router,
            failed,
        ),
    ]
}
