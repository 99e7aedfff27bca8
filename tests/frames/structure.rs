//! The structure of frames: an IP packet and its contents, which may be another packet.

use std::net::SocketAddr;

/// A MAC address.
pub type Mac = [u8; 6];

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// The offset in the datagram's payload, a multiple of 8.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// More fragments follow.
    pub more: bool,
}

/// An IP packet. Defaults: TTL 64, DF, no options.
#[derive(Clone, Debug)]
pub struct Ip {
    /// Source address, with the port: 0 without ports, the identifier for an echo.
    pub src: SocketAddr,
    /// Destination address, with the port.
    pub dst: SocketAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// The lower 16 bits of the IPv6 flow label; the upper four are 0.
    pub label: u16,
    /// Identification, also of an IPv6 fragment.
    pub id: u32,
    /// IPv4: don't fragment.
    pub df: bool,
    /// IPv4 options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// IPv6 extension headers: protocol number, and the header's bytes after the first one (next
    /// header).
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// The part of the datagram that this packet contains, if the packet is a fragment.
    pub fragment: Option<Fragment>,
    /// The contents.
    pub body: Body,
    /// Bytes after the L4 header; not used by errors and tunnels, which contain a packet.
    pub payload: Vec<u8>,
    /// How the L4 checksum is written.
    pub sum: Sum,
    /// UDP length in the header, if it differs from the actual one.
    pub claimed_udp_len: Option<u16>,
}

/// How the L4 checksum is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// Correct.
    Full,
    /// Zero: not computed.
    Zero,
    /// Wrong by this much, in one's complement.
    Off(u16),
}

/// A GENEVE header (RFC 8926 3.4).
#[derive(Clone, Debug, Default)]
pub struct Geneve {
    /// Version, 0 to 3.
    pub version: u8,
    /// The O bit.
    pub control: bool,
    /// The C bit.
    pub critical: bool,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// The options, which the caller pads to four bytes.
    pub options: Vec<u8>,
    /// Option length in the header in words, if it differs from the actual one.
    pub claimed_words: Option<u8>,
    /// EtherType in the header, if it differs from the inner packet's.
    pub claimed_protocol: Option<u16>,
}

/// A VXLAN header (RFC 7348 5) and the inner Ethernet header.
#[derive(Clone, Debug)]
pub struct Vxlan {
    /// Flags: 0x08 is the I bit, which marks the VNI as valid.
    pub flags: u8,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Inner destination.
    pub to: Mac,
    /// Inner source.
    pub from: Mac,
}

/// The contents of an [`Ip`].
#[derive(Clone, Debug)]
pub enum Body {
    /// TCP with its options.
    Tcp {
        /// Sequence number.
        seq: u32,
        /// Acknowledgment number.
        ack: u32,
        /// Control bits, a combination of [`super::flags`].
        flags: u8,
        /// Options, a multiple of four bytes.
        options: Vec<u8>,
    },
    /// UDP without a tunnel; the data is [`Ip::payload`].
    Udp,
    /// ICMP or ICMPv6 echo; the identifier is the source port.
    Echo {
        /// A request rather than a reply.
        request: bool,
        /// Sequence number.
        seq: u16,
    },
    /// An ICMP or ICMPv6 error.
    Error {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// The second word: the MTU for too-big.
        rest: u32,
        /// The quoted packet.
        quote: Box<Ip>,
        /// The maximum number of quoted bytes.
        quoted: usize,
    },
    /// GENEVE in UDP.
    Geneve(Geneve, Box<Ip>),
    /// VXLAN in UDP.
    Vxlan(Vxlan, Box<Ip>),
    /// IP in IP: protocol 4 or 41.
    Ip(Box<Ip>),
    /// GUE variant 1: IP directly in UDP (draft-ietf-intarea-gue 4).
    Gue(Box<Ip>),
    /// Any other protocol, with the payload only.
    Raw(u8),
}
