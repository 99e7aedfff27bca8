//! Packets that are dropped: with malformed headers or options, from sources or to addresses that
//! are not admitted, and without a service, backend, flow or neighbor. Some valid counterparts are
//! included.

use super::addresses::*;
use super::setups::{Setup, aws_nat, aws_return, azure_return, plain_nat, service};
use super::{Case, arrives, arrives_split, case};
use crate::frames::{
    Frame, Geneve, Ip, aws_options, echo_reply, echo_request, end, flags, option, options, tcp, udp,
};
use tables::reason::DropReason;
use tables::reason::DropReason::*;

/// Builds a packet that matches no service.
fn inner() -> Ip {
    tcp(CLIENT, ELSEWHERE, flags::ACK).payload(b"no such service")
}

/// Builds the gateway's valid packet, which the cases damage.
fn valid() -> Frame {
    from_gateway(1, inner())
}

/// Builds the gateway's packet with a changed GENEVE header.
fn geneve(change: impl FnOnce(&mut Geneve)) -> Frame {
    valid().with(|ip| ip.geneve(change))
}

/// Builds the gateway's packet with these options.
fn with_options(parts: &[Vec<u8>]) -> Frame {
    geneve(|g| g.options = options(parts))
}

/// A case in which a frame is dropped for `reason`.
fn reject(claim: &'static str, setup: Setup, frame: Frame, reason: DropReason) -> Case {
    case(claim, setup, vec![arrives(INGRESS, frame).dropped(reason)])
}

/// Offsets in the frame of [`valid`]: the outer IP header, UDP, GENEVE, the inner packet.
const IP: usize = 14;
const UDP: usize = IP + 20;
const GENEVE: usize = UDP + 8;
const INNER: usize = GENEVE + 8 + 32;

/// Writes `word` at offset `at` of the outer IP header, and recomputes its checksum.
fn resummed(frame: Frame, at: usize, word: u16) -> Frame {
    let mut header = frame.bytes()[IP..IP + 20].to_vec();
    header[at..at + 2].copy_from_slice(&word.to_be_bytes());
    header[10..12].copy_from_slice(&[0, 0]);
    let sum = crate::frames::sum::checksum(&header);
    frame.set(IP + at, &word.to_be_bytes()).set(IP + 10, &sum.to_be_bytes())
}

fn frames_and_ip() -> Vec<Case> {
    let reject = |claim, frame, reason| reject(claim, aws_return(), frame, reason);
    vec![
        reject(
            "A frame that ends after its Ethernet header is dropped.",
            valid().cut(14),
            TooShort,
        ),
        reject("A frame that ends in its IP header is dropped.", valid().cut(IP + 12), TooShort),
        reject(
            "A frame that ends in its UDP header is dropped.",
            valid().cut(UDP + 5),
            BadIpHeader,
        ),
        reject("IP version 5 is dropped.", valid().set(IP, &[0x55]), BadIpHeader),
        reject("An IP header of four words is dropped.", valid().set(IP, &[0x44]), BadIpHeader),
        reject(
            "A total length beyond the frame is dropped.",
            resummed(valid(), 2, 9_000),
            BadIpHeader,
        ),
        reject(
            "A wrong outer header checksum is dropped.",
            valid().set(IP + 10, &[0xde, 0xad]),
            BadIpChecksum,
        ),
        reject(
            "An outer UDP length that contradicts the IP length is dropped.",
            valid().with(|mut ip| {
                ip.claimed_udp_len = Some(30);
                ip
            }),
            BadUdpLength,
        ),
        reject(
            "The first fragment of a gateway's packet is dropped.",
            valid().with(|ip| ip.part(0, 80, true)),
            OuterFragment,
        ),
        reject(
            "The last fragment of a gateway's packet is dropped.",
            valid().with(|ip| ip.part(80, 80, false)),
            OuterFragment,
        ),
        reject(
            "A frame for another MAC address is dropped for a separate reason.",
            valid().between(ROUTER, FOREIGN_MAC),
            ForeignDstMac,
        ),
        case(
            "A packet whose headers are not in the first buffer segment is dropped.",
            aws_return(),
            vec![arrives_split(INGRESS, valid(), UDP + 4).dropped(HeadersSplit)],
        ),
        case(
            "A packet whose headers are in the first buffer segment is processed.",
            aws_return(),
            vec![arrives_split(INGRESS, from_gateway(1, inner().sized(4_000)), 600).leaves(
                INGRESS,
                from_gateway(1, inner().sized(4_000)).sent_back(),
                "return",
            )],
        ),
    ]
}

