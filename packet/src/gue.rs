//! GUE, generic UDP encapsulation (draft-ietf-intarea-gue). Weir writes variant 1, IP directly
//! after UDP, and also accepts variant 0, which has a header of its own.

use crate::ip::{IPV4_IN_IP, IPV6_IN_IP};
use crate::parsed::Malformed;
use crate::window::Window;

/// A parsed GUE header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gue {
    /// Whether the inner packet is IPv6.
    pub v6: bool,
    /// Offset of the inner IP header.
    pub payload: u16,
}

/// Parses the header at `at`, after the UDP header. The two highest bits are the variant; in
/// variant 1 they are the first bits of the IP version, 4 or 6. Optional fields of variant 0 are
/// skipped.
#[inline(always)]
pub fn parse(w: &Window<'_>, at: u16) -> Result<Gue, Malformed> {
    let first = w.byte(usize::from(at))?;
    match first >> 4 {
        4 => return Ok(Gue { v6: false, payload: at }),
        6 => return Ok(Gue { v6: true, payload: at }),
        // Variant 0 without the C bit, which marks a control message. The next five bits are Hlen,
        // the length of the header in words of 4 bytes, without the first word.
        0 | 1 => {}
        _ => return Err(Malformed::Gue),
    }
    let proto = w.byte(usize::from(at) + 1)?;
    let len = 4 + usize::from(first & 0x1f) * 4;
    w.holds(usize::from(at), len)?;
    let payload = at + len as u16;
    match proto {
        IPV4_IN_IP => Ok(Gue { v6: false, payload }),
        IPV6_IN_IP => Ok(Gue { v6: true, payload }),
        _ => Err(Malformed::Gue),
    }
}

/// Checks for arbitrary bytes that the inner packet begins in the window.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let w = Window::new(bytes);
    if let Ok(gue) = parse(&w, 0) {
        assert!(usize::from(gue.payload) <= w.len() && gue.payload % 4 == 0);
    }
}

#[cfg(test)]
mod tests;
