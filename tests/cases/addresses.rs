//! The cases' addresses: MACs, IP addresses, and common packets.

use crate::frames::{Frame, Ip, Mac, aws_options, flags, tcp};
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;

/// The arm towards gateways and clients.
pub const INGRESS: u8 = 0;
/// The arm towards the backends.
pub const EGRESS: u8 = 1;

/// Weir's MAC on the ingress arm.
pub const IN_MAC: Mac = [2, 0, 0, 0, 0, 1];
/// Weir's MAC on the egress arm.
pub const OUT_MAC: Mac = [2, 0, 0, 0, 0, 2];
/// The router on the ingress link. It forwards the packets of the gateway, and of clients that send
/// without a tunnel (plain clients).
pub const ROUTER: Mac = [2, 0, 0, 0, 1, 1];
/// The router on the egress side.
pub const EGRESS_ROUTER: Mac = [2, 0, 0, 0, 2, 1];
/// Another host on the ingress link.
pub const FOREIGN_MAC: Mac = [2, 0, 0, 0, 9, 9];

/// Returns the MAC of host n on the egress link: 11 and above are backends, 1 is [`EGRESS_ROUTER`].
pub const fn backend_mac(n: u8) -> Mac {
    [2, 0, 0, 0, 2, n]
}

/// Weir's IPv4 address on ingress.
pub const OUR_IN: &str = "10.0.1.10";
/// The source address of packets that NAT44 and NAT64 send to backends.
pub const OUR_NAT: &str = "10.0.2.20";
/// The source address of packets that NAT66 and NAT46 send to backends.
pub const OUR_NAT6: &str = "fd00:2::20";
/// Weir's IPv4 address on egress.
pub const OUR_OUT: &str = "10.0.2.10";
/// Weir's IPv6 address on ingress.
pub const OUR_IN6: &str = "fd00:1::10";
/// Weir's IPv6 address on egress.
pub const OUR_OUT6: &str = "fd00:2::10";

/// A gateway node, and the UDP source port of a flow. The Azure gateway uses the same address.
pub const NODE: &str = "10.0.1.100:60001";
/// Another node of the AWS gateway, and the source port of another flow.
pub const OTHER_NODE: &str = "10.0.1.101:60777";
/// The destination of the AWS gateway's tunnel.
pub const OUR_GENEVE: &str = "10.0.1.10:6081";
/// The destination of the Azure gateway's external tunnel.
pub const OUR_EXTERNAL: &str = "10.0.1.10:10801";
/// The destination of the Azure gateway's internal tunnel.
pub const OUR_INTERNAL: &str = "10.0.1.10:10800";

/// A client on the internet.
pub const CLIENT: &str = "198.51.100.7:40000";
/// An IPv6 client.
pub const CLIENT6: &str = "[2001:db8:c::7]:40000";
/// The IPv4 frontend of service "web".
pub const FRONTEND: &str = "203.0.113.10:80";
/// The IPv6 frontend of service "web6" ("web64" with translation).
pub const FRONTEND6: &str = "[2001:db8:f::10]:80";
/// An address without a frontend.
pub const ELSEWHERE: &str = "192.0.2.80:443";
/// An IPv6 address without a frontend.
pub const ELSEWHERE6: &str = "[2001:db8:e::80]:443";
/// The IPv4 address and port of backend 11.
pub const BACKEND: &str = "10.0.2.11:8080";
/// The IPv6 address and port of backend 11.
pub const BACKEND6: &str = "[fd00:2::11]:8080";

/// The identifier of an AWS gateway endpoint (GENEVE option type 1).
pub const ENDPOINT: u64 = 0x0a1b_2c3d_4e5f_6071;
/// The identifier of another gateway endpoint.
pub const OTHER_ENDPOINT: u64 = 0x0f0e_0d0c_0b0a_0908;

/// The inner source MAC of frames from the Azure gateway.
pub const AZURE_FROM: Mac = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc];
/// The inner destination MAC of frames from the Azure gateway.
pub const AZURE_TO: Mac = [0x00, 0x0d, 0x3a, 0x01, 0x02, 0x03];