fn geneve_headers() -> Vec<Case> {
    let reject = |claim, frame, reason| reject(claim, aws_return(), frame, reason);
    vec![
        reject("GENEVE version 1 is dropped.", geneve(|g| g.version = 1), GeneveVersion),
        reject("A GENEVE control packet is dropped.", geneve(|g| g.control = true), GeneveControl),
        reject(
            "GENEVE that carries Ethernet is dropped.",
            geneve(|g| g.claimed_protocol = Some(0x6558)),
            TunnelProtocol,
        ),
        reject(
            "An option area longer than the packet is dropped.",
            geneve(|g| g.claimed_words = Some(63)),
            TooShort,
        ),
        reject(
            "A truncated GENEVE header is dropped.",
            Frame::new(ROUTER, IN_MAC, udp(NODE, OUR_GENEVE).payload(&[0, 0, 8, 0])),
            TooShort,
        ),
    ]
}

/// Returns the gateway's options: endpoint, attachment and cookie.
fn gateway_options() -> [Vec<u8>; 3] {
    [
        option(0x0108, 1, &ENDPOINT.to_be_bytes()),
        option(0x0108, 2, &[0; 8]),
        option(0x0108, 3, &1u32.to_be_bytes()),
    ]
}

fn geneve_options() -> Vec<Case> {
    let reject = |claim, frame, reason| reject(claim, aws_return(), frame, reason);
    let [endpoint, attachment, cookie] = gateway_options();
    let overrun = {
        let mut cookie = cookie.clone();
        cookie[3] = 2;
        [endpoint.clone(), attachment.clone(), cookie]
    };
    let critical = option(0x0103, 0x80 | 0x11, &[1, 2, 3, 4]);
    vec![
        reject(
            "An option that exceeds the option area is dropped.",
            with_options(&overrun),
            GeneveOptionOverrun,
        ),
        reject(
            "A packet with an unknown critical option is dropped.",
            with_options(&[endpoint.clone(), attachment.clone(), cookie.clone(), critical.clone()]),
            GeneveCriticalOption,
        ),
        reject(
            "A packet with an unknown critical option before the gateway's options is dropped.",
            with_options(&[critical, endpoint.clone(), attachment.clone(), cookie.clone()]),
            GeneveCriticalOption,
        ),
        reject(
            "A gateway packet without options is dropped.",
            with_options(&[]),
            GeneveMissingOption,
        ),
        reject(
            "A gateway packet without the endpoint option is dropped.",
            with_options(&[attachment.clone(), cookie.clone()]),
            GeneveMissingOption,
        ),
        reject(
            "A gateway packet without the attachment option is dropped.",
            with_options(&[endpoint.clone(), cookie.clone()]),
            GeneveMissingOption,
        ),
        reject(
            "A gateway packet without the cookie option is dropped.",
            with_options(&[endpoint.clone(), attachment.clone()]),
            GeneveMissingOption,
        ),
        reject(
            "An endpoint option of four bytes is invalid.",
            with_options(&[option(0x0108, 1, &[1; 4]), attachment.clone(), cookie.clone()]),
            GeneveMissingOption,
        ),
        reject(
            "A cookie option of eight bytes is invalid.",
            with_options(&[endpoint.clone(), attachment.clone(), option(0x0108, 3, &[1; 8])]),
            GeneveMissingOption,
        ),
        reject(
            "Options of another class do not count as the gateway's.",
            with_options(&[
                option(0x0167, 1, &[1; 8]),
                option(0x0167, 2, &[2; 8]),
                option(0x0167, 3, &[3; 4]),
            ]),
            GeneveMissingOption,
        ),
    ]
}

fn inner_packets() -> Vec<Case> {
    let reject = |claim, frame, reason| reject(claim, aws_return(), frame, reason);
    let total = |len: u16| valid().set(INNER + 2, &len.to_be_bytes());
    vec![
        reject("An inner IP version of 9 is dropped.", valid().set(INNER, &[0x95]), InnerMalformed),
        reject("An inner length beyond the frame is dropped.", total(4_000), InnerMalformed),
        reject("An inner length shorter than its header is dropped.", total(12), InnerMalformed),
        reject(
            "A truncated inner TCP header is dropped.",
            from_gateway(1, crate::frames::raw(CLIENT_ADDRESS, "192.0.2.80", 6).payload(&[1; 7])),
            InnerMalformed,
        ),
        reject(
            "An EtherType of IPv6 before an IPv4 packet is dropped.",
            geneve(|g| g.claimed_protocol = Some(0x86dd)),
            InnerMalformed,
        ),
        reject(
            "A tunnel packet without an inner packet is dropped.",
            Frame::new(ROUTER, IN_MAC, udp(NODE, OUR_GENEVE).payload(&empty_geneve())),
            InnerMalformed,
        ),
    ]
}

