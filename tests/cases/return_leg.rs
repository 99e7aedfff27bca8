//! Answers of GENEVE backends whose flow is in no table: an answer goes to the gateway that its own
//! options name, if these are the options that Weir sent for the flow.

use super::addresses::*;
use super::setups::{Setup, WEB, aws_chain, service, web_by_tunnel};
use super::{Act, Case, Counted, Step, arrives, case, services, wait};
use crate::frames::{Frame, Ip, aws_options, error, flags, option, tcp, udp};
use tables::reason::DropReason;

/// Seconds after which all flows of the cases have expired, but no scope has.
const IDLE_S: u32 = 120;

/// The gateway's side of a flow: its outer headers, and what Weir derives from them.
#[derive(Clone, Copy)]
struct Side {
    endpoint: u64,
    node: &'static str,
    cookie: u32,
    tag: u16,
    /// The outer source port of Weir's tunnel packets to the backend.
    port: u16,
}

/// A flow from one endpoint.
const ONE: Side = Side { endpoint: ENDPOINT, node: NODE, cookie: 1, tag: TAG_1, port: HASH_1 };
/// The flow with the same 5-tuple from another endpoint, by another node.
const TWO: Side =
    Side { endpoint: OTHER_ENDPOINT, node: OTHER_NODE, cookie: 2, tag: TAG_2, port: HASH_2 };

impl Side {
    /// Returns the options that Weir sends to the backend.
    fn options(&self) -> Vec<u8> {
        origin_options(self.endpoint, self.node, self.cookie, self.tag)
    }

    /// A step in which the gateway's packet reaches the backend.
    fn forward(&self, ip: Ip) -> Step {
        let outer = ip.clone().hop().in_geneve(OUR_OUT, "10.0.2.11:6081", self.options());
        let out = to_backend(11, outer.from_port(self.port));
        arrives(INGRESS, from_node(self.node, self.endpoint, self.cookie, ip))
            .leaves(EGRESS, out, "tunnel")
    }

    /// Returns the frame in which the backend sends `ip` with the options of this flow.
    fn sent(&self, ip: Ip) -> Frame {
        answer(ip, self.options())
    }

    /// A step in which the packet of [`Side::sent`] reaches the gateway.
    fn back(&self, ip: Ip) -> Step {
        let out = to_node(self.node, self.endpoint, self.cookie, ip.clone().hop());
        arrives(EGRESS, self.sent(ip)).leaves(INGRESS, out, "answer")
    }

    /// A step in which the packet of [`Side::sent`] is dropped, because it has no flow.
    fn dropped(&self, ip: Ip) -> Step {
        arrives(EGRESS, self.sent(ip)).dropped(DropReason::NoFlow)
    }
}

/// Returns the frame in which the backend sends `ip` in GENEVE with these options.
fn answer(ip: Ip, options: Vec<u8>) -> Frame {
    from_backend(11, ip.in_geneve("10.0.2.11:50000", "10.0.2.10:6081", options))
}

/// Returns the packet that an inspection appliance sends back: the received one.
fn inspected(ip: Ip) -> Ip {
    ip.hop()
}

/// Creates a setup with a fixed seed, so that no forged tag is valid by chance.
fn chain() -> Setup {
    Setup { seed: Some(0x5745_4952), ..aws_chain().named("tunnel geneve chain, fixed seed") }
}

fn with_services(name: &'static str, services: String) -> Setup {
    Setup { services, ..chain().named(name) }
}

/// Builds "web" with a GENEVE backend and further keys of the service.
fn web(keys: &str, backend: &str) -> String {
    let keys = format!("mode = \"tunnel\"\ntunnel = \"geneve\"\n{keys}");
    service("web", &keys, WEB, &format!("{{address = \"{backend}\"}}"))
}

/// Builds the first packet of the client's flow number n.
fn flow(n: u16) -> Frame {
    from_gateway(7, syn().from_port(1024 + n))
}

/// A step in which `count` new flows are forwarded to the backend.
fn flood(count: u16) -> Step {
    let mut step = Step::new(Act::Flood { arm: INGRESS, make: flow, count });
    step.counted.push(Counted::Verdict("tunnel"));
    step
}

