//! VXLAN (RFC 7348): eight bytes, and an Ethernet frame inside.

use crate::parsed::Malformed;
use crate::window::{Short, Window};

/// Bytes of the header.
pub const HEADER: usize = 8;
/// The I flag, "the VNI is valid", in the first 32-bit word.
const VALID: u32 = 0x0800_0000;

/// A VXLAN header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vxlan {
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Offset of the inner Ethernet header.
    pub payload: u16,
}

/// The header at `at`, behind the UDP header. Reserved bits are ignored, as the RFC asks.
#[inline(always)]
pub fn parse(w: &Window<'_>, at: u16) -> Result<Vxlan, Malformed> {
    let h: [u32; 2] = w.load(usize::from(at))?;
    if u32::from_be(h[0]) & VALID == 0 {
        return Err(Malformed::VxlanFlags);
    }
    Ok(Vxlan { vni: u32::from_be(h[1]) >> 8, payload: at + 8 })
}

/// Writes a header at `at`.
#[inline(always)]
pub(crate) fn write(w: &mut Window<'_>, at: usize, vni: u32) -> Result<(), Short> {
    w.store(at, [VALID.to_be(), (vni << 8).to_be()])
}

/// Whatever the bytes, an accepted header lies in the window.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let mut w = Window::new(bytes);
    let Ok(vxlan) = parse(&w, 0) else { return };
    assert!(vxlan.vni < 1 << 24 && w.len() >= 8);
    assert!(write(&mut w, 0, vxlan.vni).is_ok());
    assert_eq!(parse(&w, 0), Ok(vxlan));
}

#[cfg(test)]
mod tests;