/// A 16-bit number that stands in expected frames for a value that the plane chooses.
#[derive(Clone, Debug)]
pub struct Placeholder {
    /// The number in the case.
    pub value: u16,
    /// The values that the plane may choose.
    pub range: RangeInclusive<u16>,
    /// A description of the value.
    pub what: &'static str,
    /// Whether all frames of a case have the same value; otherwise each frame may have another.
    pub lasting: bool,
}

/// The first NAT port of a case.
pub const NAT_1: u16 = 0xff01;
/// The second NAT port of a case.
pub const NAT_2: u16 = 0xff02;
/// An outer UDP source port or an IPv6 flow label, derived from a flow's hash.
pub const HASH_1: u16 = 0xfe01;
/// The same of a second flow.
pub const HASH_2: u16 = 0xfe02;

/// The upper half of a GENEVE flow cookie that Weir chooses.
pub const COOKIE_HIGH: u16 = 0xfd01;
/// The lower half of that cookie.
pub const COOKIE_LOW: u16 = 0xfd02;
/// The tag by which Weir recognizes the GENEVE options that it sends to a backend.
pub const TAG_1: u16 = 0xfb01;
/// The tag of a second flow.
pub const TAG_2: u16 = 0xfb02;
/// A tag of any value: Weir reads it only if an answer's flow is in no table.
pub const ANY_TAG: u16 = 0xfb0f;

/// The identification of an outer IPv4 header without DF: any value, another one in each packet.
pub const ANY_ID: u16 = 0xfc01;

/// The identification of a packet translated to IPv4 without DF: any value, as [`ANY_ID`].
pub const INNER_ID: u16 = 0xfc02;

/// All placeholders. The range of NAT ports is `nat.ports` of most setups. Ports from a hash are in
/// the dynamic port range, as RFC 7348 5 recommends.
pub const PLACEHOLDERS: &[Placeholder] = &[
    Placeholder { value: NAT_1, range: 1024..=32_767, what: "the NAT port", lasting: true },
    Placeholder { value: NAT_2, range: 1024..=32_767, what: "the second NAT port", lasting: true },
    Placeholder {
        value: HASH_1,
        range: 49_152..=65_535,
        what: "the outer source port",
        lasting: true,
    },
    Placeholder {
        value: HASH_2,
        range: 49_152..=65_535,
        what: "the second outer source port",
        lasting: true,
    },
    Placeholder {
        value: COOKIE_HIGH,
        range: 0..=65_535,
        what: "the cookie's upper half",
        lasting: true,
    },
    Placeholder {
        value: COOKIE_LOW,
        range: 0..=65_535,
        what: "the cookie's lower half",
        lasting: true,
    },
    Placeholder { value: TAG_1, range: 0..=65_535, what: "the tag", lasting: true },
    Placeholder { value: TAG_2, range: 0..=65_535, what: "the second tag", lasting: true },
    Placeholder { value: ANY_TAG, range: 0..=65_535, what: "a tag", lasting: false },
    Placeholder { value: ANY_ID, range: 0..=65_535, what: "the identification", lasting: false },
    Placeholder {
        value: INNER_ID,
        range: 0..=65_535,
        what: "the translated packet's identification",
        lasting: false,
    },
];

/// Returns the options that Weir sends to a GENEVE backend for a packet that did not arrive with
/// exactly the three options of an AWS gateway. They are the endpoint, an attachment (the mark
/// 0x57454952, "WEIR", and the gateway's number, here 0), and a cookie derived from the flow's
/// hash.
pub fn own_options(endpoint: u64) -> Vec<u8> {
    let cookie = u32::from(COOKIE_HIGH) << 16 | u32::from(COOKIE_LOW);
    aws_options(endpoint, 0x5745_4952 << 32, cookie)
}

/// Returns the options that Weir sends to a GENEVE backend for a packet that arrived from the AWS
/// gateway (number 0) through this node with this cookie.
pub fn origin_options(endpoint: u64, node: &str, cookie: u32, tag: u16) -> Vec<u8> {
    aws_options(endpoint, origin_attachment(node, tag), cookie)
}

