//! What stands in front of an inner packet: writing it, and turning it around in place.

use crate::addr::Addr;
use crate::checksum::{self, change16, change32, fold, ipv4_words, pseudo, udp, update};
use crate::ethernet::{self, IPV4, IPV6, Macs};
use crate::ip::{IPV4_IN_IP, IPV6_IN_IP, Ip, UDP};
use crate::window::{Short, Window};
use crate::{geneve, ipv6, vxlan};

/// Ethernet type of an Ethernet frame inside GENEVE.
pub const ETHERNET_INSIDE: u16 = 0x6558;

/// TTL of the outer headers that we write.
pub const OUTER_TTL: u8 = 64;

/// Bytes of the longest headers that are looked at: Ethernet, VLAN, the longest outer IPv4 header,
/// UDP, GENEVE with all its options, the longest inner header, TCP's ports and flags. They must lie
/// in the first segment of a chained frame.
pub const LONGEST_HEADERS: usize = 18 + 60 + 8 + 8 + 252 + 60 + 20;

/// Bytes of the headers that are written by far most often: GENEVE over IPv4 with the three options
/// of a gateway, no tag and no inner Ethernet header.
pub const USUAL_LEN: usize = ethernet::HEADER + 20 + 8 + geneve::HEADER + geneve::OWN_OPTIONS;

/// The outer UDP source port of a flow, by its hash: in the upper quarter, as ephemeral ports look.
#[inline(always)]
pub const fn source_port(hash: u64) -> u16 {
    SOURCE_PORTS | (hash >> 48) as u16 & !SOURCE_PORTS
}

/// Whether [`source_port`] gives this port for some flow.
#[inline(always)]
pub(crate) const fn is_source_port(port: u16) -> bool {
    port & SOURCE_PORTS == SOURCE_PORTS
}

/// The first outer UDP source port; the bits of all of them.
const SOURCE_PORTS: u16 = 0xc000;

/// The encapsulation of a tunnel. Records of the tables hold it as its number, the configuration
/// and objects as its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
#[repr(u8)]
pub enum TunnelKind {
    /// GENEVE, RFC 8926; UDP 6081.
    Geneve = 1,
    /// VXLAN, RFC 7348; UDP 4789.
    Vxlan = 2,
    /// IP in IP, the four mixes of families (RFC 2003, 2473, 4213); no port.
    Ipip = 3,
    /// Generic UDP encapsulation, variant 1: IP directly in UDP; UDP 6080.
    Gue = 4,
}

impl TunnelKind {
    /// Returns the kind that a record's number stands for; 0 and unknown numbers are none.
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

/// Everything to be written in front of an inner packet.
#[derive(Clone, Copy, Debug)]
pub struct Outer<'a> {
    /// The tunnel's kind.
    pub kind: TunnelKind,
    /// The next hop's MAC and ours.
    pub macs: Macs,
    /// VLAN tag control field, host order; 0 for none.
    pub vlan: u16,
    /// Outer source; its family is that of the outer header.
    pub src: Addr,
    /// Outer destination, of the same family.
    pub dst: Addr,
    /// UDP source port, host order; for IPIP only the IPv6 flow label is drawn from it.
    pub sport: u16,
    /// UDP destination port, host order; unused for IPIP.
    pub dport: u16,
    /// Network identifier, 24 bits (GENEVE, VXLAN).
    pub vni: u32,
    /// GENEVE options as they lie on the wire: whole words, at most 252 bytes.
    pub options: &'a [u8],
    /// The inner packet is IPv6.
    pub inner_v6: bool,
    /// Inner Ethernet header: always for VXLAN (where none is given, as the outer one), possible
    /// for GENEVE.
    pub inner_eth: Option<Macs>,
    /// Outer DSCP and ECN: those of the packet inside (RFC 6040 §4.1, normal mode).
    pub tos: u8,
    /// Outer TTL or hop limit.
    pub ttl: u8,
    /// Outer "don't fragment" (IPv4; IPv6 always is).
    pub df: bool,
    /// Fill in the UDP checksum. Without, it is 0, which the tunnels' RFCs allow for IPv6 as well
    /// (RFC 6935).
    pub checksum: bool,
}

