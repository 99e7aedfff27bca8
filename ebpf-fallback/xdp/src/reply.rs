//! Reply: replies of the appliance itself, made from the packet and sent back to its sender.
//!
//! An ICMP error replaces the packet that it concerns, as in fastpath: the packet is cut to what
//! the error quotes, and the outer headers move forward by the size of the error's headers.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::page;
use crate::encap::reports_too_big;
use crate::frame::{cut_end, length, move_start, sum_from, window};
use crate::next::{CONTINUE, FINISH, check_next, next_stage, raw, run_stage};
use crate::packet_state::{Arrival, PacketState, Reply, packet_state};
use crate::runtime::error_limit;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet;
use packet::icmp::{self, IcmpError};
use packet::reset;
use packet::tunnel::{return_in_place, set_length_fields};
use packet::window::{Short, Window};
use tables::counters::{Counter, VerdictCounter};
use tables::error_limit::{OutgoingError, network_key};
use tables::reason::DropReason;
use tables::region::Region;

/// Maximum number of bytes in front of an inner packet: Ethernet with a tag, IPv6 or IPv4 with
/// options, UDP, a tunnel header with options, an inner Ethernet header.
const MAX_FRONT: usize = 18 + 60 + 8 + 8 + 252 + 18;
/// Maximum size of an ICMP error with its headers and quote, in bytes.
const MAX_ERROR: usize = 1280;

/// The stage: replaces the packet by the reply in [`PacketState::reply`].
#[xdp(frags)]
pub fn reply(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = match pkt.reply {
        Reply::Echo => echo(ctx, pkt),
        Reply::TooBig => icmp_error(ctx, pkt, DropReason::TooBig),
        Reply::TimeExceeded => icmp_error(ctx, pkt, DropReason::TtlExceeded),
        Reply::Reset => reset(ctx, pkt),
    };
    run_stage(ctx, next_stage(next))
}

#[inline(always)]
fn echo(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let w = &mut window(ctx);
    if icmp::echo_reply(w, &pkt.inner).is_err() || send_back(w, pkt).is_err() {
        return Err(pkt.drop(DropReason::TooShort));
    }
    Ok(pkt.transmit(VerdictCounter::Reply, pkt.arm))
}

/// Replaces a TCP segment by a reset, which is never longer.
#[inline(always)]
fn reset(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    check_next(part_reset(ctx))?;
    let end = usize::from(pkt.inner.at) + reset::reset_len(&pkt.inner);
    let cut = length(ctx) as i32 - end as i32;
    if cut > 0 && !cut_end(ctx, cut) {
        return Err(pkt.drop(DropReason::TooShort));
    }
    let w = &mut window(ctx);
    if set_outer_lengths(w, pkt).is_err() || send_back(w, pkt).is_err() {
        return Err(pkt.drop(DropReason::TooShort));
    }
    Ok(pkt.transmit(VerdictCounter::Reply, pkt.arm))
}

/// Writes the reset over the segment.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_reset(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = &mut window(ctx);
    if !reset::may_answer(&pkt.inner) || reset::write_reset(w, &pkt.inner).is_err() {
        return pkt.drop(DropReason::TooShort);
    }
    CONTINUE
}

/// Replies with an ICMP error, or drops the packet for the reason `silent`.
#[inline(always)]
fn icmp_error(ctx: *mut xdp_md, pkt: &mut PacketState, silent: DropReason) -> Result<u32, u32> {
    // Packets of this host's kernel get no error: the kernel finds the MTU in its own routes.
    let permitted = pkt.arrival != Arrival::Kernel
        && icmp::may_answer(&pkt.inner)
        && (pkt.reply == Reply::TimeExceeded || reports_too_big(pkt));
    if !permitted || part_within_limit() != CONTINUE {
        return Err(pkt.drop(silent));
    }
    // Bytes in further buffers are not quoted; all headers are in the first one.
    let end = usize::from(pkt.inner.at) + icmp::quote_len(&pkt.inner);
    let end = end.min(window(ctx).len());
    let cut = length(ctx) as i32 - end as i32;
    let grown = (cut <= 0 || cut_end(ctx, cut))
        && move_start(ctx, -(icmp::error_header(&pkt.inner) as i32));
    if !grown {
        return Err(pkt.drop(silent));
    }
    pkt.reason = silent;
    check_next(part_move_front(ctx))?;
    check_next(part_error(ctx))?;
    if send_back(&mut window(ctx), pkt).is_err() {
        return Err(pkt.drop(silent));
    }
    Ok(pkt.transmit(VerdictCounter::Reply, pkt.arm))
}

/// Returns [`CONTINUE`] if an ICMP error to this packet's sender is within the limits, and counts
/// an error that is not.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_within_limit() -> u32 {
    let (Some(pkt), Some(limit)) = (packet_state(), error_limit()) else { return FINISH };
    let network = network_key(&pkt.inner.src).hash(&Region.hash_key());
    let too_big = pkt.reply == Reply::TooBig;
    let sending = OutgoingError { arm: pkt.arm, too_big, network };
    let limits = &pkt.set().settings().error_limits;
    if limit.may_send(&sending, limits, pkt.now_s) {
        return CONTINUE;
    }
    page().count(Counter::IcmpErrorsLimited, 1);
    FINISH
}

/// Moves everything in front of the inner packet to the start of the frame.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_move_front(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (w, by) = (&mut window(ctx), icmp::error_header(&pkt.inner));
    let front = usize::from(pkt.inner.at);
    for i in 0..MAX_FRONT / 2 {
        if i * 2 >= front {
            return CONTINUE;
        }
        // Headers have an even length.
        let moved = w.load::<u16>(by + i * 2).and_then(|word| w.store(i * 2, word));
        if moved.is_err() {
            return FINISH;
        }
    }
    CONTINUE
}

/// Writes the ICMP error after the outer headers, and corrects the lengths in these.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_error(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = &mut window(ctx);
    let (at, header) = (usize::from(pkt.inner.at), icmp::error_header(&pkt.inner));
    let error = match pkt.reply {
        Reply::TooBig => IcmpError::TooBig(pkt.mtu),
        _ => IcmpError::TimeExceeded,
    };
    let quote = sum_from(w, at + header, MAX_ERROR / 32);
    let written = icmp::write_error_around(w, at, &pkt.inner, error, quote);
    if written.is_err() || set_outer_lengths(w, pkt).is_err() {
        return pkt.drop(pkt.reason);
    }
    CONTINUE
}

/// Sets the lengths in the outer headers to the end of the frame.
#[inline(always)]
fn set_outer_lengths(w: &mut Window<'_>, pkt: &PacketState) -> Result<(), Short> {
    if pkt.arrival == Arrival::Plain {
        return Ok(());
    }
    let end = w.len();
    match set_length_fields(w, &pkt.outer, end)? {
        // Computing the checksum of the whole packet exceeds the verifier's limit; a zero checksum
        // is valid as well.
        Some(udp) => w.store(udp + 6, 0_u16),
        None => Ok(()),
    }
}

/// Reverses the direction of the frame, with or without a tunnel.
#[inline(always)]
fn send_back(w: &mut Window<'_>, pkt: &PacketState) -> Result<(), Short> {
    match pkt.arrival {
        Arrival::Plain => ethernet::swap(w)?,
        _ => return_in_place(w, &pkt.outer)?,
    }
    if pkt.inner_eth != 0 {
        // The frame inside VXLAN is reversed too. Swapping addresses does not change checksums.
        ethernet::swap_at(w, pkt.inner_eth)?;
    }
    Ok(())
}
