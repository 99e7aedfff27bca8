//! Frames to mutate: those of the cases, and frames with headers that no case uses.

use super::mutation::Trial;
use fastpath::burst::Arrival;
use tests::cases::addresses::*;
use tests::cases::setups::{Setup, aws_chain, aws_nat, aws_return, aws_tunnel, azure_nat};
use tests::cases::{Act, Case, Step, Wire, arrives, arrives_split, case, services};
use tests::frames::{Frame, Ip, Mac, aws_options, option, options, udp};

/// Returns the first frame of a step, if it has one.
pub fn first_frame(act: &Act) -> Option<Trial> {
    let bytes = |wire: &Wire| match wire {
        Wire::Built(frame) => frame.bytes(),
        Wire::Raw(bytes) => bytes.clone(),
    };
    let (arm, arrival, bytes) = match act {
        Act::Arrives(arm, wire) | Act::ArrivesSplit(arm, wire, _) => {
            (*arm, Arrival::Plain, bytes(wire))
        }
        Act::KernelSends(arm, wire) => (*arm, Arrival::Kernel, bytes(wire)),
        Act::Until { arm, make, .. } | Act::Flood { arm, make, .. } => {
            (*arm, Arrival::Plain, make(0).bytes())
        }
        Act::Wait(_) | Act::Change(_) => return None,
    };
    let first = match act {
        Act::ArrivesSplit(_, _, first) => (*first).min(bytes.len()),
        _ => bytes.len(),
    };
    Some(Trial { arm, arrival, first, bytes })
}

/// Creates a setup of gateways with IPv6 as outer protocol.
fn gateways_by_six() -> Setup {
    let mut setup = aws_return().named("outer IPv6");
    setup.gateways = r#"
[[gateway]]
name = "aws"
kind = "aws"
address = "fd00:1::10"
sources = ["fd00:1::/64"]
[[gateway]]
name = "azure"
kind = "azure"
address = "fd00:1::10"
sources = ["fd00:1::/64"]
external = { port = 10801, vni = 801 }
internal = { port = 10800, vni = 800 }
"#
    .into();
    setup
}

/// Returns the AWS gateway's frame with these GENEVE options.
fn gateway_frame(inner: &Ip, options: &[u8]) -> Frame {
    Frame::new(ROUTER, IN_MAC, inner.clone().in_geneve(NODE, OUR_GENEVE, options.to_vec()))
}

/// Returns option areas: AWS's three options, and the same in another order, repeated, with foreign
/// options, and with reserved bits set.
fn option_shapes() -> Vec<Vec<u8>> {
    let one = option(0x0108, 1, &ENDPOINT.to_be_bytes());
    let two = option(0x0108, 2, &7u64.to_be_bytes());
    let three = option(0x0108, 3, &[1, 2, 3, 4]);
    let (foreign, empty) = (option(0x0103, 2, &[9; 8]), option(0x0103, 1, &[]));
    let mut reserved = aws_options(ENDPOINT, 7, 1);
    reserved[3] |= 0xe0;
    vec![
        aws_options(ENDPOINT, 7, 1),
        options(&[two.clone(), one.clone(), three.clone()]),
        options(&[three.clone(), two.clone(), one.clone()]),
        options(&[one.clone(), two.clone(), three.clone(), empty]),
        options(&[one.clone(), two.clone(), three.clone(), foreign.clone()]),
        options(&[foreign, one.clone(), two.clone(), three.clone()]),
        options(&[one.clone(), one, two, three]),
        reserved,
    ]
}

/// Returns frames with the same inner packet and unusual tunnel headers.
fn with_unusual_headers(inner: &Ip) -> Vec<Frame> {
    let aws = aws_options(ENDPOINT, 0, 1);
    let plain = gateway_frame(inner, &aws);
    let frame = |ip: Ip| Frame::new(ROUTER, IN_MAC, ip);
    let geneve = || inner.clone().in_geneve(NODE, OUR_GENEVE, aws.clone());
    vec![
        plain.clone(),
        plain.clone().vlan(0x2007),
        plain.clone().pad(200),
        frame(geneve().tos(0xb8).ttl(1)),
        frame(geneve().may_fragment().id(77)),
        frame(geneve().summed()),
        frame(geneve().options(&[1, 1, 1, 0])),
        frame(geneve().geneve(|g| g.control = true)),
        frame(geneve().geneve(|g| g.critical = true)),
        frame(geneve().geneve(|g| g.vni = 0x00ab_cdef)),
        frame(geneve().part(0, 64, true)),
    ]
}

/// Builds GUE variant 0 with `words` words after the first, around an IPv4 packet.
fn gue_with_header(words: u8, inner: &Ip) -> Ip {
    let mut load = vec![words, 4, 0, 0];
    load.resize(4 + 4 * usize::from(words), 0x11);
    load.extend(inner.bytes());
    udp("10.0.2.11:55555", "10.0.2.10:6080").payload(&load)
}

