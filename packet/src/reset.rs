//! TCP resets, written in place over the segment that they answer (RFC 9293 §3.10.7.1).

use crate::checksum::{fold, pseudo, sum_words};
use crate::icmp::write_header;
use crate::ip::{Fragment, Ip, L4, TCP};
use crate::rewrite::{ACK, FIN, RST, SYN};
use crate::window::{Short, Window};

/// The length of a TCP header without options, in bytes.
const HEADER: usize = 20;

/// Returns true if the segment may be answered with a reset: it is not a reset itself, and has a
/// TCP header.
#[inline(always)]
pub fn may_answer(ip: &Ip) -> bool {
    match ip.kind {
        L4::Tcp { flags } => flags & RST == 0 && ip.fragment != Fragment::Later,
        _ => false,
    }
}

/// Returns the length of the reset in bytes, IP header included. No TCP segment is shorter, so the
/// reset fits in its place.
#[inline(always)]
pub const fn reset_len(about: &Ip) -> usize {
    HEADER + if about.v6 { 40 } else { 20 }
}

/// Writes the reset over the segment, from its IP header on, [`reset_len`] bytes. The caller
/// truncates the rest. The reset's source is the segment's destination. Its sequence number is the
/// segment's acknowledgment number if the segment has one; otherwise it is 0, and the reset
/// acknowledges the segment.
#[inline(always)]
pub fn write_reset(w: &mut Window<'_>, about: &Ip) -> Result<(), Short> {
    let (at, l4, v6) = (usize::from(about.at), usize::from(about.l4), about.v6);
    let [ports, seq, ack, control]: [u32; 4] = w.load(l4)?;
    let [offset, flags, ..] = control.to_ne_bytes();
    let (seq, ack, flags) = if flags & ACK != 0 {
        (ack, 0, RST)
    } else {
        let header = u32::from(offset >> 4) * 4;
        let payload = u32::from(about.end).wrapping_sub(l4 as u32).wrapping_sub(header);
        let len = payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, u32::from_be(seq).wrapping_add(len).to_be(), RST | ACK)
    };
    let control = u32::from_ne_bytes([(HEADER as u8 / 4) << 4, flags, 0, 0]);
    let mut tcp = [ports.rotate_left(16), seq, ack, control, 0];
    let (from, to) = (&about.dst, &about.src);
    let sum = sum_words(&tcp) + pseudo(from, to, v6, TCP, HEADER as u32);
    let [c0, c1] = (!fold(sum)).to_ne_bytes();
    tcp[4] = u32::from_ne_bytes([c0, c1, 0, 0]);
    w.store(at + reset_len(about) - HEADER, tcp)?;
    write_header(w, at, about, 0, TCP, HEADER as u32)
}

#[cfg(test)]
mod tests;
