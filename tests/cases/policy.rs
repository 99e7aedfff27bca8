//! Policies of a service: source ranges, session affinity (also while traffic policies change), and
//! random selection.

use super::addresses::*;
use super::setups::{Setup, WEB, WEB_BACKEND, aws_nat, aws_tunnel, plain_dsr, plain_nat, service};
use super::{Act, Case, Counted, Step, arrives, case, services, wait};
use crate::frames::{Frame, Ip, flags, tcp};
use tables::reason::DropReason;

/// Builds "web" and "web6" with NAT and further keys.
pub(super) fn web(keys: &str) -> String {
    let keys = format!("mode = \"nat\"\n{keys}");
    let six = WEB.replace("203.0.113.10", "2001:db8:f::10");
    service("web", &keys, WEB, WEB_BACKEND)
        + &service("web6", &keys, &six, r#"{address = "fd00:2::11", port = 8080}"#)
}

/// Returns `setup` with another name and the services of [`web`].
pub(super) fn with(setup: Setup, name: &'static str, keys: &str) -> Setup {
    Setup { services: web(keys), ..setup.named(name) }
}

/// Builds a client's SYN to the frontend of its family.
pub(super) fn from(client: &str) -> Ip {
    let to = if client.starts_with('[') { FRONTEND6 } else { FRONTEND };
    tcp(client, to, flags::SYN)
}

/// A step in which a client's SYN reaches the backend.
pub(super) fn passes(frame: fn(Ip) -> Frame, client: &str, nat: u16) -> Step {
    let (nat_address, backend) = match client.starts_with('[') {
        true => (OUR_NAT6, BACKEND6),
        false => (OUR_NAT, BACKEND),
    };
    let out = from(client).from(nat_address).from_port(nat).to(backend).hop();
    arrives(INGRESS, frame(from(client))).leaves(EGRESS, to_backend(11, out), "nat")
}

/// A step in which a client's SYN is dropped because of the service's source ranges.
fn denied(frame: fn(Ip) -> Frame, client: &str) -> Step {
    arrives(INGRESS, frame(from(client))).dropped(DropReason::SourceDenied)
}

/// Returns the packet as it arrives through the gateway.
pub(super) fn by_gateway(ip: Ip) -> Frame {
    from_gateway(1, ip)
}

fn source_ranges() -> Vec<Case> {
    let allow = |keys| with(aws_nat(), "source ranges", keys);
    let later = || request();
    let out = |ip: Ip| to_backend(11, ip.from(OUR_NAT).from_port(NAT_1).to(BACKEND).hop());
    vec![
        case(
            "New flows from outside a service's source ranges are dropped for a separate reason.",
            allow(r#"source_ranges = ["198.51.100.0/28", "2001:db8:c::/64"]"#),
            vec![
                passes(by_gateway, "198.51.100.15:4000", NAT_1),
                denied(by_gateway, "198.51.100.16:4000"),
                denied(by_gateway, "198.51.99.255:4000"),
                passes(by_gateway, "[2001:db8:c::ffff]:4000", NAT_2),
                denied(by_gateway, "[2001:db8:c:1::]:4000"),
            ],
        ),
        case(
            "With source_policy = deny flows from the source ranges are dropped and others served.",
            with(
                plain_nat(),
                "denied source ranges",
                "source_policy = \"deny\"\nsource_ranges = [\"198.51.100.0/28\"]",
            ),
            vec![
                denied(from_router, "198.51.100.0:4000"),
                denied(from_router, "198.51.100.15:4000"),
                passes(from_router, "198.51.100.16:4000", NAT_1),
                passes(from_router, "[2001:db8:c::7]:4000", NAT_2),
            ],
        ),
        case(
            "Source ranges that overlap, adjoin or end with the last address form one set.",
            allow(
                r#"source_ranges = ["198.51.100.8/29", "198.51.100.0/28", "198.51.100.16/28",
                    "240.0.0.0/4", "8000::/1", "198.51.100.9"]"#,
            ),
            vec![
                passes(by_gateway, "198.51.100.31:4000", NAT_1),
                denied(by_gateway, "198.51.100.32:4000"),
                passes(by_gateway, "255.255.255.254:4001", NAT_2),
                denied(by_gateway, "[2001:db8:c::7]:4000"),
            ],
        ),
        case(
            "A source range of all addresses of one family admits no client of the other family.",
            allow(r#"source_ranges = ["::/0"]"#),
            vec![
                denied(by_gateway, CLIENT),
                passes(by_gateway, CLIENT6, NAT_1),
                services(web(r#"source_ranges = ["0.0.0.0/0"]"#)),
                passes(by_gateway, CLIENT, NAT_2),
                denied(by_gateway, "[2001:db8:c::8]:4000"),
            ],
        ),
        case(
            "When a client is denied, its existing flow stays and its new flows are dropped.",
            with(aws_nat(), "no source ranges", ""),
            vec![
                arrives(INGRESS, by_gateway(syn())).leaves(EGRESS, out(syn()), "nat"),
                services(web(r#"source_ranges = ["192.0.2.0/24"]"#)),
                arrives(INGRESS, by_gateway(later())).leaves(EGRESS, out(later()), "nat"),
                denied(by_gateway, "198.51.100.7:40001"),
                services(web("")),
                passes(by_gateway, "198.51.100.7:40001", NAT_2),
            ],
        ),
    ]
}

/// Backend 11. Its weight, compared with that of [`OTHER`], makes it almost certain that selection
/// without affinity yields [`OTHER`].
const ONE: &str = r#"{address = "10.0.2.11", weight = 1}"#;
/// Backend 12.
const OTHER: &str = r#"{address = "10.0.2.12", weight = 65535}"#;

/// Builds "web" with IPIP, whose outer destination shows the selected backend.
fn web_by_ipip(mode: &str, keys: &str, backends: &[&str]) -> String {
    let keys = format!("mode = \"{mode}\"\ntunnel = \"ipip\"\n{keys}");
    service("web", &keys, WEB, &backends.join(", "))
}

fn web_with_affinity(backends: &[&str]) -> String {
    web_by_ipip("dsr", "affinity_s = 60", backends)
}

/// Returns a setup with an affinity of one minute; at first with backend 11 alone.
fn affine() -> Setup {
    let setup = plain_dsr("ipip", "10.0.2.11").named("affinity");
    // The backend of a new client depends on the seed.
    Setup { services: web_with_affinity(&[ONE]), seed: Some(0x5745_4952), ..setup }
}

/// A step in which a client's new flow reaches a backend.
fn new_flow(client: &str, backend: u8) -> Step {
    let address = format!("10.0.2.{backend}");
    let out = to_backend(backend, from(client).hop().in_ip("10.0.2.10", &address));
    arrives(INGRESS, from_router(from(client))).leaves(EGRESS, out, "tunnel")
}

fn affinity() -> Vec<Case> {
    let both = || services(web_with_affinity(&[ONE, OTHER]));
    let terminating = ONE.replace('}', ", state = \"terminating\"}");
    let leaving = || services(web_with_affinity(&[&terminating, OTHER]));
    vec![
        case(
            "With affinity a client's new flows go to the backend of its first one, and other \
             clients are distributed by weight.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                both(),
                new_flow("198.51.100.7:4001", 11),
                new_flow("198.51.100.8:4000", 12),
                services(web_by_ipip("dsr", "", &[ONE, OTHER])),
                new_flow("198.51.100.7:4002", 12),
            ],
        ),
        case(
            "A client stays with its backend for affinity_s seconds after its latest new flow.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                both(),
                wait(40),
                new_flow("198.51.100.7:4001", 11),
                wait(40),
                new_flow("198.51.100.7:4002", 11),
                wait(63),
                new_flow("198.51.100.7:4003", 12),
            ],
        ),
        case(
            "A client leaves a backend that accepts no new flows, and stays with the next one.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                leaving(),
                new_flow("198.51.100.7:4001", 12),
                services(web_with_affinity(&[
                    &ONE.replace("weight = 1", "weight = 65535"),
                    &OTHER.replace("65535", "1"),
                ])),
                new_flow("198.51.100.7:4002", 12),
                new_flow("198.51.100.8:4000", 11),
            ],
        ),
        case(
            "A client leaves a backend that was removed.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                services(web_with_affinity(&[OTHER])),
                new_flow("198.51.100.7:4001", 12),
                both(),
                new_flow("198.51.100.7:4002", 12),
            ],
        ),
    ]
}

/// Cases in which the traffic policy changes during affinity.
fn affinity_through_policies() -> Vec<Case> {
    let both = || services(web_with_affinity(&[ONE, OTHER]));
    let under = |policy: &str| {
        services(web_by_ipip("dsr", &format!("affinity_s = 60\n{policy}"), &[ONE, OTHER]))
    };
    // A backend on a node that the appliance's key `local` does not name.
    let far = OTHER.replace('}', ", node = \"far\"}");
    vec![
        case(
            "A client stays with its backend through changes of the external traffic policy.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                both(),
                under("external_policy = \"local\""),
                new_flow("198.51.100.7:4001", 11),
                new_flow("198.51.100.8:4000", 12),
                both(),
                new_flow("198.51.100.7:4002", 11),
                under("external_policy = \"local\"\ninternal_policy = \"local\""),
                new_flow("198.51.100.7:4003", 11),
                new_flow("198.51.100.9:4000", 12),
            ],
        ),
        case(
            "A client stays with its backend through changes of the internal traffic policy.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                both(),
                under("internal_policy = \"local\""),
                new_flow("198.51.100.7:4001", 11),
                both(),
                new_flow("198.51.100.7:4002", 11),
                new_flow("198.51.100.8:4000", 12),
            ],
        ),
        case(
            "A client leaves a backend that the traffic policy excludes, and other clients stay.",
            affine(),
            vec![
                new_flow("198.51.100.7:4000", 11),
                services(web_with_affinity(&[ONE, &far])),
                new_flow("198.51.100.7:4001", 11),
                new_flow("198.51.100.8:4000", 12),
                services(web_by_ipip(
                    "dsr",
                    "affinity_s = 60\nexternal_policy = \"local\"",
                    &[ONE, &far],
                )),
                new_flow("198.51.100.7:4002", 11),
                new_flow("198.51.100.8:4001", 11),
            ],
        ),
    ]
}

