//! ICMP errors about translated packets: from routers and hosts on either side, and Weir's own
//! about packets that are too big.

use super::super::addresses::*;
use super::super::setups::{aws_translated, plain_translated};
use super::super::{Case, Step, arrives, case};
use super::ends::{Ends, NAT46, NAT64, address_of, quoted, written};
use crate::frames::{Frame, Ip, echo_request, error, flags, tcp};
use tables::reason::DropReason;

/// ICMP errors of one family and their translation: type, code and the second word of the header.
type Pairs = &'static [((u8, u8, u32), (u8, u8, u32))];

/// From ICMPv6 to ICMPv4 (RFC 7915 5.2).
const TO_FOUR: Pairs = &[
    ((1, 0, 0), (3, 1, 0)),
    ((1, 1, 0), (3, 10, 0)),
    ((1, 3, 0), (3, 1, 0)),
    ((2, 0, 1_400), (3, 4, 1_380)),
    ((3, 0, 0), (11, 0, 0)),
    ((4, 0, 7), (12, 0, 8 << 24)),
    ((4, 1, 6), (3, 2, 0)),
];

/// From ICMPv4 to ICMPv6 (RFC 7915 4.2).
const TO_SIX: Pairs = &[
    ((3, 0, 0), (1, 0, 0)),
    ((3, 2, 0), (4, 1, 6)),
    ((3, 4, 1_400), (2, 0, 1_420)),
    ((3, 4, 600), (2, 0, 1_280)),
    ((3, 13, 0), (1, 1, 0)),
    ((11, 1, 0), (3, 1, 0)),
    ((12, 0, 16 << 24), (4, 0, 24)),
];

fn errors() -> Vec<Case> {
    let pairs = |six: bool| if six { TO_FOUR } else { TO_SIX };
    let about_requests = |ends: Ends| {
        let mut steps = vec![ends.forward(ends.syn())];
        let pairs = pairs(!ends.six).iter();
        steps.extend(pairs.map(|(was, is)| ends.error_back(ends.routers[1], *was, *is)));
        steps
    };
    let about_answers = |ends: Ends| {
        let mut steps = vec![ends.forward(ends.syn()), ends.back(ends.syn_ack())];
        steps.extend(pairs(ends.six).iter().map(|(was, is)| ends.error_forward(*was, *is)));
        steps
    };
    let port_unreachable = |ends: Ends, was: (u8, u8), is: (u8, u8)| {
        let own = address_of(ends.backend);
        let reported = ends.error_back(&own, (was.0, was.1, 0), (is.0, is.1, 0));
        vec![ends.forward(ends.syn()), reported]
    };
    vec![
        case(
            "Errors of IPv6 routers about a translated request reach the IPv4 client from the \
             frontend as ICMPv4.",
            aws_translated(),
            about_requests(NAT46),
        ),
        case(
            "Errors of IPv4 routers about a translated request reach the IPv6 client from the \
             frontend as ICMPv6.",
            aws_translated(),
            about_requests(NAT64),
        ),
        case(
            "Errors of the IPv4 client's side about an answer reach the IPv6 backend.",
            aws_translated(),
            about_answers(NAT46),
        ),
        case(
            "Errors of the IPv6 client's side about an answer reach the IPv4 backend.",
            aws_translated(),
            about_answers(NAT64),
        ),
        case(
            "A port-unreachable of an IPv6 backend reaches the IPv4 client from the frontend's \
             address.",
            aws_translated(),
            port_unreachable(NAT46, (1, 4), (3, 3)),
        ),
        case(
            "A port-unreachable of an IPv4 backend reaches the IPv6 client from the frontend's \
             address.",
            aws_translated(),
            port_unreachable(NAT64, (3, 3), (1, 4)),
        ),
    ]
}

