//! NAT46 and NAT64: clients and backends of different families, including errors (RFC 7915).

mod ends;
mod errors;

use super::addresses::*;
use super::setups::{aws_translated, azure_translated, plain_translated};
use super::{Case, arrives, case};
use crate::frames::{Ip, Mac, echo_reply, echo_request, error, flags, raw, tcp, udp};
use ends::{Ends, NAT46, NAT64, address_of};
use tables::reason::DropReason;

fn connections() -> Vec<Case> {
    let both = |ends: Ends| {
        vec![
            ends.forward(ends.syn()),
            ends.back(ends.syn_ack()),
            ends.forward(ends.request().tos(0xb8)),
            ends.back(ends.response().tos(0x02)),
            ends.forward(ends.request().wrong_by(0x0101)),
            ends.back(ends.response().wrong_by(0x7001)),
            ends.forward(ends.request().sized(1_281)),
            ends.back(ends.response().sized(1_280)),
            ends.back(ends.response().sized(1_281)),
        ]
    };
    let options = NAT46.request().options(&[7, 7, 4, 0, 0, 0, 0]).id(99);
    let extension = NAT64.request().extension(0, &[1, 4, 0, 0, 0, 0]).label(0x0123);
    vec![
        case(
            "A connection of an IPv4 client to an IPv6 backend is translated: headers, addresses, \
             ports and checksums; a wrong checksum stays wrong by the same difference.",
            aws_translated(),
            both(NAT46),
        ),
        case(
            "A connection of an IPv6 client to an IPv4 backend is translated.",
            aws_translated(),
            both(NAT64),
        ),
        case(
            "Translation to IPv6 removes IPv4 options.",
            aws_translated(),
            vec![NAT46.forward(NAT46.syn()), NAT46.forward(options)],
        ),
        case(
            "Translation to IPv4 removes an IPv6 hop-by-hop options header.",
            aws_translated(),
            vec![NAT64.forward(NAT64.syn()), NAT64.forward(extension)],
        ),
    ]
}

fn other_sources() -> Vec<Case> {
    let plain = |ends: Ends| {
        vec![
            ends.forward_by(from_router, ends.syn()),
            ends.back_by(to_router, ends.syn_ack()),
            ends.forward_by(from_router, ends.request()),
            ends.back_by(to_router, ends.response()),
        ]
    };
    let azure = |ends: Ends| {
        let answered = |ip: Ip| {
            from_external(ip).sent_back().with(|ip| {
                let ip = ip.may_fragment().id(u32::from(ANY_ID));
                ip.vxlan(|v| std::mem::swap::<Mac>(&mut v.from, &mut v.to))
            })
        };
        vec![
            ends.forward_by(from_external, ends.syn()),
            ends.back_by(answered, ends.syn_ack()),
            ends.forward_by(from_external, ends.request()),
            ends.back_by(answered, ends.response()),
        ]
    };
    vec![
        case(
            "An Azure gateway's IPv4 clients reach an IPv6 backend.",
            azure_translated(),
            azure(NAT46),
        ),
        case(
            "An Azure gateway's IPv6 clients reach an IPv4 backend.",
            azure_translated(),
            azure(NAT64),
        ),
        case("Plain IPv4 clients reach an IPv6 backend.", plain_translated(), plain(NAT46)),
        case("Plain IPv6 clients reach an IPv4 backend.", plain_translated(), plain(NAT64)),
    ]
}

fn other_protocols() -> Vec<Case> {
    let datagrams = |ends: Ends| {
        let at = |port: u16| std::net::SocketAddr::new(crate::frames::end(ends.any).ip(), port);
        let (frontend, backend) = (at(53).to_string(), ends.any_backend);
        let question = udp(ends.client, &frontend).payload(b"question");
        let answer = udp(&frontend, ends.client).payload(b"an answer");
        let plain = answer.clone().from(backend).from_port(53).to(ends.nat).to_port(NAT_1);
        vec![ends.any_forward(question), ends.any_back(answer, plain)]
    };
    let pings = |ends: Ends| {
        let client = address_of(ends.client);
        let ping = echo_request(&client, ends.any).from_port(77).payload(b"ping");
        let pong = echo_reply(ends.any, &client).from_port(77).payload(b"ping");
        let plain = echo_reply(ends.any_backend, ends.nat).from_port(NAT_1).payload(b"ping");
        vec![ends.any_forward(ping), ends.any_back(pong, plain)]
    };
    let unsummed = udp(CLIENT, "203.0.113.20:53").payload(b"question").unsummed();
    let summed = unsummed.clone().summed().from(OUR_NAT6).from_port(NAT_1).to("[fd00:2::12]:53");
    vec![
        case("UDP of an IPv4 client reaches an IPv6 backend.", aws_translated(), datagrams(NAT46)),
        case("UDP of an IPv6 client reaches an IPv4 backend.", aws_translated(), datagrams(NAT64)),
        case(
            "A ping over IPv4 reaches the backend as a ping over IPv6.",
            aws_translated(),
            pings(NAT46),
        ),
        case(
            "A ping over IPv6 reaches the backend as a ping over IPv4.",
            aws_translated(),
            pings(NAT64),
        ),
        case(
            "A UDP datagram without a checksum receives the checksum that IPv6 requires.",
            aws_translated(),
            vec![arrives(INGRESS, from_gateway(1, unsummed)).leaves(
                EGRESS,
                to_backend(12, summed.hop()),
                "nat",
            )],
        ),
    ]
}

