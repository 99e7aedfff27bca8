//! What a service's policy promises to clients: who may use it.

use super::setups::{Setup, WEB, WEB_BACKEND, aws_nat, plain_nat, service};
use super::world::*;
use super::{Case, Step, arrives, case, services};
use crate::frames::{Frame, Ip, flags, tcp};
use tables::reason::DropReason;

/// "web" by NAT with further keys, over IPv4 and IPv6.
fn web(keys: &str) -> String {
    let keys = format!("mode = \"nat\"\n{keys}");
    let six = WEB.replace("203.0.113.10", "2001:db8:f::10");
    service("web", &keys, WEB, WEB_BACKEND)
        + &service("web6", &keys, &six, r#"{address = "fd00:2::11", port = 8080}"#)
}

fn with(setup: Setup, name: &'static str, keys: &str) -> Setup {
    Setup { services: web(keys), ..setup.named(name) }
}

fn from(client: &str) -> Ip {
    let to = if client.starts_with('[') { FRONTEND6 } else { FRONTEND };
    tcp(client, to, flags::SYN)
}

/// It reaches the backend.
fn passes(frame: fn(Ip) -> Frame, client: &str, nat: u16) -> Step {
    let (ours, backend) = match client.starts_with('[') {
        true => (OUR_NAT6, BACKEND6),
        false => (OUR_NAT, BACKEND),
    };
    let out = from(client).from(ours).from_port(nat).to(backend).hop();
    arrives(INGRESS, frame(from(client))).leaves(EGRESS, to_backend(11, out), "nat")
}

fn refused(frame: fn(Ip) -> Frame, client: &str) -> Step {
    arrives(INGRESS, frame(from(client))).dropped(DropReason::SourceRefused)
}

fn by_gateway(ip: Ip) -> Frame {
    from_gateway(1, ip)
}

fn source_ranges() -> Vec<Case> {
    let allow = |keys| with(aws_nat(), "clients of some networks", keys);
    let known = || request();
    let out = |ip: Ip| to_backend(11, ip.from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop());
    vec![
        case(
            "Clients outside a service's source ranges are refused under their own reason.",
            allow(r#"source_ranges = ["198.51.100.0/28", "2001:db8:c::/64"]"#),
            vec![
                passes(by_gateway, "198.51.100.15:4000", NAT_1),
                refused(by_gateway, "198.51.100.16:4000"),
                refused(by_gateway, "198.51.99.255:4000"),
                passes(by_gateway, "[2001:db8:c::ffff]:4000", NAT_2),
                refused(by_gateway, "[2001:db8:c:1::]:4000"),
            ],
        ),
        case(
            "With source_policy = deny, clients in the source ranges are refused and others served.",
            with(
                plain_nat(),
                "clients of some networks are refused",
                "source_policy = \"deny\"\nsource_ranges = [\"198.51.100.0/28\"]",
            ),
            vec![
                refused(from_router, "198.51.100.0:4000"),
                refused(from_router, "198.51.100.15:4000"),
                passes(from_router, "198.51.100.16:4000", NAT_1),
                passes(from_router, "[2001:db8:c::7]:4000", NAT_2),
            ],
        ),
        case(
            "Source ranges that overlap, touch and end with the last address are one set.",
            allow(
                r#"source_ranges = ["198.51.100.8/29", "198.51.100.0/28", "198.51.100.16/28",
                    "240.0.0.0/4", "8000::/1", "198.51.100.9"]"#,
            ),
            vec![
                passes(by_gateway, "198.51.100.31:4000", NAT_1),
                refused(by_gateway, "198.51.100.32:4000"),
                passes(by_gateway, "255.255.255.254:4001", NAT_2),
                refused(by_gateway, "[2001:db8:c::7]:4000"),
            ],
        ),
        case(
            "The whole of IPv6 as a source range admits no client of IPv4.",
            allow(r#"source_ranges = ["::/0"]"#),
            vec![
                refused(by_gateway, CLIENT),
                passes(by_gateway, CLIENT6, NAT_1),
                services(web(r#"source_ranges = ["0.0.0.0/0"]"#)),
                passes(by_gateway, CLIENT, NAT_2),
                refused(by_gateway, "[2001:db8:c::8]:4000"),
            ],
        ),
        case(
            "A flow that is known goes on when its client is refused, and a new one doesn't.",
            with(aws_nat(), "everybody", ""),
            vec![
                arrives(INGRESS, by_gateway(syn())).leaves(EGRESS, out(syn()), "nat"),
                services(web(r#"source_ranges = ["192.0.2.0/24"]"#)),
                arrives(INGRESS, by_gateway(known())).leaves(EGRESS, out(known()), "nat"),
                refused(by_gateway, "198.51.100.7:40001"),
                services(web("")),
                passes(by_gateway, "198.51.100.7:40001", NAT_2),
            ],
        ),
    ]
}

/// All of them.
pub fn cases() -> Vec<Case> {
    source_ranges()
}