/// Builds VXLAN with an inner VLAN tag, as the bytes of a whole frame.
fn tagged_inside(inner: Ip) -> Vec<u8> {
    let mut load = vec![0x08, 0, 0, 0, 0, 3, 0x21, 0];
    let (to, from): (Mac, Mac) = (AZURE_TO, AZURE_FROM);
    load.extend(Frame::new(from, to, inner).vlan(0x0005).bytes());
    Frame::new(ROUTER, IN_MAC, udp(NODE, OUR_EXTERNAL).payload(&load)).bytes()
}

/// Returns frames around the maximum length that is parsed, 65,535 bytes.
fn longest_frames() -> Vec<Frame> {
    [65_000, 65_535, 70_000].map(|len| from_gateway(1, syn()).pad(len)).into()
}

/// Returns frames over IPv6 with headers that fit into the cache (VXLAN's) and that do not
/// (GENEVE's).
fn outer_six() -> Vec<Step> {
    let six = syn().from(CLIENT6).to(FRONTEND6);
    let arrive = |ip: Ip| arrives(INGRESS, Frame::new(ROUTER, IN_MAC, ip));
    let geneve = |inner: Ip| {
        inner.in_geneve("[fd00:1::100]:60001", "[fd00:1::10]:6081", aws_options(1, 0, 1))
    };
    let vxlan = |inner: Ip| {
        inner.in_vxlan("[fd00:1::100]:60001", "[fd00:1::10]:10801", 801, AZURE_FROM, AZURE_TO)
    };
    vec![
        arrive(geneve(request())),
        arrive(geneve(six.clone())),
        arrive(vxlan(request())),
        arrive(vxlan(six).tos(0x5a)),
        arrive(vxlan(request()).extension(0, &[1, 4, 0, 0, 0, 0])),
    ]
}

/// Returns cases of packets from backends in Weir's own tunnels.
fn from_backends() -> Vec<Case> {
    let backend = |ip: Ip| arrives(EGRESS, from_backend(11, ip));
    let own = |endpoint, attachment: u64| {
        let options = aws_options(endpoint, 0x5745_4952 << 32 | attachment, 5);
        backend(request().in_geneve("10.0.2.11:50000", "10.0.2.10:6081", options))
    };
    let gue = |words| backend(gue_with_header(words, &response()));
    let direct = response().in_gue("10.0.2.11:55555", "10.0.2.10:6080");
    let (from, to) = ("10.0.2.11:55555", "10.0.2.10:4789");
    let vxlan = response().in_vxlan(from, to, 0, backend_mac(11), OUT_MAC);
    let mut chain = vec![own(ENDPOINT, 0), own(ENDPOINT, 1), own(0, 0), own(OTHER_ENDPOINT, 0)];
    chain.push(arrives(INGRESS, from_gateway(1, syn())));
    vec![
        case("seeds: a chain", aws_chain(), chain),
        case(
            "seeds: GUE",
            aws_tunnel("gue"),
            vec![gue(0), gue(1), gue(2), gue(7), gue(31), backend(direct)],
        ),
        case(
            "seeds: a tunnel whose service is removed",
            aws_tunnel("vxlan"),
            vec![backend(vxlan), services("")],
        ),
    ]
}

/// Returns cases whose steps only provide frames: they expect nothing.
pub fn cases() -> Vec<Case> {
    let all = |frames: Vec<Frame>| frames.into_iter().map(|f| arrives(INGRESS, f)).collect();
    let split = |first| arrives_split(INGRESS, from_gateway(1, request()), first);
    let six = syn().from(CLIENT6).to(FRONTEND6);
    let options = option_shapes();
    let options = options.iter().map(|o| gateway_frame(&request(), o)).collect();
    let vxlan = vec![
        arrives(INGRESS, from_external(request())),
        arrives(INGRESS, from_internal(request())),
        arrives(INGRESS, from_external(six.clone())),
        arrives(INGRESS, tagged_inside(request())),
        arrives(INGRESS, from_external(request()).vlan(7)),
    ];
    let segments = vec![split(95), split(96), split(102), split(104)];
    let mut cases = vec![
        case("seeds: headers", aws_return(), all(with_unusual_headers(&request()))),
        case("seeds: headers with services", aws_nat(), all(with_unusual_headers(&syn()))),
        case("seeds: IPv6 inside", aws_nat(), all(with_unusual_headers(&six))),
        case("seeds: options", aws_return(), all(options)),
        case("seeds: outer IPv6", gateways_by_six(), outer_six()),
        case("seeds: VXLAN", azure_nat(), vxlan),
        case("seeds: segments", aws_return(), segments),
        case("seeds: giants", aws_return(), all(longest_frames())),
    ];
    cases.extend(from_backends());
    cases
}
