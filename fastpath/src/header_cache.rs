//! A cache of outer headers, which replaces parse and decap for headers that were parsed before.
//!
//! Most packets of a gateway have the same outer headers, except for a few bytes: lengths,
//! identification, checksums, source port, DSCP, flow cookie. Each lcore caches some headers that
//! the stages parsed and accepted, with a mask that excludes those bytes, together with the parse
//! results. A packet whose headers are equal under the mask has the same results; the masked bytes
//! are read from it. All other packets, including all invalid ones, are parsed.
//!
//! ```text
//!  Ethernet | IPv4 . tos . len . id . ttl . sum . addresses | UDP . sport . len . sum | GENEVE
//!  compared |         --    --   --          --             |       --      --    --  | cookie --
//! ```

use crate::burst::{Arrival, OuterHeaders, PacketState};
use crate::snapshot::Snapshot;
use packet::checksum::ipv4_ok_between;
use packet::ethernet::IPV4;
use packet::geneve;
use packet::ip::{Ip, UDP};
use packet::template::LEN;
use packet::window::{Short, Window};

/// The number of sets and the associativity of the cache. A gateway has one or two nodes in each
/// zone and many endpoints.
const SETS: usize = 64;
const WAYS: usize = 4;
/// The number of bytes compared: AWS's headers have 82, Azure's 64. Frames shorter than this are
/// always parsed.
const BYTES: usize = 96;

type Words = [u64; BYTES / 8];

/// Offsets and types of one header layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderLayout {
    /// Offset of the outer IP header.
    at: u16,
    /// Whether the outer header is IPv6.
    v6: bool,
    /// Offset of the UDP header.
    l4: u16,
    /// Offset of the inner packet.
    pub inner_at: u16,
    /// Ethernet type of the inner packet.
    pub inner_type: u16,
}

impl HeaderLayout {
    /// The most frequent layout: IPv4 in GENEVE with three options over IPv4, untagged.
    pub const USUAL: HeaderLayout =
        HeaderLayout { at: 14, v6: false, l4: 34, inner_at: LEN as u16, inner_type: IPV4 };
}

/// A cached header with its parse results.
#[derive(Clone, Copy)]
pub struct CachedHeader {
    words: Words,
    mask: Words,
    /// The parse results; fields that differ between packets are read by
    /// [`CachedHeader::uncached_fields`].
    pub headers: OuterHeaders,
    /// The generation of the tables that admitted it.
    generation: u32,
    /// The arm through which it arrived: each has its own MAC address and accepts no other's
    /// frames.
    arm: u8,
    /// Whether it has the layout [`HeaderLayout::USUAL`].
    usual: bool,
}

impl CachedHeader {
    #[inline(always)]
    fn differs(&self, words: &Words, generation: u32, arm: u8) -> bool {
        let mut differs = 0;
        for ((word, cached), mask) in words.iter().zip(&self.words).zip(&self.mask) {
            differs |= (word ^ cached) & mask;
        }
        differs != 0 || self.generation != generation || self.arm != arm
    }

    /// Returns true if the header has the most frequent layout ([`HeaderLayout::USUAL`]).
    #[inline(always)]
    pub fn is_usual(&self) -> bool {
        self.usual
    }

    /// Returns the layout of the header.
    #[inline(always)]
    pub fn layout(&self) -> HeaderLayout {
        layout(&self.headers)
    }

    /// Reads the masked bytes of headers with this layout. On an error the packet must be parsed.
    #[inline(always)]
    pub fn uncached_fields(
        &self,
        window: &Window<'_>,
        layout: &HeaderLayout,
    ) -> Result<UncachedFields, Short> {
        let (l3, udp) = (usize::from(layout.at), usize::from(layout.l4));
        let first = window.be32(l3)?;
        let (tos, len, id) = if layout.v6 {
            ((first >> 20) as u8, 40 + u32::from(window.be16(l3 + 4)?), 0)
        } else {
            ((first >> 16) as u8, first & 0xffff, window.be16(l3 + 4)?)
        };
        let end = u32::from(layout.at) + len;
        let udp_len = u32::from(window.be16(udp + 4)?);
        // A UDP header is 8 bytes long, which its length includes.
        let invalid = udp_len < 8 || u32::from(layout.l4) + udp_len != end;
        if invalid || end as usize > window.frame_len() {
            return Err(Short);
        }
        if !layout.v6 && !ipv4_ok_between(window, layout.at, layout.l4) {
            return Err(Short);
        }
        Ok(UncachedFields { tos, end: end as u16, id, sport: window.be16(udp)? })
    }
}

/// The outer header cache of one lcore.
pub struct HeaderCache {
    sets: Box<[[CachedHeader; WAYS]; SETS]>,
    /// Counter that selects the entry to replace in a full set.
    next_victim: usize,
}

impl Default for HeaderCache {
    fn default() -> HeaderCache {
        let (words, mask) = ([0; BYTES / 8], [0; BYTES / 8]);
        let headers = OuterHeaders::default();
        let empty =
            CachedHeader { words, mask, headers, generation: u32::MAX, arm: 0, usual: false };
        HeaderCache { sets: Box::new([[empty; WAYS]; SETS]), next_victim: 0 }
    }
}

/// Returns the set index of a header, from the fields that distinguish gateway nodes and endpoints
/// in the most frequent layout: the IPv4 source and the low half of the endpoint ID.
#[inline(always)]
fn set_index(words: &Words) -> usize {
    let node = (words[3] >> 16) as u32;
    let endpoint = (words[7] >> 16) as u32;
    ((node ^ endpoint).wrapping_mul(0x9e37_79b1) >> 26) as usize % SETS
}

