//! Parsing of the IPv4 header (RFC 791); options are skipped.

use crate::addr::Addr;
use crate::ip::{Fragment, Ip, TCP};
use crate::parsed::Malformed;
use crate::window::Window;

/// The "don't fragment" flag.
const DF: u16 = 0x4000;
/// The "more fragments" flag.
const MF: u16 = 0x2000;
/// The mask of the fragment offset, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// Reads the header at `at`: all fields of `ip` but `end` and those of the upper-layer header.
/// Returns the total length.
#[inline(always)]
pub(crate) fn header(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<u32, Malformed> {
    let h: [u32; 5] = w.load(usize::from(at))?;
    let first = u32::from_be(h[0]);
    let len = first & 0xffff;
    // Nearly all packets have no options: one comparison covers version and header length.
    let header = if first >> 24 == 0x45 { 20 } else { with_options(w, at, first)? };
    let flags = fields(ip, at, &h, header as u16);
    if flags & (MF | OFFSET) != 0 {
        ip.fragment = fragment(flags & OFFSET, len - header.min(len), ip.proto)?;
    }
    Ok(len)
}

/// Like [`header`], but returns `None` unless the packet is whole and has no options.
#[inline(always)]
pub(crate) fn usual_header(w: &Window<'_>, at: u16, ip: &mut Ip) -> Result<Option<u32>, Malformed> {
    let h: [u32; 5] = w.load(usize::from(at))?;
    let first = u32::from_be(h[0]);
    let flags = fields(ip, at, &h, 20);
    let usual = first >> 24 == 0x45 && flags & (MF | OFFSET) == 0;
    Ok(usual.then_some(first & 0xffff))
}

/// Fills `ip` from the five words of a header of `header` bytes, as for a whole packet. Returns the
/// word of flags and fragment offset.
#[inline(always)]
fn fields(ip: &mut Ip, at: u16, h: &[u32; 5], header: u16) -> u16 {
    let (first, second) = (u32::from_be(h[0]), u32::from_be(h[1]));
    let [ttl, proto, _, _] = h[2].to_ne_bytes();
    let flags = second as u16;
    ip.at = at;
    ip.l4 = at + header;
    ip.proto = proto;
    ip.v6 = false;
    ip.tos = (first >> 16) as u8;
    ip.ttl = ttl;
    ip.df = flags & DF != 0;
    ip.fragment_id = second >> 16;
    ip.src = Addr::v4(h[3]);
    ip.dst = Addr::v4(h[4]);
    ip.fragment = Fragment::Whole;
    flags
}

/// Returns the length in bytes of a header that has options, or an error if the version or the
/// length is invalid.
#[cfg_attr(not(target_arch = "bpf"), cold)]
#[cfg_attr(target_arch = "bpf", inline(always))]
fn with_options(w: &Window<'_>, at: u16, first: u32) -> Result<u32, Malformed> {
    if first >> 28 != 4 {
        return Err(Malformed::IpVersion);
    }
    let header = (first >> 24 & 0xf) * 4;
    if header < 20 || header > first & 0xffff {
        return Err(Malformed::IpHeaderLength);
    }
    w.holds(usize::from(at), header as usize)?;
    Ok(header)
}

/// Classifies a fragment by its `offset` in units of 8 bytes; it carries `payload` bytes.
pub(crate) fn fragment(offset: u16, payload: u32, proto: u8) -> Result<Fragment, Malformed> {
    if offset == 0 {
        return Ok(Fragment::First);
    }
    // A fragment at offset 8 would overwrite the TCP flags (RFC 3128). No datagram exceeds 65,535
    // bytes.
    let overlaps = proto == TCP && offset == 1;
    if overlaps || u32::from(offset) * 8 + payload > 65_535 {
        return Err(Malformed::Fragment);
    }
    Ok(Fragment::Later)
}

#[cfg(test)]
mod tests;
