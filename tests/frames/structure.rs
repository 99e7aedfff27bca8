//! What frames consist of: an IP packet, and what it carries, which may be another.

use std::net::SocketAddr;

/// A MAC address.
pub type Mac = [u8; 6];

/// A part of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// Where it begins in the datagram's payload, a multiple of 8.
    pub offset: usize,
    /// How much of it there is.
    pub len: usize,
    /// More follow.
    pub more: bool,
}

/// An IP packet. What a field does not say, the defaults say: TTL 64, DF, no options.
#[derive(Clone, Debug)]
pub struct Ip {
    /// Sender, with its port (0 where there are none; the identifier of an echo).
    pub src: SocketAddr,
    /// Receiver.
    pub dst: SocketAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// IPv6 flow label.
    pub label: u16,
    /// Identification, also of an IPv6 fragment.
    pub id: u32,
    /// IPv4: don't fragment.
    pub df: bool,
    /// IPv4 options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// IPv6 extension headers: number and bytes after the first (next header).
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// The part of it that this packet is.
    pub fragment: Option<Fragment>,
    /// What it carries.
    pub body: Body,
    /// Bytes behind the L4 header.
    pub payload: Vec<u8>,
    /// What becomes of the L4 checksum.
    pub sum: Sum,
    /// UDP length that the header claims, where it shall not be the true one.
    pub claimed_udp_len: Option<u16>,
}

/// What becomes of the L4 checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// Right.
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
    /// The options, padded to four bytes by whoever made them.
    pub options: Vec<u8>,
    /// Option length in words that the header claims, where it shall not be the true one.
    pub claimed_words: Option<u8>,
    /// EtherType that the header claims, where it shall not be the inner packet's.
    pub claimed_protocol: Option<u16>,
}

/// A VXLAN header (RFC 7348 5) and the inner Ethernet header.
#[derive(Clone, Debug)]
pub struct Vxlan {
    /// 0x08 has the I bit.
    pub flags: u8,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Inner receiver.
    pub to: Mac,
    /// Inner sender.
    pub from: Mac,
}

/// What an [`Ip`] carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// TCP with its options.
    Tcp {
        /// Sequence number.
        seq: u32,
        /// Acknowledgement number.
        ack: u32,
        /// [`flags`].
        flags: u8,
        /// Options, a multiple of four bytes.
        options: Vec<u8>,
    },
    /// UDP with a payload.
    Udp,
    /// ICMP or ICMPv6 echo; the identifier is the source port.
    Echo {
        /// A request, or else an answer.
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
        /// The packet that it is about.
        quote: Box<Ip>,
        /// How many bytes of it are quoted at most.
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
    /// Any other protocol: the payload is all there is.
    Raw(u8),
}
