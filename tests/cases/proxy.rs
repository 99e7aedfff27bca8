//! Flows that are redirected through the exception path to a proxy on the appliance, and the
//! proxy's answers.

use super::addresses::*;
use super::policy::{by_gateway, from, passes, web, with};
use super::setups::{Setup, aws_nat, plain_nat, service};
use super::{Case, Step, arrives, case, kernel_sends, services};
use crate::frames::{Frame, Ip, error, flags, tcp};
use tables::reason::DropReason;

/// The proxy's address and port.
const PROXY: &str = "10.0.1.10:9000";

/// Returns `setup` with services that redirect to a proxy on the appliance: "web", "web6", and
/// "some" with one of its two ports.
fn proxied(setup: Setup) -> Setup {
    let setup = with(setup, "flows to a proxy", "proxy_redirect = { port = 9000 }");
    // A service that redirects only one of its ports to the proxy.
    let some = "mode = \"nat\"\nproxy_redirect = { port = 9000, ports = [81] }";
    let at = |port| format!("{{address = \"203.0.113.40\", port = {port}, protocol = \"tcp\"}}");
    let backend = r#"{address = "10.0.2.11"}"#;
    let some = service("some", some, &format!("{}, {}", at(80), at(81)), backend);
    Setup { services: setup.services + &some, ..setup }
}

/// Returns the frame in which a packet from a gateway reaches the proxy.
fn decapsulated(ip: Ip) -> Frame {
    Frame::new(IN_MAC, IN_MAC, ip.to(PROXY))
}

/// Returns the frame in which a plain packet reaches the proxy.
fn plain_redirected(ip: Ip) -> Frame {
    from_router(ip.to(PROXY))
}

/// Returns the frame in which the kernel sends a packet of the proxy.
fn from_proxy(ip: Ip) -> Frame {
    Frame::new(IN_MAC, ROUTER, ip.from(PROXY))
}

/// A step in which the client's SYN reaches the proxy.
fn opens() -> Step {
    arrives(INGRESS, by_gateway(syn())).redirected(INGRESS, decapsulated(syn()))
}

/// A step in which the proxy's SYN-ACK reaches the gateway.
fn accepts() -> Step {
    let back = to_gateway(1, syn_ack().hop());
    kernel_sends(INGRESS, from_proxy(syn_ack())).leaves(INGRESS, back, "answer")
}

fn gateway_cases() -> Vec<Case> {
    let later = from_node(OTHER_NODE, ENDPOINT, 9, request());
    let back = to_node(OTHER_NODE, ENDPOINT, 9, response().hop());
    let refused = error("10.0.1.10", "198.51.100.7", (3, 3), 0, syn().to(PROXY));
    let translated = error("203.0.113.10", "198.51.100.7", (3, 3), 0, syn()).hop();
    vec![
        case(
            "A proxy receives a flow's packets with the client's address as source, and its \
             answers go to the gateway with the latest options.",
            proxied(aws_nat()),
            vec![
                opens(),
                accepts(),
                arrives(INGRESS, later).redirected(INGRESS, decapsulated(request())),
                kernel_sends(INGRESS, from_proxy(response())).leaves(INGRESS, back, "answer"),
            ],
        ),
        case(
            "An error of the appliance's kernel about a redirected packet reaches the client from \
             the frontend's address.",
            proxied(aws_nat()),
            vec![
                opens(),
                kernel_sends(INGRESS, Frame::new(IN_MAC, ROUTER, refused)).leaves(
                    INGRESS,
                    to_gateway(1, translated),
                    "answer",
                ),
            ],
        ),
        case(
            "Above the limit a new flow to the proxy is dropped and existing flows are forwarded.",
            Setup {
                new_flows: "nat_new_per_s = 1",
                ..proxied(aws_nat()).named("one new flow to a proxy a second")
            },
            vec![
                opens(),
                arrives(INGRESS, by_gateway(syn().from_port(4001)))
                    .dropped(DropReason::NewFlowLimited),
                accepts(),
                arrives(INGRESS, by_gateway(request()))
                    .redirected(INGRESS, decapsulated(request())),
            ],
        ),
        case(
            "Of two endpoints' flows with equal 5-tuples only the first reaches the proxy.",
            proxied(aws_nat()),
            vec![
                opens(),
                arrives(INGRESS, from_node(NODE, OTHER_ENDPOINT, 1, syn()))
                    .dropped(DropReason::FlowAmbiguous),
            ],
        ),
    ]
}

fn plain_cases() -> Vec<Case> {
    let six = || from("[2001:db8:c::7]:4000");
    let direct = || from_router(tcp(CLIENT, PROXY, flags::SYN));
    let redirected =
        || arrives(INGRESS, from_router(syn())).redirected(INGRESS, plain_redirected(syn()));
    let other = || from_proxy(tcp(CLIENT, "198.51.100.99:40000", flags::ACK));
    let back = to_router(syn_ack().hop());
    vec![
        case(
            "A plain client's flow goes to the proxy, and the proxy's answers go to the router \
             that delivered the flow.",
            proxied(plain_nat()),
            vec![
                redirected(),
                kernel_sends(INGRESS, from_proxy(syn_ack())).leaves(INGRESS, back, "answer"),
                arrives(INGRESS, from_router(six()))
                    .redirected(INGRESS, from_router(six().to("[fd00:1::10]:9000"))),
            ],
        ),
        case(
            "A packet for the proxy's own port goes to the kernel unchanged.",
            proxied(plain_nat()),
            vec![
                arrives(INGRESS, direct()).punted(),
                redirected(),
                arrives(INGRESS, direct()).punted(),
                kernel_sends(INGRESS, other()).leaves(INGRESS, other(), "forward"),
            ],
        ),
    ]
}

fn selection_cases() -> Vec<Case> {
    let to = |to: &str| tcp(CLIENT, to, flags::SYN);
    let served = to("10.0.2.11:80").from(OUR_NAT).from_port(NAT_1).hop();
    let established = || arrives(INGRESS, by_gateway(request()));
    vec![
        case(
            "A proxy receives flows of its configured ports, and backends serve the others.",
            proxied(aws_nat()),
            vec![
                arrives(INGRESS, by_gateway(to("203.0.113.40:81")))
                    .redirected(INGRESS, decapsulated(to("203.0.113.40:81"))),
                arrives(INGRESS, by_gateway(to("203.0.113.40:80"))).leaves(
                    EGRESS,
                    to_backend(11, served),
                    "nat",
                ),
            ],
        ),
        case(
            "A flow stays with the proxy after its service changes back to backends.",
            proxied(aws_nat()),
            vec![
                opens(),
                accepts(),
                services(web("")),
                established().redirected(INGRESS, decapsulated(request())),
                passes(by_gateway, "198.51.100.7:40001", NAT_1),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [gateway_cases(), plain_cases(), selection_cases()].into_iter().flatten().collect()
}
