//! The IPv4 header (RFC 791), options skipped.

use crate::addr::Addr;
use crate::ip::{Fragment, Ip, TCP};
use crate::parsed::Malformed;
use crate::window::Window;

/// "Don't fragment".
const DF: u16 = 0x4000;
/// "More fragments".
const MF: u16 = 0x2000;
/// Offset of a fragment, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// The header at `at`, without `end` and what lies above, and the packet's total length.
#[inline(always)]
pub(crate) fn header(w: &Window<'_>, at: u16) -> Result<(Ip, u32), Malformed> {
    let h: [u32; 5] = w.load(usize::from(at))?;
    let first = u32::from_be(h[0]);
    let second = u32::from_be(h[1]);
    if first >> 28 != 4 {
        return Err(Malformed::IpVersion);
    }
    let header = (first >> 24 & 0xf) * 4;
    let len = first & 0xffff;
    if header != 20 {
        if header < 20 || header > len {
            return Err(Malformed::IpHeaderLength);
        }
        w.holds(usize::from(at), header as usize)?;
    }
    let [ttl, proto, _, _] = h[2].to_ne_bytes();
    let flags = second as u16;
    let mut ip = Ip {
        at,
        l4: at + header as u16,
        proto,
        tos: (first >> 16) as u8,
        ttl,
        df: flags & DF != 0,
        fragment_id: second >> 16,
        src: Addr::v4(h[3]),
        dst: Addr::v4(h[4]),
        ..Ip::default()
    };
    if flags & (MF | OFFSET) != 0 {
        ip.fragment = fragment(flags & OFFSET, len - header.min(len), proto)?;
    }
    Ok((ip, len))
}

/// Which fragment: `offset` in units of 8 bytes, `payload` bytes long.
pub(crate) fn fragment(offset: u16, payload: u32, proto: u8) -> Result<Fragment, Malformed> {
    if offset == 0 {
        return Ok(Fragment::First);
    }
    // RFC 3128: a second fragment that overwrites the TCP flags. And no datagram is above 64 KiB.
    let overlaps = proto == TCP && offset == 1;
    if overlaps || u32::from(offset) * 8 + payload > 65_535 {
        return Err(Malformed::Fragment);
    }
    Ok(Fragment::Later)
}

#[cfg(test)]
mod tests;
