//! Ethernet II headers with at most one VLAN tag (IEEE 802.1Q).

use crate::window::{Short, Window};

/// The Ethernet type of IPv4.
pub const IPV4: u16 = 0x0800;
/// The Ethernet type of IPv6.
pub const IPV6: u16 = 0x86dd;
/// The Ethernet type of an 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// The length of an untagged header in bytes.
pub const HEADER: usize = 14;

/// A parsed Ethernet header. A second VLAN tag appears as an unsupported Ethernet type.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ethernet {
    /// Ethernet type of the payload, after the tag if there is one.
    pub ethertype: u16,
    /// Tag control field (priority, DEI, VLAN ID) in host order; 0 if untagged or if all of these
    /// are 0.
    pub vlan: u16,
    /// Offset of the payload.
    pub l3: u16,
}

impl Ethernet {
    /// Parses the header at the start of the frame.
    #[inline(always)]
    pub fn parse(w: &Window<'_>) -> Result<Ethernet, Short> {
        Ethernet::parse_at(w, 0)
    }

    /// Parses the header at `at`, such as the one inside VXLAN.
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

/// Destination and source MAC address in wire order, as two words. All code reads, copies and
/// writes them in these two pieces, so that the CPU never stalls on a load that spans several
/// stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Macs {
    /// The destination address and the first two bytes of the source address.
    pub first: u64,
    /// The last four bytes of the source address.
    pub rest: u32,
}

impl Macs {
    /// Creates the pair from destination and source address.
    #[inline(always)]
    pub const fn new(to: [u8; 6], from: [u8; 6]) -> Macs {
        let first = [to[0], to[1], to[2], to[3], to[4], to[5], from[0], from[1]];
        let rest = [from[2], from[3], from[4], from[5]];
        Macs { first: u64::from_ne_bytes(first), rest: u32::from_ne_bytes(rest) }
    }
}

/// Returns the number of bytes that [`write`] writes.
#[inline(always)]
pub const fn header_len(vlan: u16) -> usize {
    if vlan == 0 { HEADER } else { HEADER + 4 }
}

/// Writes a header at the start of the frame, without a tag if `vlan` is 0.
#[inline(always)]
pub fn write(w: &mut Window<'_>, macs: &Macs, vlan: u16, ethertype: u16) -> Result<(), Short> {
    write_at(w, 0, macs, vlan, ethertype)
}

/// Writes a header at `at`, without a tag if `vlan` is 0.
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

/// Swaps source and destination address of the header at the start of the frame.
#[inline(always)]
pub fn swap(w: &mut Window<'_>) -> Result<(), Short> {
    swap_at(w, 0)
}

/// Swaps source and destination address of the header at `at`.
#[inline(always)]
pub fn swap_at(w: &mut Window<'_>, at: u16) -> Result<(), Short> {
    let at = usize::from(at);
    // Twelve bytes in two words; see [`Macs`].
    let (first, rest) = (u64::from_le(w.load(at)?), u32::from_le(w.load(at + 8)?));
    let swapped = first >> 48 | u64::from(rest) << 16 | first << 48;
    w.store(at, swapped.to_le())?;
    w.store(at + 8, ((first >> 16) as u32).to_le())
}

/// Checks for arbitrary bytes that an accepted header lies in the frame and is written back
/// unchanged.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let before = std::vec::Vec::from(&*bytes);
    let mut w = Window::new(bytes);
    let Ok(eth) = Ethernet::parse(&w) else { return };
    assert!(usize::from(eth.l3) <= w.len());
    let macs = (w.load::<[u8; 6]>(0), w.load::<[u8; 6]>(6));
    let (Ok(to), Ok(from)) = macs else { return };
    // `write` omits a tag of 0 (priority 0, no VLAN), which carries no information.
    if usize::from(eth.l3) == header_len(eth.vlan) {
        assert!(write(&mut w, &Macs::new(to, from), eth.vlan, eth.ethertype).is_ok());
        assert_eq!(before, bytes);
    }
}

#[cfg(test)]
mod tests;