fn fragments() -> Vec<Case> {
    let parts = |ends: Ends| {
        let at = |port: u16| std::net::SocketAddr::new(crate::frames::end(ends.any).ip(), port);
        let frontend = at(53).to_string();
        let question = || udp(ends.client, &frontend).id(4_711).payload(&[0x5a; 3_000]);
        let answer = || udp(&frontend, ends.client).id(99).payload(&[0xa5; 2_000]);
        let plain = || answer().from(ends.any_backend).from_port(53).to(ends.nat).to_port(NAT_1);
        vec![
            ends.any_forward(question().part(0, 1_480, true)),
            ends.any_forward(question().part(1_480, 1_480, true)),
            ends.any_forward(question().part(2_960, 48, false)),
            ends.any_back(answer().part(0, 1_480, true), plain().part(0, 1_480, true)),
            ends.any_back(answer().part(1_480, 528, false), plain().part(1_480, 528, false)),
        ]
    };
    vec![
        case("IPv4 fragments are translated to IPv6 fragments.", aws_translated(), parts(NAT46)),
        case("IPv6 fragments are translated to IPv4 fragments.", aws_translated(), parts(NAT64)),
    ]
}

fn not_forwarded() -> Vec<Case> {
    let exceeded = |ends: Ends, is: (u8, u8), quotes: usize| {
        let (at, to) = (address_of(ends.frontend), address_of(ends.client));
        let reported = error(&at, &to, is, 0, ends.syn().ttl(1)).quoting(quotes).tos(0xc0);
        let expiring = from_gateway(1, ends.syn().ttl(1));
        let answer = from_gateway(1, reported).sent_back();
        vec![
            ends.forward(ends.syn()),
            arrives(INGRESS, expiring).answered(INGRESS, answer, DropReason::TtlExceeded),
        ]
    };
    let redirect = error("198.51.100.1", "203.0.113.10", (5, 1), 7, NAT46.response().hop());
    let option = error("fd00:9::9", OUR_NAT6, (4, 2), 40, NAT46.beyond(NAT46.request()).hop());
    let routed = NAT46.request().options(&[131, 7, 4, 192, 0, 2, 1]);
    let cut = udp(CLIENT, "203.0.113.20:53").id(9).payload(&[1; 600]).unsummed().part(0, 256, true);
    let piece = echo_request("198.51.100.7", "203.0.113.20").from_port(77).payload(&[1; 600]);
    let authentic = raw("2001:db8:c::7", "2001:db8:f::20", 6).extension(51, &[0; 10]);
    let segment = tcp(CLIENT6, "[2001:db8:f::20]:80", flags::SYN).bytes();
    let authentic = authentic.payload(&segment[40..]);
    let dropped =
        |ip: Ip| arrives(INGRESS, from_gateway(1, ip)).dropped(DropReason::NotTranslatable);
    vec![
        case(
            "An IPv4 packet whose TTL expires at Weir is answered with an ICMPv4 error.",
            aws_translated(),
            exceeded(NAT46, (11, 0), 548),
        ),
        case(
            "An IPv6 packet whose hop limit expires at Weir is answered with an ICMPv6 error.",
            aws_translated(),
            exceeded(NAT64, (3, 0), 1_232),
        ),
        case(
            "A packet that cannot be translated is dropped for a separate reason: a redirect, an \
             unknown option, a source route, a fragment of a datagram without a checksum or of a \
             ping, an authentication header.",
            aws_translated(),
            vec![
                NAT46.forward(NAT46.syn()),
                dropped(redirect),
                arrives(EGRESS, from_backend(11, option)).dropped(DropReason::NotTranslatable),
                dropped(routed),
                dropped(cut),
                dropped(piece.id(11).part(0, 256, true)),
                dropped(authentic),
            ],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [
        connections(),
        other_sources(),
        other_protocols(),
        fragments(),
        not_forwarded(),
        errors::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
