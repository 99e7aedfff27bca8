//! Outer headers made ready: what the packets of one tunnel have in common is worked out once, and
//! each packet's headers are put together from it in whole words.
//!
//! For the headers that are written by far most often, GENEVE over IPv4 with the three options of a
//! gateway. [`write_outer`] writes all others, and these too: the same bytes.

use crate::checksum::fold;
use crate::ethernet::{HEADER, IPV4, Macs};
use crate::geneve;
use crate::ip::UDP;
use crate::tunnel::{Outer, datagram_id, write_outer};
use crate::window::{Short, Window};

/// Bytes of such headers.
pub const LEN: usize = HEADER + 20 + 8 + geneve::HEADER + geneve::OWN_OPTIONS;

/// Where the IPv4 header begins, the UDP header, the GENEVE header, and the last option.
const IP: usize = HEADER;
const L4: usize = IP + 20;
const GENEVE: usize = L4 + 8;
const COOKIE: usize = LEN - 8;

/// What the headers of one tunnel have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// From the GENEVE header to the last option, as it lies on the wire.
    middle: [u64; 4],
    /// The last option's own header, raw.
    option: u32,
    /// Outer source, raw.
    src: u32,
    /// The sum of the IPv4 header's words that are the same in all packets.
    sum: u64,
    /// "Don't fragment", TTL and protocol, as the number that they are.
    hops: u32,
    dport: u16,
    df: bool,
    inner_v6: bool,
}

/// What a packet has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The next hop's MAC and ours.
    pub macs: Macs,
    /// Outer destination, an IPv4 address as it lies on the wire.
    pub dst: u32,
    /// UDP source port, host order.
    pub sport: u16,
    /// The value of the last option, host order.
    pub cookie: u32,
    /// Outer DSCP and ECN.
    pub tos: u8,
}

impl Template {
    /// What the headers `outer` have in common with others of their tunnel; `None` for headers of
    /// another build, which [`write_outer`] is for.
    pub fn of(outer: &Outer<'_>) -> Option<Template> {
        if !outer.is_usual() || outer.checksum {
            return None;
        }
        let mut bytes = [0; LEN];
        let mut window = Window::new(&mut bytes);
        write_outer(&mut window, outer, 0).ok()?;
        let hops = window.load::<u16>(IP + 8).ok()?.to_ne_bytes();
        let src = outer.src.words[3];
        Some(Template {
            middle: window.load(GENEVE).ok()?,
            option: window.load(COOKIE).ok()?,
            src,
            sum: u64::from(src) + u64::from(u32::from_ne_bytes([hops[0], hops[1], 0, 0])),
            hops: u32::from(outer.df) << 30 | u32::from(u16::from_be_bytes(hops)),
            dport: outer.dport,
            df: outer.df,
            inner_v6: outer.inner_v6,
        })
    }

    /// As [`write_outer`], for an inner packet of `inner_len` bytes that begins at [`LEN`].
    #[inline(always)]
    pub fn write(&self, w: &mut Window<'_>, own: &Own, inner_len: usize) -> Result<(), Short> {
        const _: () = assert!(UDP == 17 && GENEVE + 32 == COOKIE);
        w.holds(0, LEN)?;
        let udp_len = LEN - L4 + inner_len;
        if udp_len > 65_515 {
            return Err(Short);
        }
        let id = if self.df { 0 } else { datagram_id(w, LEN, self.inner_v6) };
        let (len, id) = (udp_len as u32 + 20, u32::from(id));
        let first = 0x4500_0000 | u32::from(own.tos) << 16 | len;
        let second = id << 16 | self.hops >> 16;
        let sum =
            self.sum + u64::from(first.to_be()) + u64::from(second.to_be()) + u64::from(own.dst);
        let ports = u64::from(own.sport) << 48 | u64::from(self.dport) << 32;
        w.store(0, own.macs.first)?;
        w.store(8, own.macs.rest)?;
        w.store(IP - 2, (u32::from(IPV4) << 16 | first >> 16).to_be())?;
        w.store(
            IP + 2,
            (u64::from(len) << 48 | u64::from(id) << 32 | u64::from(self.hops)).to_be(),
        )?;
        w.store(IP + 10, !fold(sum))?;
        w.store(IP + 12, [self.src, own.dst])?;
        w.store(L4, (ports | (udp_len as u64) << 16).to_be())?;
        w.store(GENEVE, self.middle)?;
        w.store(COOKIE, [self.option, own.cookie.to_be()])
    }
}

#[cfg(test)]
mod tests;
