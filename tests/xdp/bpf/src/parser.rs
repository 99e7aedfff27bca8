//! Parses the outer and inner headers of a packet from a GENEVE gateway and computes its flow key,
//! without tables. Compiled for the kernel and for the host, so that tests can compare the two.

use packet::checksum::ipv4_header_ok;
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, HashKey};
use packet::geneve;
use packet::ip::{Fragment, Ip, L4, UDP};
use packet::parsed::Malformed;
use packet::window::Window;

/// GENEVE's port (RFC 8926 3.3).
const PORT: u16 = 6081;

/// The packet has a flow key.
pub const PARSED: u32 = 0;
/// The outer headers are malformed.
pub const OUTER: u32 = 1;
/// The outer header's checksum is wrong.
pub const CHECKSUM: u32 = 2;
/// The packet is not in a GENEVE tunnel.
pub const PLAIN: u32 = 3;
/// The GENEVE header or its options are malformed.
pub const TUNNEL: u32 = 4;
/// The inner packet is malformed.
pub const INNER: u32 = 5;

/// The result, in a representation that is the same in the kernel and on the host.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The flow's hash.
    pub hash: u64,
    /// Endpoint, attachment and cookie of the gateway's options.
    pub options: [u64; 3],
    /// [`PARSED`] or another outcome; the other fields are valid only with [`PARSED`].
    pub outcome: u32,
    /// The options that are present, and 0x80 for an unknown critical one.
    pub present: u32,
    /// Header fields of the outermost and the inner IP packet, without addresses.
    pub packets: [[u32; 6]; 2],
    /// The flow's key.
    pub key: FlowKey,
    /// Padding, zero.
    pub pad: u32,
}

impl Report {
    /// Creates the report of `found` and `outcome`.
    #[inline(always)]
    pub fn of(found: &ParsedPacket, outcome: u32) -> Report {
        let options = [found.endpoint, found.attachment, u64::from(found.cookie)];
        let packets = [header_fields(&found.outer), header_fields(&found.inner)];
        let (hash, key, present) = (found.hash, found.key, found.options);
        Report { hash, options, outcome, present, packets, key, pad: 0 }
    }
}

/// Returns a header's fields except its addresses; those of the inner packet are in the flow's key.
#[inline(always)]
fn header_fields(ip: &Ip) -> [u32; 6] {
    let kind = match ip.kind {
        L4::Tcp { flags } => 0x100 | u32::from(flags),
        L4::Udp => 0x200,
        L4::IcmpEcho { request } => 0x300 | u32::from(request),
        L4::IcmpError => 0x400,
        L4::Other => 0x500,
        L4::None => 0x600,
    };
    let bits = u32::from(ip.v6) | u32::from(ip.df) << 1 | (ip.fragment as u32) << 2;
    [
        u32::from(ip.at) << 16 | u32::from(ip.l4),
        u32::from(ip.end) << 16 | bits,
        u32::from(ip.sport) << 16 | u32::from(ip.dport),
        u32::from(ip.proto) << 16 | u32::from(ip.tos) << 8 | u32::from(ip.ttl),
        kind,
        ip.fragment_id,
    ]
}

/// The state of a packet, which the stages fill in one after the other.
#[derive(Clone, Copy, Debug)]
pub struct ParsedPacket {
    /// The flow's hash.
    pub hash: u64,
    /// Endpoint of the gateway's options.
    pub endpoint: u64,
    /// Attachment of the gateway's options.
    pub attachment: u64,
    /// The flow's key.
    pub key: FlowKey,
    /// Flow cookie of the gateway's options.
    pub cookie: u32,
    /// The options that are present, and 0x80 for an unknown critical one.
    pub options: u32,
    /// The outermost IP packet.
    pub outer: Ip,
    /// The inner IP packet.
    pub inner: Ip,
    /// The offset of the inner packet.
    pub inner_at: u16,
    /// The EtherType of the inner packet.
    pub inner_type: u16,
}

/// First stage: parses the outer headers.
#[inline(always)]
pub fn outer(w: &Window<'_>, to: &mut ParsedPacket) -> u32 {
    let Ok(eth) = Ethernet::parse(w) else { return OUTER };
    match to.outer.read(w, eth.l3, eth.ethertype) {
        Err(Malformed::NotIp) => PLAIN,
        Err(_) => OUTER,
        Ok(()) if !to.outer.v6 && !ipv4_header_ok(w, &to.outer) => CHECKSUM,
        Ok(()) => PARSED,
    }
}

/// Second stage: parses the tunnel if it has exactly AWS's three options in their usual order;
/// `None` means that [`tunnel`] has to parse it.
#[inline(always)]
pub fn usual_tunnel(w: &Window<'_>, to: &mut ParsedPacket) -> Option<u32> {
    let found = &to.outer;
    if found.proto != UDP || found.fragment != Fragment::Whole || found.dport != PORT {
        return Some(PLAIN);
    }
    let header = found.l4 + 8;
    let Ok(geneve) = geneve::parse(w, header) else { return Some(TUNNEL) };
    (to.inner_at, to.inner_type) = (geneve.payload, geneve.protocol);
    let options = geneve::usual_options(w, header + 8, geneve.opt_len, geneve::CLASS_AWS)?;
    store_options(to, &options);
    Some(PARSED)
}

/// Second stage, for any options; called after [`usual_tunnel`] has set the inner packet's offset.
#[inline(always)]
pub fn tunnel(w: &Window<'_>, to: &mut ParsedPacket) -> u32 {
    let at = to.outer.l4 + 8 + 8;
    let opt_len = (to.inner_at - at) as u8;
    let Ok(options) = geneve::any_options(w, at, opt_len, geneve::CLASS_AWS) else { return TUNNEL };
    store_options(to, &options);
    PARSED
}

#[inline(always)]
fn store_options(to: &mut ParsedPacket, options: &geneve::GatewayOptions) {
    to.endpoint = options.endpoint;
    to.attachment = options.attachment;
    to.cookie = options.cookie;
    to.options = u32::from(options.present) | u32::from(options.unknown_critical) << 7;
}

/// Third stage: parses the inner packet.
#[inline(always)]
pub fn inner(w: &Window<'_>, to: &mut ParsedPacket) -> u32 {
    match to.inner.read(w, to.inner_at, to.inner_type) {
        Ok(()) => PARSED,
        Err(_) => INNER,
    }
}

/// Last stage: computes the flow key.
#[inline(always)]
pub fn classify(to: &mut ParsedPacket, hash_key: &HashKey) {
    let inner = &to.inner;
    let (key, _) = FlowKey::new(1, inner.proto, inner.src, inner.sport, inner.dst, inner.dport);
    to.hash = key.hash(hash_key);
    to.key = key;
}
