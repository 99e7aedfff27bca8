//! Inspection chains: both directions of a flow arrive from the gateway, and each returns with
//! the outer headers of its own direction.

use super::addresses::*;
use super::setups::{Setup, aws_chain};
use super::{Case, Step, arrives, case, wait};
use crate::frames::{Frame, Ip, aws_options, error, option, udp};

/// The outer headers of one direction of a flow.
#[derive(Clone)]
struct GatewayPath {
    /// The gateway's node and UDP source port.
    node: &'static str,
    /// The options that the gateway sends.
    options: Vec<u8>,
    /// The options that Weir sends to the inspection appliance.
    own: Vec<u8>,
}

/// Creates the path of packets from the usual endpoint.
fn path(node: &'static str, attachment: u64, cookie: u32) -> GatewayPath {
    path_of(ENDPOINT, node, attachment, cookie)
}

/// Creates the path of packets from this endpoint.
fn path_of(endpoint: u64, node: &'static str, attachment: u64, cookie: u32) -> GatewayPath {
    let options = aws_options(endpoint, attachment, cookie);
    GatewayPath { node, options, own: origin_options(endpoint, node, cookie, ANY_TAG) }
}

/// Creates a path whose options do not fit in the flow's record and need an option slab.
fn long(node: &'static str, cookie: u32) -> GatewayPath {
    let mut path = path(node, 0, cookie);
    path.options.extend(option(0x0103, 2, &cookie.to_be_bytes().repeat(20)));
    path.own = own_options(ENDPOINT);
    path
}

impl GatewayPath {
    /// Returns the frame in which the gateway sends `inner`.
    fn outer(&self, inner: Ip) -> Frame {
        let outer = inner.in_geneve(self.node, OUR_GENEVE, self.options.clone());
        Frame::new(ROUTER, IN_MAC, outer)
    }

    /// Returns the frame as the inspection appliance receives it, with `port` as outer source port.
    fn appliance(&self, ip: Ip, port: u16) -> Frame {
        let outer = ip.in_geneve("10.0.2.10", "10.0.2.11:6081", self.own.clone());
        to_backend(11, outer.from_port(port))
    }

    /// A step in which the gateway's packet reaches the inspection appliance.
    fn forward(&self, ip: Ip) -> Step {
        self.forward_as(ip, HASH_1)
    }

    /// As [`GatewayPath::forward`], with `port` as outer source port to the inspection appliance.
    fn forward_as(&self, ip: Ip, port: u16) -> Step {
        let out = self.appliance(ip.clone().hop(), port);
        arrives(INGRESS, self.outer(ip)).leaves(EGRESS, out, "tunnel")
    }

    /// A step in which the inspection appliance sends the packet back, and the gateway gets it.
    fn back(&self, ip: Ip) -> Step {
        self.back_as(ip, HASH_1)
    }

    /// As [`GatewayPath::back`], with `port` as outer source port to the inspection appliance.
    fn back_as(&self, ip: Ip, port: u16) -> Step {
        let out = self.outer(ip.clone().hop().hop()).sent_back();
        let out = out.with(|ip| ip.may_fragment().id(u32::from(ANY_ID)));
        let received = self.appliance(ip.hop(), port).sent_back();
        arrives(EGRESS, received).leaves(INGRESS, out, "answer")
    }
}

/// The outer source port of a later fragment: without ports there is no hash, and the first port
/// of the range is used.
const LATER: u16 = 49_152;

/// The node and source port of one direction.
const ONE: &str = NODE;
/// The same node with another source port.
const OTHER_PORT: &str = "10.0.1.100:60999";
/// The node and source port of the other direction.
const TWO: &str = OTHER_NODE;

fn legs_of_both_directions() -> Vec<Case> {
    let (client, server) = (path(ONE, 0, 1), path(TWO, 7, 2));
    let (client_3, client_5) = (path(ONE, 0, 3), path(OTHER_PORT, 0, 5));
    let server_4 = path(TWO, 8, 4);
    let both = path(ONE, 0, 9);
    vec![
        case(
            "Both directions of a flow through a chain are returned, each with its own node, port, \
             cookie and attachment.",
            aws_chain(),
            vec![
                client.forward(syn()),
                client.back(syn()),
                server.forward(syn_ack()),
                client.forward(request()),
                server.back(syn_ack()),
                client.back(request()),
                server.forward(response()),
                client.forward(request()),
                client.back(request()),
                server.back(response()),
            ],
        ),
        case(
            "A cookie change in one direction of a chain does not affect the other direction's \
             cookie.",
            aws_chain(),
            vec![
                client.forward(syn()),
                server.forward(syn_ack()),
                client_3.forward(request()),
                server.back(syn_ack()),
                client_3.back(request()),
                server_4.forward(response()),
                client_5.forward(request()),
                server_4.back(response()),
                client_5.back(request()),
                client.forward(request()),
                server_4.back(response()),
                client.back(request()),
            ],
        ),
        case(
            "The options of one direction of a chain change while a packet of the other direction, \
             with the former options, is at the appliance.",
            aws_chain(),
            vec![
                both.forward(syn()),
                both.forward(syn_ack()),
                client.forward(request()),
                both.back(syn_ack()),
                client.back(request()),
                client.forward(response()),
                both.forward(request()),
                client.back(response()),
                both.back(request()),
            ],
        ),
    ]
}

