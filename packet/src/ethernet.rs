//! Ethernet II with at most one VLAN tag (IEEE 802.1Q).

use crate::window::{Short, Window};

/// Ethernet type of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethernet type of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethernet type of an 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// Bytes of an untagged header.
pub const HEADER: usize = 14;

/// An Ethernet header. A second tag shows as an Ethernet type that is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ethernet {
    /// Type of what follows, behind the tag if there is one.
    pub ethertype: u16,
    /// Tag control field (priority, DEI, VLAN id) in host order; 0 when untagged.
    pub vlan: u16,
    /// Offset of what follows.
    pub l3: u16,
}

impl Ethernet {
    /// The header at the start of the frame.
    #[inline(always)]
    pub fn parse(w: &Window<'_>) -> Result<Ethernet, Short> {
        Ethernet::parse_at(w, 0)
    }

    /// The header at `at` (inside VXLAN).
    #[inline(always)]
    pub fn parse_at(w: &Window<'_>, at: u16) -> Result<Ethernet, Short> {
        let ethertype = w.be16(usize::from(at) + 12)?;
        if ethertype == VLAN {
            let tag: [u16; 2] = w.load(usize::from(at) + 14)?;
            return Ok(Ethernet {
                ethertype: u16::from_be(tag[1]),
                vlan: u16::from_be(tag[0]),
                l3: at + 18,
            });
        }
        Ok(Ethernet { ethertype, vlan: 0, l3: at + 14 })
    }
}

/// Receiver's and sender's address as they lie in a header, in two words: written, copied and read
/// in the same pieces, so that the processor never waits for one to be put together from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Macs {
    /// The receiver's address and the first two bytes of the sender's.
    pub first: u64,
    /// The other four.
    pub rest: u32,
}

impl Macs {
    /// To whom, from whom.
    #[inline(always)]
    pub const fn new(to: [u8; 6], from: [u8; 6]) -> Macs {
        let first = [to[0], to[1], to[2], to[3], to[4], to[5], from[0], from[1]];
        let rest = [from[2], from[3], from[4], from[5]];
        Macs { first: u64::from_ne_bytes(first), rest: u32::from_ne_bytes(rest) }
    }
}

/// Bytes that [`write`] writes.
#[inline(always)]
pub const fn header_len(vlan: u16) -> usize {
    if vlan == 0 { HEADER } else { HEADER + 4 }
}

/// Writes a header at the start of the frame; `vlan` 0 writes no tag.
#[inline(always)]
pub fn write(w: &mut Window<'_>, macs: &Macs, vlan: u16, ethertype: u16) -> Result<(), Short> {
    write_at(w, 0, macs, vlan, ethertype)
}

/// Writes a header at `at`.
#[inline(always)]
pub(crate) fn write_at(
    w: &mut Window<'_>,
    at: usize,
    macs: &Macs,
    vlan: u16,
    ethertype: u16,
) -> Result<(), Short> {
    w.store(at, macs.first)?;
    w.store(at + 8, macs.rest)?;
    if vlan == 0 {
        return w.set_be16(at + 12, ethertype);
    }
    w.set_be32(at + 12, u32::from(VLAN) << 16 | u32::from(vlan))?;
    w.set_be16(at + 16, ethertype)
}

/// Source and destination change places.
#[inline(always)]
pub fn swap(w: &mut Window<'_>) -> Result<(), Short> {
    swap_at(w, 0)
}

/// As [`swap`], in the header at `at`.
#[inline(always)]
pub fn swap_at(w: &mut Window<'_>, at: u16) -> Result<(), Short> {
    let at = usize::from(at);
    // Twelve bytes in two words, for the reason that [`Macs`] gives.
    let (first, rest) = (u64::from_le(w.load(at)?), u32::from_le(w.load(at + 8)?));
    let swapped = first >> 48 | u64::from(rest) << 16 | first << 48;
    w.store(at, swapped.to_le())?;
    w.store(at + 8, ((first >> 16) as u32).to_le())
}

/// Whatever the bytes, an accepted header lies in the frame and is written back as it was read.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let before = std::vec::Vec::from(&*bytes);
    let mut w = Window::new(bytes);
    let Ok(eth) = Ethernet::parse(&w) else { return };
    assert!(usize::from(eth.l3) <= w.len());
    let macs = (w.load::<[u8; 6]>(0), w.load::<[u8; 6]>(6));
    let (Ok(to), Ok(from)) = macs else { return };
    // A tag of zero (priority 0, no VLAN) says nothing, so it is not kept.
    if usize::from(eth.l3) == header_len(eth.vlan) {
        assert!(write(&mut w, &Macs::new(to, from), eth.vlan, eth.ethertype).is_ok());
        assert_eq!(before, bytes);
    }
}

#[cfg(test)]
mod tests;
