//! Reply: replies of the appliance itself, made from the packet and sent back to its sender.
//!
//! An ICMP error replaces the packet that it concerns, as in fastpath: the packet is cut to what
//! the error quotes, and the outer headers move forward by the size of the error's headers.

use crate::encap::tells_too_big;
use crate::frame::{cut_end, length, move_start, sum_from, window};
use crate::here::page;
use crate::next::{FINISH, OPEN, done, either, go, raw};
use crate::place::error_limit;
use crate::work::{Arrival, Reply, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ethernet;
use packet::icmp::{self, Trouble};
use packet::reset;
use packet::tunnel::{relength, return_in_place};
use packet::window::{Short, Window};
use tables::counters::{Counter, VerdictCounter};
use tables::error_limit::{Sending, network_key};
use tables::reason::DropReason;
use tables::region::Region;

/// Maximum number of bytes in front of an inner packet: Ethernet with a tag, IPv6 or IPv4 with
/// options, UDP, a tunnel header with options, an inner Ethernet header.
const MOST_IN_FRONT: usize = 18 + 60 + 8 + 8 + 252 + 18;
/// Maximum size of an error in bytes: its header and quote.
const MOST_OF_ERROR: usize = 1280;

/// The stage: replaces the packet by the reply in [`Work::reply`].
#[xdp(frags)]
pub fn reply(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = match work.reply {
        Reply::Echo => echo(ctx, work),
        Reply::TooBig => trouble(ctx, work, DropReason::TooBig),
        Reply::TimeExceeded => trouble(ctx, work, DropReason::TtlExceeded),
        Reply::Reset => reset(ctx, work),
    };
    go(ctx, either(next))
}

#[inline(always)]
fn echo(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let w = &mut window(ctx);
    if icmp::echo_reply(w, &work.inner).is_err() || send_back(w, work).is_err() {
        return Err(work.drop(DropReason::TooShort));
    }
    Ok(work.out(VerdictCounter::Reply, work.arm))
}

/// Replaces a TCP segment by a reset, which is never longer.
#[inline(always)]
fn reset(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    done(part_reset(ctx))?;
    let end = usize::from(work.inner.at) + reset::reset_len(&work.inner);
    let cut = length(ctx) as i32 - end as i32;
    if cut > 0 && !cut_end(ctx, cut) {
        return Err(work.drop(DropReason::TooShort));
    }
    let w = &mut window(ctx);
    if ends_here(w, work).is_err() || send_back(w, work).is_err() {
        return Err(work.drop(DropReason::TooShort));
    }
    Ok(work.out(VerdictCounter::Reply, work.arm))
}

/// Writes the reset over the segment.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_reset(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let w = &mut window(ctx);
    if !reset::may_answer(&work.inner) || reset::write_reset(w, &work.inner).is_err() {
        return work.drop(DropReason::TooShort);
    }
    OPEN
}

/// Replies with an ICMP error, or drops the packet for the reason `silent`.
#[inline(always)]
fn trouble(ctx: *mut xdp_md, work: &mut Work, silent: DropReason) -> Result<u32, u32> {
    // Packets of this host's kernel get no error: the kernel finds the MTU in its own routes.
    let wanted = work.arrival != Arrival::Kernel
        && icmp::may_answer(&work.inner)
        && (work.reply == Reply::TimeExceeded || tells_too_big(work));
    if !wanted || part_within_limit() != OPEN {
        return Err(work.drop(silent));
    }
    // Bytes in further buffers are not quoted; all headers are in the first one.
    let end = usize::from(work.inner.at) + icmp::quote_len(&work.inner);
    let end = end.min(window(ctx).len());
    let cut = length(ctx) as i32 - end as i32;
    let grown = (cut <= 0 || cut_end(ctx, cut))
        && move_start(ctx, -(icmp::error_header(&work.inner) as i32));
    if !grown {
        return Err(work.drop(silent));
    }
    work.reason = silent;
    done(part_move_front(ctx))?;
    done(part_error(ctx))?;
    if send_back(&mut window(ctx), work).is_err() {
        return Err(work.drop(silent));
    }
    Ok(work.out(VerdictCounter::Reply, work.arm))
}

/// Returns [`OPEN`] if an error to this packet's sender is within the limits; counts errors that
/// are not.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_within_limit() -> u32 {
    let (Some(work), Some(limit)) = (work(), error_limit()) else { return FINISH };
    let network = network_key(&work.inner.src).hash(&Region.hash_key());
    let too_big = work.reply == Reply::TooBig;
    let sending = Sending { arm: work.arm, too_big, network };
    let limits = &work.set().settings().error_limits;
    if limit.may_send(&sending, limits, work.now_s) {
        return OPEN;
    }
    page().count(Counter::IcmpErrorsLimited, 1);
    FINISH
}

/// Moves everything in front of the inner packet to the start of the frame.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_move_front(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let (w, by) = (&mut window(ctx), icmp::error_header(&work.inner));
    let front = usize::from(work.inner.at);
    for i in 0..MOST_IN_FRONT / 2 {
        if i * 2 >= front {
            return OPEN;
        }
        // Headers have an even length.
        let moved = w.load::<u16>(by + i * 2).and_then(|word| w.store(i * 2, word));
        if moved.is_err() {
            return FINISH;
        }
    }
    OPEN
}

/// Writes the error after the outer headers, and corrects their lengths.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_error(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let w = &mut window(ctx);
    let (at, header) = (usize::from(work.inner.at), icmp::error_header(&work.inner));
    let trouble = match work.reply {
        Reply::TooBig => Trouble::TooBig(work.mtu),
        _ => Trouble::TimeExceeded,
    };
    let quote = sum_from(w, at + header, MOST_OF_ERROR / 32);
    let written = icmp::write_error_around(w, at, &work.inner, trouble, quote);
    if written.is_err() || ends_here(w, work).is_err() {
        return work.drop(work.reason);
    }
    OPEN
}

/// Sets the lengths in the outer headers to the end of the frame.
#[inline(always)]
fn ends_here(w: &mut Window<'_>, work: &Work) -> Result<(), Short> {
    if work.arrival == Arrival::Plain {
        return Ok(());
    }
    let end = w.len();
    match relength(w, &work.outer, end)? {
        // Computing the checksum of the whole packet exceeds the verifier's limit; a zero checksum
        // is valid as well.
        Some(udp) => w.store(udp + 6, 0_u16),
        None => Ok(()),
    }
}

/// Reverses the direction of the frame, with or without a tunnel.
#[inline(always)]
fn send_back(w: &mut Window<'_>, work: &Work) -> Result<(), Short> {
    match work.arrival {
        Arrival::Plain => ethernet::swap(w)?,
        _ => return_in_place(w, &work.outer)?,
    }
    if work.inner_eth != 0 {
        // The frame inside VXLAN is reversed too. Swapping addresses does not change checksums.
        ethernet::swap_at(w, work.inner_eth)?;
    }
    Ok(())
}
