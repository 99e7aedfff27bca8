//! Outer header templates: the parts that all packets of one tunnel share are computed once, and
//! each packet's headers are assembled from them in whole words.
//!
//! Templates cover the most frequent headers: GENEVE over IPv4 with a gateway's three options.
//! [`write_outer`] supports all outer headers, and writes the same bytes for these.

use crate::checksum::fold;
use crate::ethernet::{HEADER, IPV4, Macs};
use crate::ip::UDP;
use crate::tunnel::{Outer, datagram_id, write_outer};
use crate::window::{Short, Window};

pub use crate::tunnel::USUAL_LEN as LEN;

/// Offsets of the IPv4 header, the UDP header, the GENEVE header, and the attachment's value, which
/// precedes the cookie's option.
const IP: usize = HEADER;
const L4: usize = IP + 20;
const GENEVE: usize = L4 + 8;
const ATTACHMENT: usize = LEN - 16;

/// The parts of outer headers that one tunnel's packets share.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Template {
    /// The bytes from the GENEVE header to before the attachment's value, in wire order.
    middle: [u32; 6],
    /// The first word of the last option (the cookie), raw.
    option: u32,
    /// Outer source address, raw.
    src: u32,
    dport: u16,
    ttl: u8,
    flags: u8,
}

// A cache entry of fastpath, which adds the lookup key and a few fields, has 64 bytes.
const _: () = assert!(size_of::<Template>() == 36 && align_of::<Template>() == 4);

/// The bit of "don't fragment" in [`Template::flags`].
const DF: u8 = 1;
/// The bit of an IPv6 inner packet in [`Template::flags`].
const INNER_V6: u8 = 2;

/// The parts of outer headers that differ between packets.
#[derive(Clone, Copy, Debug)]
pub struct PacketFields {
    /// MAC addresses of the next hop and of the sending port.
    pub macs: Macs,
    /// Outer destination, an IPv4 address in wire order.
    pub dst: u32,
    /// UDP source port, host order.
    pub sport: u16,
    /// GENEVE attachment, host order.
    pub attachment: u64,
    /// GENEVE flow cookie, host order.
    pub cookie: u32,
    /// Outer DSCP and ECN.
    pub tos: u8,
}

impl Template {
    /// Creates the template of all headers that differ from `outer` only in [`PacketFields`].
    /// Returns `None` for a layout that only [`write_outer`] supports.
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

    /// Writes the outer headers like [`write_outer`], for an inner packet of `inner_len` bytes at
    /// [`LEN`]. Returns [`Short`] also if more than 65,515 bytes follow the outer IP header.
    #[inline(always)]
    pub fn write(
        &self,
        w: &mut Window<'_>,
        fields: &PacketFields,
        inner_len: usize,
    ) -> Result<(), Short> {
        const _: () = assert!(GENEVE + 24 == ATTACHMENT);
        w.holds(0, LEN)?;
        let udp_len = LEN - L4 + inner_len;
        if udp_len > 65_515 {
            return Err(Short);
        }
        let len = udp_len as u32 + 20;
        let first = 0x4500_0000 | u32::from(fields.tos) << 16 | len;
        // `second` is identification and "don't fragment", `third` is TTL and protocol.
        let second = match self.flags & DF {
            0 => u32::from(datagram_id(w, LEN, self.flags & INNER_V6 != 0)) << 16,
            _ => 0x4000,
        };
        let third = u32::from(self.ttl) << 8 | u32::from(UDP);
        let sum = u64::from(first.to_be())
            + u64::from(second.to_be())
            + u64::from((third << 16).to_be())
            + u64::from(self.src)
            + u64::from(fields.dst);
        let rest = u64::from(len) << 48 | u64::from(second) << 16 | u64::from(third);
        let ports = u64::from(fields.sport) << 48 | u64::from(self.dport) << 32;
        w.store(0, fields.macs.first)?;
        w.store(8, fields.macs.rest)?;
        w.store(IP - 2, ((u32::from(IPV4) << 16) | (first >> 16)).to_be())?;
        w.store(IP + 2, rest.to_be())?;
        w.store(IP + 10, !fold(sum))?;
        w.store(IP + 12, [self.src, fields.dst])?;
        w.store(L4, (ports | (udp_len as u64) << 16).to_be())?;
        w.store(GENEVE, self.middle)?;
        w.store(ATTACHMENT, fields.attachment.to_be())?;
        w.store(ATTACHMENT + 8, [self.option, fields.cookie.to_be()])
    }
}

#[cfg(test)]
mod tests;