impl Outer<'_> {
    #[inline(always)]
    fn v6(&self) -> bool {
        !self.dst.is_v4()
    }

    /// Whether these are the headers of [`USUAL_LEN`] bytes.
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

    /// Bytes between the outer IP header and the inner packet.
    #[inline(always)]
    fn tunnel_len(&self) -> usize {
        // Two short choices instead of one long one: without a jump table.
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

/// Bytes that [`write_outer`] writes.
#[inline(always)]
pub fn outer_len(outer: &Outer<'_>) -> usize {
    let ip = if outer.v6() { 40 } else { 20 };
    ethernet::header_len(outer.vlan) + ip + outer.tunnel_len()
}

/// Writes everything in front of the inner packet, which has `inner_len` bytes and begins
/// [`outer_len`] bytes behind the window's start. [`Short`] also when the sum passes 65,535 bytes.
#[inline(always)]
pub fn write_outer(w: &mut Window<'_>, o: &Outer<'_>, inner_len: usize) -> Result<(), Short> {
    let id = if o.df { 0 } else { datagram_id(w, outer_len(o), o.inner_v6) };
    write_outer_as(w, o, inner_len, id)
}

/// As [`write_outer`], where the inner packet may be out of the window's sight: with the
/// identification `id`, [`datagram_id`] of it, if the outer packet may be fragmented.
#[inline(always)]
pub fn write_outer_as(
    w: &mut Window<'_>,
    o: &Outer<'_>,
    inner_len: usize,
    id: u16,
) -> Result<(), Short> {
    // A gateway's headers by far most often: a copy of the same code whose offsets are constants.
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
        // By value: a reference would keep all of `o` in memory.
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
    // The flow label spreads the tunnel's flows as the source port does (RFC 6438).
    let label = u32::from(o.sport);
    let first = 0x6000_0000 | u32::from(o.tos) << 20 | label;
    let second = u32::from(payload) << 16 | u32::from(proto) << 8 | u32::from(o.ttl);
    w.store(at, ipv6::words(first, second, &o.src, &o.dst))
}

/// An identification for an outer datagram that may be fragmented: drawn from where packets of one
/// flow differ (IPv4 identification, TCP sequence number), since there is no counter here.
#[inline(always)]
pub fn datagram_id(w: &Window<'_>, inner: usize, inner_v6: bool) -> u16 {
    // No wider than it must be: a wide read would wait for the TTL, just written beside it.
    let header = u64::from(w.load::<u16>(inner + 4).unwrap_or(0));
    let upper: u64 = w.load(inner + if inner_v6 { 40 } else { 20 }).unwrap_or(0);
    let mixed = (header ^ upper.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as u16
}

/// Fills in the UDP checksum at `l4`, derived from the inner packet's own. Where the inner packet
/// has none and goes on in another segment, the field stays 0.
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
    w.store(l4 + 6, udp(!fold(sum)))
}

/// Sends a frame back by the tunnel that it came by: MACs and outer addresses change places, and
/// everything else, ports included, stays byte for byte. No checksum changes by a swap.
#[inline(always)]
pub fn return_in_place(w: &mut Window<'_>, outer: &Ip) -> Result<(), Short> {
    ethernet::swap(w)?;
    swap_addresses(w, outer)
}

/// Source and destination address change places.
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

/// As [`return_in_place`], across to the other VXLAN tunnel of the same gateway: its UDP port and
/// VNI. The source port stays, and so does the inner frame with its MACs.
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
        w.store(l4 + 6, udp(update(sum, change)))?;
    }
    Ok(())
}

const NOT_ECT: u8 = 0;
const ECT1: u8 = 1;
const ECT0: u8 = 2;
const CE: u8 = 3;

/// The inner DSCP and ECN after the outer header is taken off (RFC 6040 §4.2, figure 4); `None`
/// when the packet must be dropped, since its ends would not notice the congestion.
#[inline(always)]
pub const fn ecn_decap(outer_tos: u8, inner_tos: u8) -> Option<u8> {
    match (outer_tos & 3, inner_tos & 3) {
        (CE, NOT_ECT) => None,
        (CE, _) => Some(inner_tos | CE),
        (ECT1, ECT0) => Some(inner_tos & 0xfc | ECT1),
        _ => Some(inner_tos),
    }
}

/// Makes the headers of a packet say that it ends at `end`: the lengths of IP and UDP, and IPv4's
/// checksum. Where it has a UDP header, whose checksum is left to the caller.
#[inline(always)]
pub fn relength(w: &mut Window<'_>, ip: &Ip, end: usize) -> Result<Option<usize>, Short> {
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

/// Any accepted packet: what is written in front of it parses as what it should be.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    use crate::checksum::{ipv4_header_ok, l4_full};
    const ROOM: usize = 400;
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
        let mut frame = std::vec![0; ROOM];
        frame.extend_from_slice(&bytes[..usize::from(inner.end)]);
        let mut w = Window::new(&mut frame[ROOM - front..]);
        if write_outer(&mut w, &outer, usize::from(inner.len())).is_err() {
            continue; // Beyond 65,535 bytes.
        }
        let eth = ethernet::Ethernet::parse(&w).expect("a frame begins with Ethernet");
        let ip = Ip::parse(&w, eth.l3, eth.ethertype).expect("an outer header is a packet's");
        assert_eq!((ip.src, ip.dst, usize::from(ip.end)), (outer.src, outer.dst, w.len()));
        assert!(ip.v6 || ipv4_header_ok(&w, &ip));
        // Right whenever the inner checksums are; that it is filled in can be seen in any case.
        assert!(kind == TunnelKind::Ipip || w.be16(usize::from(ip.l4) + 6) != Ok(0));
        assert!(kind == TunnelKind::Ipip || l4_full(&w, &ip).is_ok());
    }
}

#[cfg(test)]
mod tests;