/// Returns the attachment of [`origin_options`]: the tag, the XOR of the 16-bit words of the
/// node's IPv4-mapped address, its port, and the gateway's number (0), 16 bits each.
pub fn origin_attachment(node: &str, tag: u16) -> u64 {
    let node: SocketAddrV4 = node.parse().expect("an IPv4 address and a port");
    let [a, b, c, d] = node.ip().octets();
    let digest = u16::from_be_bytes([a, b]) ^ u16::from_be_bytes([c, d]) ^ 0xffff;
    u64::from(tag) << 48 | u64::from(digest) << 32 | u64::from(node.port()) << 16
}

/// Returns the gateway's packet from a node, with the cookie of its flow.
pub fn from_node(node: &str, endpoint: u64, cookie: u32, inner: Ip) -> Frame {
    Frame::new(ROUTER, IN_MAC, inner.in_geneve(node, OUR_GENEVE, aws_options(endpoint, 0, cookie)))
}

/// Returns the gateway's packet from its usual node and endpoint.
pub fn from_gateway(cookie: u32, inner: Ip) -> Frame {
    from_node(NODE, ENDPOINT, cookie, inner)
}

/// Returns the frame in which Weir sends a backend's answer to a gateway node. It has the options
/// and ports of the node's latest packet, swapped addresses, and an outer header of Weir (TTL 64,
/// DF not set).
pub fn to_node(node: &str, endpoint: u64, cookie: u32, inner: Ip) -> Frame {
    let frame = from_node(node, endpoint, cookie, inner).sent_back();
    frame.with(|ip| ip.may_fragment().id(u32::from(ANY_ID)))
}

/// Returns Weir's frame to the gateway's usual node, with its usual endpoint.
pub fn to_gateway(cookie: u32, inner: Ip) -> Frame {
    to_node(NODE, ENDPOINT, cookie, inner)
}

/// Returns an Azure gateway's packet through its external tunnel.
pub fn from_external(inner: Ip) -> Frame {
    let outer = inner.in_vxlan(NODE, OUR_EXTERNAL, 801, AZURE_FROM, AZURE_TO);
    Frame::new(ROUTER, IN_MAC, outer)
}

/// Returns an Azure gateway's packet through its internal tunnel.
pub fn from_internal(inner: Ip) -> Frame {
    let outer = inner.in_vxlan(NODE, OUR_INTERNAL, 800, AZURE_FROM, AZURE_TO);
    Frame::new(ROUTER, IN_MAC, outer)
}

/// Returns Weir's frame to host n on the egress link.
pub fn to_backend(n: u8, ip: Ip) -> Frame {
    Frame::new(OUT_MAC, backend_mac(n), ip)
}

/// Returns the frame of host n on the egress link to Weir.
pub fn from_backend(n: u8, ip: Ip) -> Frame {
    Frame::new(backend_mac(n), OUT_MAC, ip)
}

/// Returns a plain packet from a router at the ingress arm.
pub fn from_router(ip: Ip) -> Frame {
    Frame::new(ROUTER, IN_MAC, ip)
}

/// Returns Weir's frame to the router at the ingress arm.
pub fn to_router(ip: Ip) -> Frame {
    Frame::new(IN_MAC, ROUTER, ip)
}

/// Builds the SYN of [`CLIENT`] to [`FRONTEND`].
pub fn syn() -> Ip {
    tcp(CLIENT, FRONTEND, flags::SYN).numbers(7_000, 0).mss(1460)
}

/// Builds the client's request in the connection that [`syn`] opens.
pub fn request() -> Ip {
    tcp(CLIENT, FRONTEND, flags::PSH | flags::ACK)
        .numbers(7_001, 9_001)
        .payload(b"GET / HTTP/1.1\r\n")
}

/// Builds the frontend's SYN-ACK to [`syn`].
pub fn syn_ack() -> Ip {
    tcp(FRONTEND, CLIENT, flags::SYN | flags::ACK).numbers(9_000, 7_001).mss(1400)
}

/// Builds the frontend's response to [`request`].
pub fn response() -> Ip {
    tcp(FRONTEND, CLIENT, flags::PSH | flags::ACK)
        .numbers(9_001, 7_017)
        .payload(b"HTTP/1.1 200 OK\r\n")
}