fn returned() -> Vec<Case> {
    let port_unreachable = error("10.0.2.11", "198.51.100.7", (3, 3), 0, syn().hop());
    vec![
        case(
            "After a flow has ended, packets that an appliance returns and its own answers go to \
             the gateway and create no flow.",
            chain(),
            vec![
                ONE.forward(syn()),
                wait(IDLE_S),
                ONE.back(inspected(syn())),
                ONE.back(syn_ack()),
                arrives(EGRESS, from_backend(11, syn_ack())).dropped(DropReason::NoMatchingService),
            ],
        ),
        case(
            "Answers of a flow that a flood evicted go to the gateway.",
            Setup { max_flows: 64, ..chain().named("tunnel geneve, 64 flows") },
            vec![ONE.forward(syn()), flood(300), ONE.back(syn_ack()), ONE.back(inspected(syn()))],
        ),
        case(
            "After the flows have ended, answers of equal 5-tuples of two endpoints each go to \
             their endpoint, by its node, port and cookie.",
            chain(),
            vec![
                ONE.forward(syn()),
                TWO.forward(syn()),
                wait(IDLE_S),
                TWO.back(syn_ack()),
                ONE.back(syn_ack()),
                ONE.back(inspected(syn())),
                TWO.back(inspected(syn())),
            ],
        ),
        case(
            "An answer of a known flow leaves with the flow's latest options, whatever options \
             the backend sent.",
            chain(),
            vec![
                ONE.forward(syn()),
                wait(IDLE_S),
                ONE.back(syn_ack()),
                Side { cookie: 9, tag: ANY_TAG, ..ONE }.forward(syn()),
                arrives(EGRESS, ONE.sent(syn_ack())).leaves(
                    INGRESS,
                    to_gateway(9, syn_ack().hop()),
                    "answer",
                ),
            ],
        ),
        case(
            "A backend's error about a request of an ended flow goes to the gateway.",
            chain(),
            vec![ONE.forward(syn()), wait(IDLE_S), ONE.back(port_unreachable)],
        ),
        case(
            "With a frontend of all addresses, returned packets of both directions of an ended \
             flow go to the gateway.",
            with_services(
                "tunnel geneve, all addresses",
                service(
                    "all",
                    "mode = \"tunnel\"\ntunnel = \"geneve\"",
                    r#"{address = "0.0.0.0/0"}"#,
                    r#"{address = "10.0.2.11"}"#,
                ),
            ),
            vec![
                ONE.forward(syn()),
                Side { cookie: 5, tag: TAG_2, ..ONE }.forward(syn_ack()),
                wait(IDLE_S),
                ONE.back(inspected(syn())),
                Side { cookie: 5, tag: TAG_2, ..ONE }.back(inspected(syn_ack())),
            ],
        ),
        case(
            "If both addresses of an ended flow are frontends, its answers go to the gateway if \
             either service selects the sending backend.",
            with_services(
                "tunnel geneve, both ends",
                web("", "10.0.2.11")
                    + &service(
                        "other",
                        "mode = \"tunnel\"\ntunnel = \"geneve\"",
                        r#"{address = "198.51.100.7"}"#,
                        r#"{address = "10.0.2.12"}"#,
                    ),
            ),
            vec![ONE.forward(syn()), wait(IDLE_S), ONE.back(inspected(syn())), ONE.back(syn_ack())],
        ),
    ]
}

fn forged() -> Vec<Case> {
    let options = |endpoint, attachment, cookie| aws_options(endpoint, attachment, cookie);
    let attachment = |node| origin_attachment(node, TAG_1);
    let dropped =
        |options: Vec<u8>| arrives(EGRESS, answer(syn_ack(), options)).dropped(DropReason::NoFlow);
    let begun = || vec![ONE.forward(syn()), TWO.forward(syn()), wait(IDLE_S)];
    let forged = |steps: Vec<Step>| [begun(), steps, vec![ONE.back(syn_ack())]].concat();
    let long = [ONE.options(), option(0x0103, 2, &[0; 4])].concat();
    let rotated = {
        let mut options = ONE.options();
        options.rotate_left(12);
        options
    };
    let other_backend =
        from_backend(12, syn_ack().in_geneve("10.0.2.12:50000", "10.0.2.10:6081", ONE.options()));
    vec![
        case(
            "An answer with another endpoint than its flow's is dropped, even if the other \
             endpoint has a flow with the same 5-tuple.",
            chain(),
            forged(vec![
                dropped(options(OTHER_ENDPOINT, attachment(NODE), 1)),
                dropped(options(OTHER_ENDPOINT, attachment(OTHER_NODE), 2)),
                dropped(options(0x1234, attachment(NODE), 1)),
                dropped(options(0, attachment(NODE), 1)),
            ]),
        ),
        case(
            "An answer with another node, a node of no gateway, or another port is dropped.",
            chain(),
            forged(vec![
                dropped(options(ENDPOINT, attachment(OTHER_NODE), 1)),
                dropped(options(ENDPOINT, attachment("10.0.2.99:60001"), 1)),
                dropped(options(ENDPOINT, attachment("10.0.1.100:53"), 1)),
            ]),
        ),
        case(
            "An answer with another gateway, another cookie, or no origin is dropped.",
            chain(),
            forged(vec![
                dropped(options(ENDPOINT, attachment(NODE) | 1, 1)),
                dropped(options(ENDPOINT, attachment(NODE), 2)),
                dropped(own_options(ENDPOINT)),
                dropped(options(ENDPOINT, u64::MAX, 1)),
            ]),
        ),
        case(
            "An answer with the options of another flow, with additional options or with another \
             order of options is dropped.",
            chain(),
            forged(vec![
                ONE.dropped(syn_ack().to_port(40_001)),
                ONE.dropped(response().from_port(81)),
                ONE.dropped(tcp("203.0.113.11:80", CLIENT, flags::ACK)),
                ONE.dropped(udp(FRONTEND, CLIENT)),
                dropped(long),
                dropped(rotated),
            ]),
        ),
        case(
            "An answer of another backend and a plain answer are dropped.",
            chain(),
            forged(vec![
                arrives(EGRESS, other_backend).dropped(DropReason::NoFlow),
                arrives(EGRESS, from_backend(11, syn_ack())).dropped(DropReason::NoMatchingService),
            ]),
        ),
        case(
            "An error about another flow's packet, or to another address than the quoted packet's \
             source, is dropped.",
            chain(),
            forged(vec![
                arrives(
                    EGRESS,
                    ONE.sent(error("10.0.2.11", "198.51.100.9", (3, 3), 0, syn().hop())),
                )
                .dropped(DropReason::IcmpUnknownFlow),
                arrives(
                    EGRESS,
                    ONE.sent(error(
                        "10.0.2.11",
                        "198.51.100.7",
                        (3, 3),
                        0,
                        syn().from_port(40_001),
                    )),
                )
                .dropped(DropReason::IcmpUnknownFlow),
            ]),
        ),
    ]
}

