//! Outer headers met before: what parse and decap said of them is said again without parsing.
//!
//! A gateway sends most packets behind the same outer headers but for a few bytes: lengths,
//! identification, checksums, source port, DSCP, flow cookie. So an lcore remembers some headers
//! that the stages took apart and accepted, with those bytes masked out, and what was found in
//! them. A packet whose headers are the same under the mask is told the same; the masked bytes are
//! read from it anew. Anything else, and all that is wrong, goes the long way.
//!
//! ```text
//!  Ethernet | IPv4 . tos . len . id . ttl . sum . addresses | UDP . sport . len . sum | GENEVE
//!  compared |         --    --   --          --             |       --      --    --  | cookie --
//! ```

use crate::burst::{Arrival, Front, Work};
use crate::snapshot::Snapshot;
use packet::checksum::ipv4_ok_between;
use packet::ethernet::IPV4;
use packet::geneve;
use packet::ip::{Ip, UDP};
use packet::template::LEN;
use packet::window::{Short, Window};

/// Headers that are remembered, in sets of those that share a place; a gateway has a node or two in
/// each zone, and many endpoints.
const SETS: usize = 64;
const WAYS: usize = 4;
/// Bytes that are compared: AWS's headers have 82, Azure's 64. A shorter frame goes the long way.
const BYTES: usize = 96;

type Words = [u64; BYTES / 8];

/// Where things are in one build of headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The outer IP header and its family, the UDP header.
    at: u16,
    v6: bool,
    l4: u16,
    /// The inner packet.
    pub inner_at: u16,
    /// Its Ethernet type.
    pub inner_type: u16,
}

impl Build {
    /// What gateways send by far most often: IPv4 in GENEVE with three options over IPv4, untagged.
    pub const USUAL: Build =
        Build { at: 14, v6: false, l4: 34, inner_at: LEN as u16, inner_type: IPV4 };
}

/// One header and what was found in it.
#[derive(Clone, Copy)]
pub struct Seen {
    words: Words,
    mask: Words,
    /// What was found; what a packet has of its own is [`Seen::own`]'s to say.
    pub front: Front,
    /// The tables by which it was admitted.
    generation: u32,
    /// The arm by which it came: each has a MAC address of its own, and takes no other's frames.
    arm: u8,
    /// It is of the usual build.
    usual: bool,
}

impl Seen {
    #[inline(always)]
    fn differs(&self, words: &Words, generation: u32, arm: u8) -> bool {
        let mut differs = 0;
        for ((word, known), mask) in words.iter().zip(&self.words).zip(&self.mask) {
            differs |= (word ^ known) & mask;
        }
        differs != 0 || self.generation != generation || self.arm != arm
    }

    /// Whether it is built as most are ([`Build::USUAL`]).
    #[inline(always)]
    pub fn is_usual(&self) -> bool {
        self.usual
    }

    /// How it is built.
    #[inline(always)]
    pub fn build(&self) -> Build {
        build(&self.front)
    }

    /// Reads what the mask left out, of headers of this build. An error means: look closer.
    #[inline(always)]
    pub fn own(&self, window: &Window<'_>, build: &Build) -> Result<Own, Short> {
        let (l3, udp) = (usize::from(build.at), usize::from(build.l4));
        let first = window.be32(l3)?;
        let (tos, len, id) = if build.v6 {
            ((first >> 20) as u8, 40 + u32::from(window.be16(l3 + 4)?), 0)
        } else {
            ((first >> 16) as u8, first & 0xffff, window.be16(l3 + 4)?)
        };
        let end = u32::from(build.at) + len;
        let udp_len = u32::from(window.be16(udp + 4)?);
        // A UDP header is 8 bytes long, and its length counts them.
        let odd = udp_len < 8 || u32::from(build.l4) + udp_len != end;
        if odd || end as usize > window.frame_len() {
            return Err(Short);
        }
        if !build.v6 && !ipv4_ok_between(window, build.at, build.l4) {
            return Err(Short);
        }
        Ok(Own { tos, end: end as u16, id, sport: window.be16(udp)? })
    }
}

/// The headers that one lcore remembers.
pub struct Familiar {
    sets: Box<[[Seen; WAYS]; SETS]>,
    /// Which header of a full set goes next.
    turn: usize,
}

impl Default for Familiar {
    fn default() -> Familiar {
        let (words, mask) = ([0; BYTES / 8], [0; BYTES / 8]);
        let front = Front::default();
        let none = Seen { words, mask, front, generation: u32::MAX, arm: 0, usual: false };
        Familiar { sets: Box::new([[none; WAYS]; SETS]), turn: 0 }
    }
}

/// In which set a header is kept, by what tells gateway nodes and endpoints apart: the IPv4 source,
/// the low half of the endpoint's id. For other headers these are whatever they are.
#[inline(always)]
fn place(words: &Words) -> usize {
    let node = (words[3] >> 16) as u32;
    let endpoint = (words[7] >> 16) as u32;
    ((node ^ endpoint).wrapping_mul(0x9e37_79b1) >> 26) as usize % SETS
}