/// Cases of an error that quotes only 8 bytes after the IP header, as RFC 792 permits, and of an
/// error about a ping.
fn quotes() -> Vec<Case> {
    let about = written(NAT64.beyond(NAT64.request()).hop());
    let plain = error("10.9.9.9", OUR_NAT, (11, 0), 0, about).quoting(28);
    let translated = error("2001:db8:f::10", "2001:db8:c::7", (3, 0), 0, NAT64.request().hop());
    let translated = translated.quoting(48);
    let pinged = |six: bool| match six {
        true => echo_request(OUR_NAT6, "fd00:2::12").from_port(NAT_1).payload(b"ping").hop(),
        false => echo_request("198.51.100.7", "203.0.113.20").from_port(77).payload(b"ping").hop(),
    };
    let ping = echo_request("198.51.100.7", "203.0.113.20").from_port(77).payload(b"ping");
    let plain6 = error("fd00:2::12", OUR_NAT6, (1, 4), 0, pinged(true)).quoting(1_000);
    let translated4 = error("203.0.113.20", "198.51.100.7", (3, 3), 0, quoted(pinged(false)));
    vec![
        case(
            "An error that quotes only 8 bytes of a segment matches its flow, and quotes as many \
             in IPv6.",
            aws_translated(),
            vec![
                NAT64.forward(NAT64.syn()),
                arrives(EGRESS, from_backend(11, plain)).leaves(
                    INGRESS,
                    to_gateway(1, translated.hop()),
                    "answer",
                ),
            ],
        ),
        case(
            "An error about a translated ping quotes the client's ping.",
            aws_translated(),
            vec![
                NAT46.any_forward(ping),
                arrives(EGRESS, from_backend(12, plain6)).leaves(
                    INGRESS,
                    to_gateway(1, written(translated4.quoting(1_000).hop())),
                    "answer",
                ),
            ],
        ),
    ]
}

impl Ends {
    /// Builds a client's packet of `len` bytes.
    fn big(&self, len: usize) -> Ip {
        tcp(self.client, self.frontend, flags::ACK).sized(len)
    }

    /// Returns a packet of `len` bytes as the client receives it.
    fn received(&self, len: usize) -> Ip {
        tcp(self.frontend, self.client, flags::ACK).sized(len)
    }

    /// Returns a packet of `len` bytes as the backend sends it.
    fn sent(&self, len: usize) -> Ip {
        self.behind(tcp(self.frontend, self.client, flags::ACK)).sized(len)
    }

    /// A step with an answer that has `from` bytes at the backend and `to` bytes at the client.
    fn fits(&self, from: usize, to: usize) -> Step {
        arrives(EGRESS, from_backend(11, self.sent(from))).leaves(
            INGRESS,
            to_gateway(1, written(self.received(to).hop())),
            "answer",
        )
    }

    /// A step with an answer that is too big; the error to its backend reports `mtu`.
    fn too_big(&self, len: usize, mtu: u32) -> Step {
        let (is, quotes) = if self.six { ((3, 4), 548) } else { ((2, 0), 1_232) };
        let reported = error(self.nat, &address_of(self.backend), is, mtu, self.sent(len));
        let reported = Frame::new(OUT_MAC, backend_mac(11), reported.quoting(quotes).tos(0xc0));
        arrives(EGRESS, from_backend(11, self.sent(len))).answered(
            EGRESS,
            reported,
            DropReason::TooBigAnswered,
        )
    }
}

fn sizes() -> Vec<Case> {
    let needed = error("203.0.113.10", "198.51.100.7", (3, 4), 8_981, NAT46.big(8_982));
    let needed = to_router(needed.quoting(548).tos(0xc0));
    vec![
        case(
            "A packet that exceeds the path MTU only because of the longer IPv6 header is answered \
             with the size that fits in IPv4.",
            plain_translated(),
            vec![
                NAT46.forward_by(from_router, NAT46.syn()),
                NAT46.forward_by(from_router, NAT46.big(8_981)),
                arrives(INGRESS, from_router(NAT46.big(8_982))).answered(
                    INGRESS,
                    needed,
                    DropReason::TooBigAnswered,
                ),
            ],
        ),
        case(
            "An answer that exceeds the MTU of the plain client's arm only because of the longer \
             IPv6 header is answered with an error.",
            plain_translated(),
            vec![
                NAT64.forward_by(from_router, NAT64.syn()),
                NAT64.back_by(to_router, NAT64.received(9_001)),
                NAT64.too_big(8_982, 8_981),
            ],
        ),
        case(
            "An answer of 8,480 bytes becomes one of 8,500 for the gateway; a longer one is \
             answered with an error.",
            aws_translated(),
            vec![NAT64.forward(NAT64.syn()), NAT64.fits(8_480, 8_500), NAT64.too_big(8_481, 8_480)],
        ),
        case(
            "An answer of 8,520 bytes becomes one of 8,500 over IPv4; a longer one is answered \
             with an error.",
            aws_translated(),
            vec![NAT46.forward(NAT46.syn()), NAT46.fits(8_520, 8_500), NAT46.too_big(8_521, 8_520)],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [errors(), quotes(), sizes()].into_iter().flatten().collect()
}
