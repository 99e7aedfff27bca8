//! Outer headers: writing them in front of an inner packet, and returning a tunnel packet in place.

use crate::addr::Addr;
use crate::checksum::{self, change16, change32, fold, ipv4_words, pseudo, udp_checksum, update};
use crate::ethernet::{self, IPV4, IPV6, Macs};
use crate::ip::{IPV4_IN_IP, IPV6_IN_IP, Ip, UDP};
use crate::window::{Short, Window};
use crate::{geneve, ipv6, vxlan};

/// The Ethernet type of an Ethernet frame inside GENEVE.
pub const ETHERNET_INSIDE: u16 = 0x6558;

/// The TTL of outer headers that Weir writes.
pub const OUTER_TTL: u8 = 64;

/// The maximum length in bytes of the headers of IPv4 in GENEVE over IPv4: Ethernet with a VLAN
/// tag, the longest outer header, UDP, GENEVE with all its options, the longest inner header, a TCP
/// header without options. They must lie in the first segment of a chained frame.
pub const LONGEST_HEADERS: usize = 18 + 60 + 8 + 8 + 252 + 60 + 20;

/// The length in bytes of the most frequently written headers: GENEVE over IPv4 with a gateway's
/// three options, without VLAN tag and inner Ethernet header.
pub const USUAL_LEN: usize = ethernet::HEADER + 20 + 8 + geneve::HEADER + geneve::OWN_OPTIONS;

/// Returns the outer UDP source port of a flow, from its hash: one of 49,152 to 65,535.
#[inline(always)]
pub const fn source_port(hash: u64) -> u16 {
    SOURCE_PORTS | (hash >> 48) as u16 & !SOURCE_PORTS
}

/// Returns true if [`source_port`] yields this port for some flow.
#[inline(always)]
pub(crate) const fn is_source_port(port: u16) -> bool {
    port & SOURCE_PORTS == SOURCE_PORTS
}

/// The first outer UDP source port; its bits are set in all of them.
const SOURCE_PORTS: u16 = 0xc000;

/// The encapsulation of a tunnel.
// Table records store the number; configuration and objects contain the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
#[repr(u8)]
pub enum TunnelKind {
    /// GENEVE (RFC 8926), by default UDP port 6081.
    Geneve = 1,
    /// VXLAN (RFC 7348), by default UDP port 4789.
    Vxlan = 2,
    /// IP in IP, in the four combinations of families (RFC 2003, 2473, 4213), without ports.
    Ipip = 3,
    /// Generic UDP encapsulation, variant 1 (IP directly in UDP), by default UDP port 6080.
    Gue = 4,
}

impl TunnelKind {
    /// Returns the kind that a record's number stands for, or `None` for 0 and unknown numbers.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> Option<TunnelKind> {
        match n {
            1 => Some(TunnelKind::Geneve),
            2 => Some(TunnelKind::Vxlan),
            3 => Some(TunnelKind::Ipip),
            4 => Some(TunnelKind::Gue),
            _ => None,
        }
    }

    /// Returns the name that the configuration, objects and commands use.
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::Geneve => "geneve",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Ipip => "ipip",
            TunnelKind::Gue => "gue",
        }
    }
}

/// The outer headers to write in front of an inner packet.
#[derive(Clone, Copy, Debug)]
pub struct Outer<'a> {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// MAC addresses of the next hop and of the sending port.
    pub macs: Macs,
    /// VLAN tag control field, host order; 0 for no tag.
    pub vlan: u16,
    /// Outer source address; its family is that of the outer header.
    pub src: Addr,
    /// Outer destination address, of the same family.
    pub dst: Addr,
    /// UDP source port, host order; for IPIP it is used only as the IPv6 flow label.
    pub sport: u16,
    /// UDP destination port, host order; unused for IPIP.
    pub dport: u16,
    /// Network identifier, 24 bits (GENEVE, VXLAN).
    pub vni: u32,
    /// GENEVE options in wire format: whole words, at most 252 bytes.
    pub options: &'a [u8],
    /// Whether the inner packet is IPv6.
    pub inner_v6: bool,
    /// MAC addresses of the inner Ethernet header. VXLAN always has this header (with the outer MAC
    /// addresses if `None`), GENEVE only if they are given, and the other kinds never.
    pub inner_eth: Option<Macs>,
    /// Outer DSCP and ECN: those of the inner packet (RFC 6040 §4.1, normal mode).
    pub tos: u8,
    /// Outer TTL or hop limit.
    pub ttl: u8,
    /// Outer IPv4 "don't fragment" flag; IPv6 implies it.
    pub df: bool,
    /// Whether to fill in the UDP checksum. If not, it is 0, which is permitted over IPv6 as well
    /// (RFC 6935).
    pub checksum: bool,
}