/// A case with the same client address behind two endpoints.
fn affine_by_endpoint() -> Case {
    let stay = |backends: &[&str]| web_by_ipip("tunnel", "affinity_s = 60", backends);
    let new_flow = |endpoint, client, backend: u8| {
        let address = format!("10.0.2.{backend}");
        let out = to_backend(backend, from(client).hop().in_ip("10.0.2.10", &address));
        arrives(INGRESS, from_node(NODE, endpoint, 1, from(client))).leaves(EGRESS, out, "tunnel")
    };
    let setup = aws_tunnel("ipip").named("affinity, clients of two endpoints");
    case(
        "The same address behind another endpoint is another client for affinity.",
        Setup { services: stay(&[ONE]), seed: Some(0x5745_4952), ..setup },
        vec![
            new_flow(ENDPOINT, "198.51.100.7:4000", 11),
            services(stay(&[ONE, OTHER])),
            new_flow(OTHER_ENDPOINT, "198.51.100.7:4001", 12),
            new_flow(ENDPOINT, "198.51.100.7:4002", 11),
            new_flow(OTHER_ENDPOINT, "198.51.100.7:4003", 12),
        ],
    )
}

/// A case with more clients than affinity entries, each with one flow.
fn many_clients() -> Case {
    let make = |n: u16| from_router(from(&format!("198.51.{}.{}:4000", 100 + n / 250, n % 250)));
    let mut flood = Step::new(Act::Flood { arm: INGRESS, make, count: 300 });
    flood.counted.push(Counted::Verdict("tunnel"));
    let setup = affine().named("affinity table of eight clients");
    case(
        "With a full affinity table new clients are still served.",
        Setup { max_affinities: 8, services: web_with_affinity(&[ONE, OTHER]), ..setup },
        vec![flood],
    )
}

fn random() -> Vec<Case> {
    let random = |backends: &[&str]| web_by_ipip("dsr", "algorithm = \"random\"", backends);
    vec![case(
        "With algorithm = random new flows are distributed by weight alone, and a flow stays with \
         its backend.",
        Setup { services: random(&[ONE, OTHER]), ..affine().named("backends by weight alone") },
        vec![
            new_flow("198.51.100.7:4000", 12),
            new_flow("198.51.100.7:4001", 12),
            new_flow("198.51.100.8:4000", 12),
            services(random(&[
                &ONE.replace("weight = 1", "weight = 65535"),
                &OTHER.replace("65535", "1"),
            ])),
            new_flow("198.51.100.7:4000", 12),
            new_flow("198.51.100.7:4002", 11),
            new_flow("198.51.100.9:4000", 11),
        ],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let others = vec![affine_by_endpoint(), many_clients()];
    [source_ranges(), affinity(), affinity_through_policies(), others, random()]
        .into_iter()
        .flatten()
        .collect()
}