fn long_options() -> Vec<Case> {
    let (client, server) = (path(ONE, 0, 1), path(TWO, 7, 2));
    let (long_1, long_2) = (long(ONE, 1), long(TWO, 2));
    vec![case(
        "Long options of both directions of a chain are returned, each direction with its own.",
        aws_chain(),
        vec![
            long_1.forward(syn()),
            long_2.forward(syn_ack()),
            long_1.back(syn()),
            long_2.back(syn_ack()),
            client.forward(request()),
            long_2.back(syn_ack()),
            server.forward(response()),
            client.back(request()),
            server.back(response()),
        ],
    )]
}

/// A chain with a single option slab.
fn few_slabs() -> Setup {
    Setup { option_slabs: 1, ..aws_chain().named("chain, one option slab") }
}

fn without_slabs() -> Vec<Case> {
    let (client, server) = (path(ONE, 0, 1), path(TWO, 0, 2));
    let second = |ip: Ip| ip.from_port(40_002);
    let answer = |ip: Ip| ip.to_port(40_002);
    vec![case(
        "Without a free slab for a second leg, packets that a chain returns carry the latest \
         options of either direction, and flows that have slabs keep theirs.",
        few_slabs(),
        vec![
            client.forward(syn()),
            server.forward(syn_ack()),
            client.forward_as(second(syn()), HASH_2),
            client.back_as(second(syn()), HASH_2),
            server.forward_as(answer(syn_ack()), HASH_2),
            server.back_as(answer(syn_ack()), HASH_2),
            client.forward_as(second(request()), HASH_2),
            client.back_as(answer(syn_ack()), HASH_2),
            client.back(syn()),
            server.back(syn_ack()),
        ],
    )]
}

fn errors_and_fragments() -> Vec<Case> {
    let (client, server) = (path(ONE, 0, 1), path(TWO, 0, 2));
    let about_request = error("192.0.2.1", "198.51.100.7", (3, 4), 1_300, request());
    let about_response = error("198.51.100.1", "203.0.113.10", (3, 4), 1_300, response());
    let mut by_udp = aws_chain().named("chain, UDP");
    by_udp.services =
        by_udp.services.replace(r#"port = 80, protocol = "tcp""#, r#"port = 80, protocol = "udp""#);
    let question = || udp(CLIENT, FRONTEND).id(4711).payload(&[0x5a; 2_000]);
    let answer = || udp(FRONTEND, CLIENT).id(4712).payload(&[0xa5; 2_000]);
    let first = |ip: Ip| ip.part(0, 1_480, true);
    let last = |ip: Ip| ip.part(1_480, 528, false);
    vec![
        case(
            "An ICMP error in a chain is returned with the leg of its direction's packets, and its \
             own outer header does not change that leg.",
            aws_chain(),
            vec![
                client.forward(syn()),
                server.forward(syn_ack()),
                path(OTHER_PORT, 0, 77).forward(about_request.clone()),
                server.back(about_request),
                path(OTHER_PORT, 0, 78).forward(about_response.clone()),
                client.back(about_response),
                server.back(syn_ack()),
                client.back(syn()),
            ],
        ),
        case(
            "Fragments in a chain are returned with the leg of their datagram's direction.",
            by_udp,
            vec![
                client.forward(first(question())),
                server.forward(first(answer())),
                client.forward_as(last(question()), LATER),
                server.forward_as(last(answer()), LATER),
                server.back_as(last(answer()), LATER),
                client.back_as(last(question()), LATER),
                server.back(first(answer())),
                client.back(first(question())),
            ],
        ),
    ]
}

/// An endpoint that, with the seed below, gets the scope that [`ENDPOINT`] had. The flow of
/// [`syn`] then has the same hash, and so the same outer port.
const SUCCESSOR: u64 = 0x2004;

fn scopes() -> Vec<Case> {
    let (first, successor) = (path(ONE, 0, 1), path_of(SUCCESSOR, ONE, 0, 1));
    vec![case(
        "After an endpoint takes over the scope of an idle endpoint, packets carry the identifier \
         of the new one.",
        Setup {
            max_scopes: 8,
            seed: Some(0x5745_4952),
            ..aws_chain().named("chain, eight scopes")
        },
        vec![first.forward(syn()), wait(200), wait(200), successor.forward(syn())],
    )]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [legs_of_both_directions(), long_options(), without_slabs(), errors_and_fragments(), scopes()]
        .into_iter()
        .flatten()
        .collect()
}
