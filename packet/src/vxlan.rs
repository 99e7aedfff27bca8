//! VXLAN (RFC 7348): an 8-byte header followed by an Ethernet frame.

use crate::parsed::Malformed;
use crate::window::{Short, Window};

/// The length of the header in bytes.
pub const HEADER: usize = 8;
/// The I flag ("VNI is valid") in the first 32-bit word.
const VALID: u32 = 0x0800_0000;

/// A parsed VXLAN header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vxlan {
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Offset of the inner Ethernet header.
    pub payload: u16,
}

/// Parses the header at `at`, after the UDP header. Reserved bits are ignored, as the RFC requires.
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

/// Checks for arbitrary bytes that an accepted header lies in the window, and that it parses to the
/// same values after it was written back.
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
