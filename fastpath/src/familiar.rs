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
use crate::lcore::Lcore;
use packet::checksum::ipv4_ok_between;
use packet::geneve;
use packet::ip::{Ip, UDP};
use packet::window::{Short, Window};

/// Headers that are remembered; a gateway has a node or two in each zone, and some endpoints.
const PLACES: usize = 16;
/// Bytes that are compared: AWS's headers have 82, Azure's 64. A shorter frame goes the long way.
const BYTES: usize = 96;

type Words = [u64; BYTES / 8];

/// One header and what was found in it.
#[derive(Clone, Copy)]
struct Seen {
    words: Words,
    mask: Words,
    front: Front,
    /// The tables by which it was admitted.
    generation: u32,
    /// The arm by which it came: each has a MAC address of its own, and takes no other's frames.
    arm: u8,
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
}

/// The headers that one lcore remembers.
pub struct Familiar {
    seen: [Seen; PLACES],
}

impl Default for Familiar {
    fn default() -> Familiar {
        let (words, mask) = ([0; BYTES / 8], [0; BYTES / 8]);
        let none = Seen { words, mask, front: Front::default(), generation: u32::MAX, arm: 0 };
        Familiar { seen: [none; PLACES] }
    }
}

/// Where a header is kept, by what tells gateway nodes and endpoints apart: the IPv4 source, the
/// low half of the endpoint's id. For other headers these are whatever they are.
#[inline(always)]
fn place(words: &Words) -> usize {
    let node = (words[3] >> 16) as u32;
    let endpoint = (words[7] >> 16) as u32;
    ((node ^ endpoint).wrapping_mul(0x9e37_79b1) >> 28) as usize % PLACES
}

impl Familiar {
    /// Fills in all that [`crate::parse`] and [`crate::decap`] would find out in front of the inner
    /// packet, if these headers are known to the tables of `generation`. `last` is where the packet
    /// before was found: mostly the next one belongs there as well, and the processor need not wait
    /// for the place to be worked out. Gives where the inner packet begins, and its Ethernet type:
    /// read from `work`, where they were just written, they would come later.
    #[inline(always)]
    pub fn recognise(
        &self,
        window: &Window<'_>,
        work: &mut Work,
        generation: u32,
        last: &mut usize,
    ) -> Option<(u16, u16)> {
        let words = window.load::<Words>(0).ok()?;
        let mut seen = &self.seen[*last % PLACES];
        if seen.differs(&words, generation, work.arm) {
            *last = place(&words);
            seen = &self.seen[*last];
            if seen.differs(&words, generation, work.arm) {
                return None;
            }
        }
        let mut front = seen.front;
        renew(window, &seen.front.outer, &mut front.outer).ok()?;
        work.front = front;
        Some((seen.front.inner_at, seen.front.inner_type))
    }

    /// Remembers the outer headers of a packet that the stages took apart, if it came by a tunnel
    /// that admitted it.
    #[cold]
    pub fn learn(&mut self, window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) {
        if !matches!(work.front.arrival, Arrival::Gateway | Arrival::Backend) {
            return;
        }
        let Ok(words) = window.load::<Words>(0) else { return };
        let Some(mask) = mask(window, work, lcore) else { return };
        let generation = lcore.snapshot().generation;
        let Work { front, arm, .. } = *work;
        self.seen[place(&words)] = Seen { words, mask, front, generation, arm };
    }
}

/// Reads what the mask left out of `known`. An error means: look closer.
#[inline(always)]
fn renew(window: &Window<'_>, known: &Ip, outer: &mut Ip) -> Result<(), Short> {
    // The same code with its places as constants, for what gateways send by far most often.
    if (known.at, known.l4, known.v6) == (14, 34, false) {
        renew_at(window, 14, 34, false, outer)
    } else {
        renew_at(window, known.at, known.l4, known.v6, outer)
    }
}

#[inline(always)]
fn renew_at(window: &Window<'_>, at: u16, l4: u16, v6: bool, outer: &mut Ip) -> Result<(), Short> {
    let (l3, udp) = (usize::from(at), usize::from(l4));
    let first = window.be32(l3)?;
    let (tos, len, id) = if v6 {
        ((first >> 20) as u8, 40 + u32::from(window.be16(l3 + 4)?), 0)
    } else {
        ((first >> 16) as u8, first & 0xffff, window.be16(l3 + 4)?)
    };
    let end = u32::from(at) + len;
    let udp_len = u32::from(window.be16(udp + 4)?);
    // A UDP header is 8 bytes long, and its length counts them.
    let odd = udp_len < 8 || u32::from(l4) + udp_len != end;
    if odd || end as usize > window.frame_len() {
        return Err(Short);
    }
    if !v6 && !ipv4_ok_between(window, at, l4) {
        return Err(Short);
    }
    outer.tos = tos;
    outer.end = end as u16;
    outer.fragment_id = u32::from(id);
    outer.sport = window.be16(udp)?;
    Ok(())
}

/// Which bytes tell these headers from others: all in front of the inner packet but those that
/// [`renew`] reads, and those that decide nothing (the sender's MAC, a cookie, inner MACs). None
/// for headers of unusual build, and where only the inner packet says of which family it is.
fn mask(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) -> Option<Words> {
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
    let class = lcore.snapshot().tunnels.get(usize::from(work.front.tunnel))?.record.option_class;
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