impl HeaderCache {
    /// Returns an arbitrary entry, as the initial `last` of [`HeaderCache::lookup`].
    #[inline(always)]
    pub fn first(&self) -> &CachedHeader {
        &self.sets[0][0]
    }

    /// Returns the entry whose headers equal the packet's under the mask, for the tables of
    /// `generation`. Together with [`CachedHeader::uncached_fields`] it replaces the results of
    /// [`crate::parse`] and [`crate::decap`] in front of the inner packet. `last` is the entry of
    /// the preceding packet: it usually matches, which avoids waiting for the set index.
    #[inline(always)]
    pub fn lookup<'a>(
        &'a self,
        window: &Window<'_>,
        arm: u8,
        generation: u32,
        last: &'a CachedHeader,
    ) -> Option<&'a CachedHeader> {
        let words = window.load::<Words>(0).ok()?;
        if !last.differs(&words, generation, arm) {
            return Some(last);
        }
        self.lookup_set(window, arm, generation)
    }

    /// Searches the set of the header. Not inlined, and loads the words again, so that the likely
    /// path keeps its registers.
    #[inline(never)]
    fn lookup_set(&self, window: &Window<'_>, arm: u8, generation: u32) -> Option<&CachedHeader> {
        let words = window.load::<Words>(0).ok()?;
        let set = &self.sets[set_index(&words)];
        set.iter().find(|entry| !entry.differs(&words, generation, arm))
    }

    /// Invalidates all entries. Called at least every `CACHE_MAX_S` seconds, so that a scope is not
    /// used after its reassignment to another endpoint.
    pub fn invalidate(&mut self) {
        self.sets.iter_mut().flatten().for_each(|entry| entry.generation = u32::MAX);
    }

    /// Adds the outer headers of a parsed packet, if it arrived through a tunnel that admitted it.
    #[cold]
    pub fn insert(&mut self, window: &Window<'_>, pkt: &PacketState, snapshot: &Snapshot) {
        if !matches!(pkt.headers.arrival, Arrival::Gateway | Arrival::Backend) {
            return;
        }
        let Ok(words) = window.load::<Words>(0) else { return };
        let Some(mask) = mask(window, pkt, snapshot) else { return };
        let generation = snapshot.generation;
        let PacketState { headers, arm, .. } = *pkt;
        let usual = layout(&headers) == HeaderLayout::USUAL;
        let set = &mut self.sets[set_index(&words)];
        let stale = set.iter().position(|entry| entry.generation != generation);
        let way = stale.unwrap_or(self.next_victim % WAYS);
        self.next_victim = self.next_victim.wrapping_add(1);
        set[way] = CachedHeader { words, mask, headers, generation, arm, usual };
    }
}

/// The masked fields of cached headers, which are read from each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UncachedFields {
    /// DSCP and ECN.
    tos: u8,
    /// Offset of the byte after the outer packet's last one.
    pub end: u16,
    /// IPv4 identification.
    id: u16,
    /// UDP source port, host order.
    sport: u16,
}

impl UncachedFields {
    /// Copies the cached parse results `headers` to `to`, with the fields of this packet.
    #[inline(always)]
    pub fn write(&self, headers: &OuterHeaders, to: &mut OuterHeaders) {
        *to = *headers;
        to.outer.tos = self.tos;
        to.outer.end = self.end;
        to.outer.fragment_id = u32::from(self.id);
        to.outer.sport = self.sport;
    }
}

#[inline(always)]
fn layout(headers: &OuterHeaders) -> HeaderLayout {
    let Ip { at, l4, v6, .. } = headers.outer;
    HeaderLayout { at, v6, l4, inner_at: headers.inner_at, inner_type: headers.inner_type }
}

/// Returns the mask of the bytes that identify these headers: all bytes before the inner packet,
/// except those that [`CachedHeader::uncached_fields`] reads and those without influence (source
/// MAC address, cookie, inner MAC addresses). Returns `None` for unusual layouts, including those
/// where only the inner packet determines its family.
fn mask(window: &Window<'_>, pkt: &PacketState, snapshot: &Snapshot) -> Option<Words> {
    let (at, l4) = (usize::from(pkt.headers.outer.at), usize::from(pkt.headers.outer.l4));
    let inner_at = usize::from(pkt.headers.inner_at);
    let plain = if pkt.headers.outer.v6 { 40 } else { 20 };
    if pkt.headers.outer.proto != UDP || l4 - at != plain || inner_at > BYTES || inner_at < l4 + 16
    {
        return None;
    }
    let mut bytes = [0xff_u8; BYTES];
    bytes[inner_at..].fill(0);
    bytes[6..12].fill(0);
    bytes[at + 1..at + 6].fill(0);
    if pkt.headers.outer.v6 {
        bytes[at] = 0xf0;
    } else {
        bytes[at + 10..at + 12].fill(0);
    }
    bytes[l4..l4 + 2].fill(0);
    bytes[l4 + 4..l4 + 8].fill(0);
    if pkt.headers.inner_eth != 0 {
        bytes[usize::from(pkt.headers.inner_eth)..][..12].fill(0);
    }
    let class = snapshot.tunnels.get(usize::from(pkt.headers.tunnel))?.record.option_class;
    if geneve::are_usual(window, pkt.headers.options_at, pkt.headers.options_len, class) {
        // The value of the last option is the cookie.
        bytes[inner_at - 4..inner_at].fill(0);
    }
    let mut words = [0; BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Some(words)
}