impl Familiar {
    /// One of the headers, to begin with.
    #[inline(always)]
    pub fn first(&self) -> &Seen {
        &self.sets[0][0]
    }

    /// What was found in headers that are the same under the mask, by the tables of `generation`.
    /// With what the packet has of its own ([`Seen::own`]) it is all that [`crate::parse`] and
    /// [`crate::decap`] would find out in front of the inner packet. `last` is what was found for
    /// the packet before: mostly this one is like it, and the processor need not wait for the place
    /// to be worked out.
    #[inline(always)]
    pub fn recognise<'a>(
        &'a self,
        window: &Window<'_>,
        arm: u8,
        generation: u32,
        last: &'a Seen,
    ) -> Option<&'a Seen> {
        let words = window.load::<Words>(0).ok()?;
        if !last.differs(&words, generation, arm) {
            return Some(last);
        }
        self.look_up(window, arm, generation)
    }

    /// Out of line and from the start again, so that the likely way keeps its registers.
    #[inline(never)]
    fn look_up(&self, window: &Window<'_>, arm: u8, generation: u32) -> Option<&Seen> {
        let words = window.load::<Words>(0).ok()?;
        let set = &self.sets[place(&words)];
        set.iter().find(|seen| !seen.differs(&words, generation, arm))
    }

    /// Forgets all: what was found in a header is asked for again now and then, so that a scope is
    /// not used on after it was given to another endpoint.
    pub fn forget(&mut self) {
        self.sets.iter_mut().flatten().for_each(|seen| seen.generation = u32::MAX);
    }

    /// Remembers the outer headers of a packet that the stages took apart, if it came by a tunnel
    /// that admitted it.
    #[cold]
    pub fn learn(&mut self, window: &Window<'_>, work: &Work, snapshot: &Snapshot) {
        if !matches!(work.front.arrival, Arrival::Gateway | Arrival::Backend) {
            return;
        }
        let Ok(words) = window.load::<Words>(0) else { return };
        let Some(mask) = mask(window, work, snapshot) else { return };
        let generation = snapshot.generation;
        let Work { front, arm, .. } = *work;
        let usual = build(&front) == Build::USUAL;
        let set = &mut self.sets[place(&words)];
        let stale = set.iter().position(|seen| seen.generation != generation);
        let way = stale.unwrap_or(self.turn % WAYS);
        self.turn = self.turn.wrapping_add(1);
        set[way] = Seen { words, mask, front, generation, arm, usual };
    }
}

/// What the mask leaves out of familiar headers and is read anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    /// DSCP and ECN.
    tos: u8,
    /// Offset behind the outer packet's last byte.
    pub end: u16,
    /// Identification.
    id: u16,
    /// UDP source port, host order.
    sport: u16,
}

impl Own {
    /// Writes what is known of headers like `front`, with these of their own.
    #[inline(always)]
    pub fn write(&self, front: &Front, to: &mut Front) {
        *to = *front;
        to.outer.tos = self.tos;
        to.outer.end = self.end;
        to.outer.fragment_id = u32::from(self.id);
        to.outer.sport = self.sport;
    }
}

#[inline(always)]
fn build(front: &Front) -> Build {
    let Ip { at, l4, v6, .. } = front.outer;
    Build { at, v6, l4, inner_at: front.inner_at, inner_type: front.inner_type }
}

/// Which bytes tell these headers from others: all in front of the inner packet but those that
/// [`Seen::own`] reads, and those that decide nothing (the sender's MAC, a cookie, inner MACs).
/// None for headers of unusual build, and where only the inner packet says of which family it is.
fn mask(window: &Window<'_>, work: &Work, snapshot: &Snapshot) -> Option<Words> {
    let (at, l4) = (usize::from(work.front.outer.at), usize::from(work.front.outer.l4));
    let front = usize::from(work.front.inner_at);
    let plain = if work.front.outer.v6 { 40 } else { 20 };
    if work.front.outer.proto != UDP || l4 - at != plain || front > BYTES || front < l4 + 16 {
        return None;
    }
    let mut bytes = [0xff_u8; BYTES];
    bytes[front..].fill(0);
    bytes[6..12].fill(0);
    bytes[at + 1..at + 6].fill(0);
    if work.front.outer.v6 {
        bytes[at] = 0xf0;
    } else {
        bytes[at + 10..at + 12].fill(0);
    }
    bytes[l4..l4 + 2].fill(0);
    bytes[l4 + 4..l4 + 8].fill(0);
    if work.front.inner_eth != 0 {
        bytes[usize::from(work.front.inner_eth)..][..12].fill(0);
    }
    let class = snapshot.tunnels.get(usize::from(work.front.tunnel))?.record.option_class;
    if geneve::are_usual(window, work.front.options_at, work.front.options_len, class) {
        // The value of the last option is the cookie.
        bytes[front - 4..front].fill(0);
    }
    let mut words = [0; BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Some(words)
}