fn undetermined() -> Vec<Case> {
    let ended = |setup: Setup| case_of(setup, vec![ONE.forward(syn()), wait(IDLE_S)]);
    let dropped = || ONE.dropped(syn_ack());
    let attached = |attachment: u64| {
        let received = syn().in_geneve(NODE, OUR_GENEVE, aws_options(ENDPOINT, attachment, 1));
        let outer = syn().hop().in_geneve(OUR_OUT, "10.0.2.11:6081", ONE.options());
        arrives(INGRESS, Frame::new(ROUTER, IN_MAC, received)).leaves(
            EGRESS,
            to_backend(11, outer.from_port(HASH_1)),
            "tunnel",
        )
    };
    vec![
        ended(chain()).claims(
            "An answer of an ended flow is dropped if selection now yields another backend, or if \
             no service matches.",
            vec![
                services(web("", "10.0.2.12")),
                dropped(),
                services(web("", "10.0.2.11")),
                ONE.back(syn_ack()),
                services(web_by_tunnel("tunnel", "gue", "10.0.2.11")),
                dropped(),
                services(web("source_ranges = [\"192.0.2.0/24\"]", "10.0.2.11")),
                dropped(),
                services(String::new()),
                dropped(),
            ],
        ),
        ended(with_services("tunnel geneve, affinity", web("affinity_s = 5", "10.0.2.11"))).claims(
            "With affinity an answer of an ended flow is dropped, because selection alone does \
                 not determine its backend.",
            vec![dropped()],
        ),
        ended(chain()).claims(
            "All fragments of an answer of an ended flow are dropped, the first one included.",
            vec![
                ONE.dropped(syn_ack().sized(200).part(0, 40, true)),
                ONE.dropped(syn_ack().sized(200).part(40, 40, false)),
            ],
        ),
        case(
            "If an endpoint's packets arrived by one node with two attachments, an answer of an \
             ended flow is dropped, because its attachment is ambiguous.",
            chain(),
            vec![attached(7), wait(IDLE_S), attached(8), wait(IDLE_S), dropped()],
        ),
    ]
}

/// A case whose claim and last steps are added by [`Case::claims`].
fn case_of(setup: Setup, steps: Vec<Step>) -> Case {
    case("", setup, steps)
}

impl Case {
    /// Sets the claim and appends steps.
    fn claims(mut self, claim: &'static str, steps: Vec<Step>) -> Case {
        self.claim = claim;
        self.steps.extend(steps);
        self
    }
}

/// Cases in which the gateway sent an attachment, and the router's MAC changes.
fn leg() -> Vec<Case> {
    let frame = |attachment: u64, mac, ip: Ip| {
        Frame::new(
            mac,
            IN_MAC,
            ip.in_geneve(NODE, OUR_GENEVE, aws_options(ENDPOINT, attachment, 1)),
        )
    };
    let forward = |mac| {
        let outer = syn().hop().in_geneve(OUR_OUT, "10.0.2.11:6081", ONE.options());
        arrives(INGRESS, frame(7, mac, syn())).leaves(
            EGRESS,
            to_backend(11, outer.from_port(HASH_1)),
            "tunnel",
        )
    };
    let back = |mac| {
        let out = frame(7, mac, syn_ack().hop()).sent_back();
        let out = out.with(|ip| ip.may_fragment().id(u32::from(ANY_ID)));
        arrives(EGRESS, ONE.sent(syn_ack())).leaves(INGRESS, out, "answer")
    };
    vec![case(
        "An answer of no known flow carries the endpoint's attachment and goes to the router that \
         last delivered its packets.",
        chain(),
        vec![
            forward(ROUTER),
            wait(IDLE_S),
            back(ROUTER),
            forward(FOREIGN_MAC),
            wait(IDLE_S),
            back(FOREIGN_MAC),
        ],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [returned(), forged(), undetermined(), leg()].into_iter().flatten().collect()
}