impl Outer<'_> {
    #[inline(always)]
    fn v6(&self) -> bool {
        !self.dst.is_v4()
    }

    /// Returns true if these headers have the layout of [`USUAL_LEN`] bytes.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        self.kind == TunnelKind::Geneve
            && !self.v6()
            && self.vlan == 0
            && self.inner_eth.is_none()
            && self.options.len() == geneve::OWN_OPTIONS
    }

    #[inline(always)]
    fn inner_type(&self) -> u16 {
        if self.inner_v6 { IPV6 } else { IPV4 }
    }

    /// Returns the number of bytes between the outer IP header and the inner packet.
    #[inline(always)]
    fn tunnel_len(&self) -> usize {
        // Two short matches instead of one long one avoid a jump table.
        let fixed = match self.kind {
            TunnelKind::Geneve => 8 + geneve::HEADER,
            TunnelKind::Vxlan => 8 + vxlan::HEADER + ethernet::HEADER,
            TunnelKind::Gue => 8,
            TunnelKind::Ipip => 0,
        };
        let framed = if self.inner_eth.is_some() { ethernet::HEADER } else { 0 };
        let more = (self.options.len() & 0xfc) + framed;
        fixed + if self.kind == TunnelKind::Geneve { more } else { 0 }
    }
}

/// Returns the number of bytes that [`write_outer`] writes.
#[inline(always)]
pub fn outer_len(outer: &Outer<'_>) -> usize {
    let ip = if outer.v6() { 40 } else { 20 };
    ethernet::header_len(outer.vlan) + ip + outer.tunnel_len()
}

/// Writes the outer headers at the start of the window. The inner packet has `inner_len` bytes and
/// begins [`outer_len`] bytes after the start. Returns [`Short`] also if more than 65,515 bytes
/// follow the outer IP header.
#[inline(always)]
pub fn write_outer(w: &mut Window<'_>, o: &Outer<'_>, inner_len: usize) -> Result<(), Short> {
    let id = if o.df { 0 } else { datagram_id(w, outer_len(o), o.inner_v6) };
    write_outer_as(w, o, inner_len, id)
}

/// Like [`write_outer`], but the inner packet may lie outside the window. `id` is the
/// [`datagram_id`] of the inner packet; it is used if the outer packet may be fragmented.
#[inline(always)]
pub fn write_outer_as(
    w: &mut Window<'_>,
    o: &Outer<'_>,
    inner_len: usize,
    id: u16,
) -> Result<(), Short> {
    // A gateway's headers are by far the most frequent. For them, the compiler generates a copy of
    // `write_front` with constant offsets.
    if o.is_usual() && cfg!(not(target_arch = "bpf")) {
        w.holds(0, USUAL_LEN)?;
        return write_front(w, o, inner_len, id);
    }
    write_front(w, o, inner_len, id)
}

#[inline(always)]
fn write_front(w: &mut Window<'_>, o: &Outer<'_>, inner_len: usize, id: u16) -> Result<(), Short> {
    let v6 = o.v6();
    let l3 = ethernet::header_len(o.vlan);
    let l4 = l3 + if v6 { 40 } else { 20 };
    let inner = l4 + o.tunnel_len();
    let payload = inner - l4 + inner_len;
    if payload > 65_515 {
        return Err(Short);
    }
    ethernet::write(w, &o.macs, o.vlan, if v6 { IPV6 } else { IPV4 })?;
    let proto = match (o.kind, o.inner_v6) {
        (TunnelKind::Ipip, false) => IPV4_IN_IP,
        (TunnelKind::Ipip, true) => IPV6_IN_IP,
        _ => UDP,
    };
    if v6 {
        write_ipv6(w, l3, o, proto, payload as u16)?;
    } else {
        let id = if o.df { 0 } else { id };
        let second = u32::from(id) << 16 | if o.df { 0x4000 } else { 0 };
        let len = u32::from(payload as u16 + 20);
        w.store(l3, ipv4_words(o.tos, len, second, (o.ttl, proto), &o.src, &o.dst))?;
    }
    if o.kind == TunnelKind::Ipip {
        return Ok(());
    }
    let ports = (u32::from(o.sport) << 16 | u32::from(o.dport)).to_be();
    w.store(l4, [ports, ((payload as u32) << 16).to_be()])?;
    let mut at = l4 + 8;
    match o.kind {
        TunnelKind::Geneve => {
            let len = o.options.len() & 0xfc;
            let protocol = if o.inner_eth.is_some() { ETHERNET_INSIDE } else { o.inner_type() };
            geneve::write(w, at, o.vni, protocol, len)?;
            if let Some(options) = o.options.get(..len) {
                w.put(at + geneve::HEADER, options)?;
            }
            at += geneve::HEADER + len;
            if let Some(macs) = &o.inner_eth {
                ethernet::write_at(w, at, macs, 0, o.inner_type())?;
            }
        }
        TunnelKind::Vxlan => {
            vxlan::write(w, at, o.vni)?;
            let macs = o.inner_eth.unwrap_or(o.macs);
            ethernet::write_at(w, at + vxlan::HEADER, &macs, 0, o.inner_type())?;
        }
        TunnelKind::Gue | TunnelKind::Ipip => {}
    }
    if o.checksum {
        // Passed by value: a reference would force all of `o` into memory.
        outer_checksum(w, o.inner_type(), (o.src, o.dst), l4, inner, payload)?;
    }
    Ok(())
}

