//! Outer headers made ready: what the packets of one tunnel have in common is worked out once, and
//! each packet's headers are put together from it in whole words.
//!
//! For the headers that are written by far most often, GENEVE over IPv4 with the three options of a
//! gateway. [`write_outer`] writes all others, and these too: the same bytes.

use crate::checksum::fold;
use crate::ethernet::{HEADER, IPV4, Macs};
use crate::ip::UDP;
use crate::tunnel::{Outer, datagram_id, write_outer};
use crate::window::{Short, Window};

pub use crate::tunnel::USUAL_LEN as LEN;

/// Where the IPv4 header begins, the UDP header, the GENEVE header, and the attachment's value, in
/// front of the cookie's option.
const IP: usize = HEADER;
const L4: usize = IP + 20;
const GENEVE: usize = L4 + 8;
const ATTACHMENT: usize = LEN - 16;

/// What the headers of one tunnel have in common.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Template {
    /// From the GENEVE header to the attachment's value, as it lies on the wire.
    middle: [u32; 6],
    /// The last option's own header, raw.
    option: u32,
    /// Outer source, raw.
    src: u32,
    dport: u16,
    ttl: u8,
    flags: u8,
}

// With what it is found by it is to be one cache line.
const _: () = assert!(size_of::<Template>() == 36 && align_of::<Template>() == 4);

/// [`Template::flags`]: "don't fragment".
const DF: u8 = 1;
/// [`Template::flags`]: IPv6 inside.
const INNER_V6: u8 = 2;

/// What a packet has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The next hop's MAC and ours.
    pub macs: Macs,
    /// Outer destination, an IPv4 address as it lies on the wire.
    pub dst: u32,
    /// UDP source port, host order.
    pub sport: u16,
    /// The attachment, host order.
    pub attachment: u64,
    /// The cookie, host order.
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
        Some(Template {
            middle: window.load(GENEVE).ok()?,
            option: window.load(ATTACHMENT + 8).ok()?,
            src: outer.src.words[3],
            dport: outer.dport,
            ttl: outer.ttl,
            flags: if outer.df { DF } else { 0 } | if outer.inner_v6 { INNER_V6 } else { 0 },
        })
    }

    /// As [`write_outer`], for an inner packet of `inner_len` bytes that begins at [`LEN`].
    #[inline(always)]
    pub fn write(&self, w: &mut Window<'_>, own: &Own, inner_len: usize) -> Result<(), Short> {
        const _: () = assert!(GENEVE + 24 == ATTACHMENT);
        w.holds(0, LEN)?;
        let udp_len = LEN - L4 + inner_len;
        if udp_len > 65_515 {
            return Err(Short);
        }
        let len = udp_len as u32 + 20;
        let first = 0x4500_0000 | u32::from(own.tos) << 16 | len;
        // Identification and "don't fragment"; TTL and protocol.
        let second = match self.flags & DF {
            0 => u32::from(datagram_id(w, LEN, self.flags & INNER_V6 != 0)) << 16,
            _ => 0x4000,
        };
        let third = u32::from(self.ttl) << 8 | u32::from(UDP);
        let sum = u64::from(first.to_be())
            + u64::from(second.to_be())
            + u64::from((third << 16).to_be())
            + u64::from(self.src)
            + u64::from(own.dst);
        let rest = u64::from(len) << 48 | u64::from(second) << 16 | u64::from(third);
        let ports = u64::from(own.sport) << 48 | u64::from(self.dport) << 32;
        w.store(0, own.macs.first)?;
        w.store(8, own.macs.rest)?;
        w.store(IP - 2, ((u32::from(IPV4) << 16) | (first >> 16)).to_be())?;
        w.store(IP + 2, rest.to_be())?;
        w.store(IP + 10, !fold(sum))?;
        w.store(IP + 12, [self.src, own.dst])?;
        w.store(L4, (ports | (udp_len as u64) << 16).to_be())?;
        w.store(GENEVE, self.middle)?;
        w.store(ATTACHMENT, own.attachment.to_be())?;
        w.store(ATTACHMENT + 8, [self.option, own.cookie.to_be()])
    }
}

#[cfg(test)]
mod tests;