const CLIENT_ADDRESS: &str = "198.51.100.7";

/// Builds a GENEVE header with the gateway's options and without an inner packet.
fn empty_geneve() -> Vec<u8> {
    let mut bytes = vec![8, 0, 8, 0, 0, 0, 0, 0];
    bytes.extend(aws_options(ENDPOINT, 0, 1));
    bytes
}

fn admission() -> Vec<Case> {
    let outer = |src: &str, dst: &str| inner().in_geneve(src, dst, aws_options(ENDPOINT, 0, 1));
    let external = from_external(inner());
    let vni = |vni| external.clone().with(|ip| ip.vxlan(|v| v.vni = vni));
    let azure = |claim, frame, reason| reject(claim, azure_return(), frame, reason);
    vec![
        reject(
            "A gateway packet from a source outside the gateway's sources is dropped.",
            aws_return(),
            from_router(outer("10.9.9.9:60001", OUR_GENEVE)),
            TunnelSource,
        ),
        reject(
            "A gateway packet for an address that is not the appliance's is dropped.",
            aws_return(),
            from_router(outer(NODE, "10.0.1.77:6081")),
            NotOurAddress,
        ),
        azure("A VNI of no tunnel is dropped.", vni(900), WrongVni),
        azure("A VNI on the other tunnel's port is dropped.", vni(800), WrongPort),
        azure(
            "A VXLAN header without the I flag is dropped.",
            external.clone().with(|ip| ip.vxlan(|v| v.flags = 0)),
            VxlanFlags,
        ),
        azure(
            "A VXLAN packet that ends in its inner Ethernet header is dropped.",
            from_router(udp(NODE, OUR_EXTERNAL).payload(&[8, 0, 0, 0, 0, 3, 0x21, 0, 1, 2, 3])),
            InnerMalformed,
        ),
        azure(
            "ARP in a VXLAN tunnel is dropped.",
            external.clone().set(14 + 20 + 8 + 8 + 12, &[0x08, 0x06]),
            TunnelProtocol,
        ),
        azure(
            "A VXLAN packet from a source outside the gateway's sources is dropped.",
            external.clone().with(|ip| ip.from("10.9.9.9:50000")),
            TunnelSource,
        ),
        reject(
            "A gateway packet for a service is dropped if its source is outside the gateway's \
             sources.",
            aws_nat(),
            from_router(syn().in_geneve("10.9.9.9:1", OUR_GENEVE, aws_options(ENDPOINT, 0, 1))),
            TunnelSource,
        ),
    ]
}

fn services() -> Vec<Case> {
    let drops = aws_return().named("aws, no_service = drop").gateway("no_service = \"drop\"");
    let mut empty = aws_nat().named("a service without backends");
    empty.services = service("web", "mode = \"nat\"", super::setups::WEB, "");
    let mut unknown = aws_nat().named("a backend with unknown MAC");
    unknown.neighbors.retain(|n| n.address != "10.0.2.11");
    let answer = tcp(BACKEND, "10.0.2.20:30000", flags::ACK);
    vec![
        reject(
            "With the gateway's no_service = drop a packet that matches no service is dropped.",
            drops,
            valid(),
            NoService,
        ),
        reject(
            "A packet for a service without backends is dropped for a separate reason.",
            empty,
            from_gateway(1, syn()),
            NoBackend,
        ),
        case(
            "An answer of no known flow is dropped for a separate reason.",
            aws_nat(),
            vec![arrives(EGRESS, from_backend(11, answer)).dropped(NoFlow)],
        ),
        reject(
            "A packet for a backend whose MAC address is not resolved is dropped for a separate \
             reason.",
            unknown,
            from_gateway(1, syn()),
            NoNeighbor,
        ),
        case(
            "A plain packet that matches no service is dropped for a separate reason.",
            plain_nat(),
            vec![arrives(INGRESS, from_router(inner())).dropped(NoMatchingService)],
        ),
        case(
            "Weir answers a ping of a frontend.",
            plain_nat(),
            vec![{
                let ping = echo_request("198.51.100.7:9", "203.0.113.10").payload(b"ping");
                let pong = echo_reply("203.0.113.10:9", "198.51.100.7").payload(b"ping");
                assert_eq!(end("203.0.113.10:9"), pong.src);
                arrives(INGRESS, from_router(ping)).leaves(INGRESS, to_router(pong), "reply")
            }],
        ),
    ]
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    [frames_and_ip(), geneve_headers(), geneve_options(), inner_packets(), admission(), services()]
        .into_iter()
        .flatten()
        .collect()
}