#[inline(always)]
fn write_ipv6(
    w: &mut Window<'_>,
    at: usize,
    o: &Outer<'_>,
    proto: u8,
    payload: u16,
) -> Result<(), Short> {
    // The flow label distributes the tunnel's flows, as the source port does (RFC 6438).
    let label = u32::from(o.sport);
    let first = 0x6000_0000 | u32::from(o.tos) << 20 | label;
    let second = u32::from(payload) << 16 | u32::from(proto) << 8 | u32::from(o.ttl);
    w.store(at, ipv6::words(first, second, &o.src, &o.dst))
}

/// Returns an identification for an outer datagram that may be fragmented. This crate keeps no
/// counter, so the identification is derived from fields in which packets of one flow differ (IPv4
/// identification, TCP sequence number).
#[inline(always)]
pub fn datagram_id(w: &Window<'_>, inner: usize, inner_v6: bool) -> u16 {
    // A narrow read: a wider one would stall on the TTL, which was just written beside it.
    let header = u64::from(w.load::<u16>(inner + 4).unwrap_or(0));
    let upper: u64 = w.load(inner + if inner_v6 { 40 } else { 20 }).unwrap_or(0);
    let mixed = (header ^ upper.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as u16
}

/// Fills in the checksum of the UDP header at `l4`, derived from the inner packet's checksums. The
/// field stays 0 if the inner packet cannot be parsed, or if it has no checksum of its own and
/// continues in another segment.
fn outer_checksum(
    w: &mut Window<'_>,
    inner_type: u16,
    (src, dst): (Addr, Addr),
    l4: usize,
    inner: usize,
    len: usize,
) -> Result<(), Short> {
    let Ok(ip) = Ip::parse(w, inner as u16, inner_type) else { return Ok(()) };
    let Ok(packet) = checksum::of_packet(w, &ip) else { return Ok(()) };
    let ends = pseudo(&src, &dst, !dst.is_v4(), UDP, len as u32);
    let sum = packet + w.sum(l4, inner - l4)? + ends;
    w.store(l4 + 6, udp_checksum(!fold(sum)))
}

/// Turns a received frame into one that returns through the same tunnel: swaps MAC addresses and
/// outer addresses, and leaves all other bytes, ports included, unchanged. A swap changes no
/// checksum.
#[inline(always)]
pub fn return_in_place(w: &mut Window<'_>, outer: &Ip) -> Result<(), Short> {
    ethernet::swap(w)?;
    swap_addresses(w, outer)
}

/// Swaps source and destination address.
#[inline(always)]
pub(crate) fn swap_addresses(w: &mut Window<'_>, ip: &Ip) -> Result<(), Short> {
    let at = usize::from(ip.at);
    if ip.v6 {
        w.store(at + 8, ip.dst)?;
        w.store(at + 24, ip.src)
    } else {
        w.store(at + 12, [ip.dst.words[3], ip.src.words[3]])
    }
}

/// Like [`return_in_place`], but to the other VXLAN tunnel of the same gateway, with its UDP port
/// and VNI. The source port and the inner frame with its MAC addresses stay unchanged.
#[inline(always)]
pub fn cross_in_place(w: &mut Window<'_>, outer: &Ip, port: u16, vni: u32) -> Result<(), Short> {
    return_in_place(w, outer)?;
    let l4 = usize::from(outer.l4);
    let old: u16 = w.load(l4 + 2)?;
    w.set_be16(l4 + 2, port)?;
    let mut change = change16(old, port.to_be());
    let old: u32 = w.load(l4 + 12)?;
    let new = (vni << 8 | u32::from_be(old) & 0xff).to_be();
    w.store(l4 + 12, new)?;
    change += change32(old, new);
    let sum: u16 = w.load(l4 + 6)?;
    if sum != 0 {
        w.store(l4 + 6, udp_checksum(update(sum, change)))?;
    }
    Ok(())
}

// The ECN codepoints (RFC 3168 §5).
const NOT_ECT: u8 = 0;
const ECT1: u8 = 1;
const ECT0: u8 = 2;
const CE: u8 = 3;

/// Returns the inner DSCP and ECN after decapsulation (RFC 6040 §4.2, figure 4), or `None` if the
/// packet must be dropped, since its endpoints would not notice the congestion.
#[inline(always)]
pub const fn ecn_decap(outer_tos: u8, inner_tos: u8) -> Option<u8> {
    match (outer_tos & 3, inner_tos & 3) {
        (CE, NOT_ECT) => None,
        (CE, _) => Some(inner_tos | CE),
        (ECT1, ECT0) => Some(inner_tos & 0xfc | ECT1),
        _ => Some(inner_tos),
    }
}

/// Sets the length fields of IP and UDP so that the packet ends at `end`, and updates the IPv4
/// checksum. Returns the offset of the UDP header, if any; its checksum is left to the caller.
#[inline(always)]
pub fn set_length_fields(w: &mut Window<'_>, ip: &Ip, end: usize) -> Result<Option<usize>, Short> {
    let at = usize::from(ip.at);
    let field = if ip.v6 { at + 4 } else { at + 2 };
    let counted_from = if ip.v6 { at + 40 } else { at };
    let (old, new): (u16, u16) = (w.load(field)?, ((end - counted_from) as u16).to_be());
    w.store(field, new)?;
    if !ip.v6 {
        let sum: u16 = w.load(at + 10)?;
        w.store(at + 10, checksum::update16(sum, old, new))?;
    }
    if ip.proto != UDP {
        return Ok(None);
    }
    let udp = usize::from(ip.l4);
    w.set_be16(udp + 4, (end - udp) as u16)?;
    Ok(Some(udp))
}

/// Checks for any accepted packet that the headers written in front of it parse as intended.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    use crate::checksum::{ipv4_header_ok, l4_full};
    const HEADROOM: usize = 400;
    for (kind, ethertype) in [
        (TunnelKind::Geneve, IPV4),
        (TunnelKind::Vxlan, IPV6),
        (TunnelKind::Gue, IPV4),
        (TunnelKind::Ipip, IPV6),
    ] {
        let Ok(inner) = Ip::parse(&Window::new(bytes), 0, ethertype) else { continue };
        let outer = Outer {
            kind,
            macs: Macs::new([4; 6], [2; 6]),
            vlan: u16::from(inner.tos & 1),
            src: inner.src,
            dst: inner.dst,
            sport: inner.sport,
            dport: 6081,
            vni: 0x00ab_cdef,
            options: &[0, 1, 2, 0, 0, 1, 3, 0][..usize::from(inner.tos & 4)],
            inner_v6: inner.v6,
            inner_eth: Some(Macs::new([6; 6], [8; 6])),
            tos: inner.tos,
            ttl: 64,
            df: inner.df,
            checksum: true,
        };
        let front = outer_len(&outer);
        let mut frame = std::vec![0; HEADROOM];
        frame.extend_from_slice(&bytes[..usize::from(inner.end)]);
        let mut w = Window::new(&mut frame[HEADROOM - front..]);
        if write_outer(&mut w, &outer, usize::from(inner.len())).is_err() {
            continue; // The outer packet would exceed 65,535 bytes.
        }
        let eth = ethernet::Ethernet::parse(&w).expect("a frame begins with Ethernet");
        let ip = Ip::parse(&w, eth.l3, eth.ethertype).expect("the outer header is an IP packet");
        assert_eq!((ip.src, ip.dst, usize::from(ip.end)), (outer.src, outer.dst, w.len()));
        assert!(ip.v6 || ipv4_header_ok(&w, &ip));
        // The outer checksum is correct only if the inner ones are, so only its presence is
        // checked.
        assert!(kind == TunnelKind::Ipip || w.be16(usize::from(ip.l4) + 6) != Ok(0));
        assert!(kind == TunnelKind::Ipip || l4_full(&w, &ip).is_ok());
    }
}

#[cfg(test)]
mod tests;
