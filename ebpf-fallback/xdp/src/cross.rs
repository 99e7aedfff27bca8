//! Cross: NAT between families (NAT46, NAT64). What `nat` does to a packet's ends is done here with
//! its headers as well (RFC 7915), which get longer or shorter.

use crate::encap::{ends_here, next_hop, part_clamp, plain_frame, take_off, too_big};
use crate::frame::{cut_end, is_chained, length, move_start, sum_from, window};
use crate::nat::{outward, part_ends};
use crate::next::{FINISH, FRONT, OPEN, done, either, go, raw};
use crate::work::{Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Ip;
use packet::translate::{self, Untranslatable};
use tables::counters::VerdictCounter;
use tables::reason::DropReason;

/// What [`part_translate`] says besides [`OPEN`]: it lacks the checksum that IPv6 demands.
const UNSUMMED: u32 = 40;
/// The longest datagram that is given one, bytes: what a frame's first buffer, a page, can hold.
const MOST_SUMMED: usize = 3_584;

/// The stage. What goes back to the client's side comes from `front`, and goes on there.
#[xdp(frags)]
pub fn cross(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = either(if work.home { to_client(ctx, work) } else { to_backend(ctx, work) });
    go(ctx, next)
}

/// Makes of a packet on its way to the backend one of the backend's family.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let way = next_hop(work)?;
    if translated_len(work) > u32::from(way.mtu) {
        let mtu = translate::sender_mtu(&work.inner, way.mtu);
        return Err(too_big(work, mtu));
    }
    ends_here(work)?;
    take_off(ctx, work)?;
    outward(work);
    to_other_family(ctx, work)?;
    plain_frame(ctx, work, &way.macs, 0)?;
    Ok(work.out(VerdictCounter::Nat, way.arm))
}

/// Makes of what a backend answers a packet of the client's family.
#[inline(always)]
fn to_client(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    done(part_ends())?;
    to_other_family(ctx, work)?;
    work.crossed = true;
    Ok(FRONT)
}

/// Bytes that the packet has once it is translated.
#[inline(always)]
pub fn translated_len(work: &Work) -> u32 {
    let quoted = if work.quotes { Some(&work.quoted) } else { None };
    translate::translated_len(&work.inner, quoted)
}

/// Translates a packet that has lost its hop. It begins the frame then.
#[inline(always)]
fn to_other_family(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    work.inner.ttl = work.inner.ttl.wrapping_sub(1);
    part_clamp(ctx);
    let padding = length(ctx) as i32 - i32::from(work.inner.end);
    if padding > 0 && !is_chained(ctx) {
        // It can't fail: the frame is in one piece, and longer than that.
        cut_end(ctx, padding);
    }
    done(part_place_in_datagram(ctx, 0))?;
    if work.quotes {
        done(part_place_in_datagram(ctx, 1))?;
        done(part_quoted_header(ctx))?;
        done(part_translate_error(ctx))?;
    } else {
        let mut next = part_translate(ctx);
        if next == UNSUMMED {
            // Where all of it is at hand, it is given the checksum that its sender spared.
            done(part_complete(ctx))?;
            next = part_translate(ctx);
        }
        done(next)?;
    }
    if !move_start(ctx, i32::from(work.new.keeps) - i32::from(work.new.len())) {
        return Err(work.drop(DropReason::NoHeadroom));
    }
    done(part_write_front(ctx))
}

/// Looks whether the header of the packet, or (1) of the one that it quotes, has a translation.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_place_in_datagram(ctx: *mut xdp_md, quoted: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let ip: &Ip = if quoted != 0 { &work.quoted } else { &work.inner };
    match translate::piece(&window(ctx), ip) {
        Ok(piece) => {
            work.piece = piece;
            OPEN
        }
        Err(why) => refused(work, why),
    }
}

/// Works out the header that the quoted packet is to have.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted_header(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    match translate::quoted_header(&window(ctx), &work.quoted, work.piece, &work.quote) {
        Ok(header) => {
            work.new.quote = header;
            OPEN
        }
        Err(why) => refused(work, why),
    }
}

/// Changes what stays of a packet, and works out what is to stand in front.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_translate(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    match translate::packet_as(&mut window(ctx), &work.inner, work.piece, &work.to) {
        Ok(new) => {
            work.new = new;
            OPEN
        }
        Err(Untranslatable::Unsummed) => UNSUMMED,
        Err(why) => refused(work, why),
    }
}

/// Gives a datagram the checksum that it came without.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_complete(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let (w, end) = (&mut window(ctx), usize::from(work.inner.end));
    let l4 = usize::from(work.inner.l4);
    let whole = w.len() == end && end - l4 <= MOST_SUMMED;
    let sum = if whole { sum_from(w, l4, MOST_SUMMED / 32) } else { 0 };
    if !whole || translate::complete_by(w, &work.inner, sum).is_err() {
        return work.drop(DropReason::NotTranslatable);
    }
    OPEN
}

/// The same of an error and what it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_translate_error(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let (w, inside) = (&mut window(ctx), work.new.quote);
    let (error, quoted) = (&work.inner, &work.quoted);
    match translate::error_around(w, error, quoted, &work.to, &work.quote, &inside) {
        Ok(new) => {
            work.new = new;
            OPEN
        }
        Err(why) => refused(work, why),
    }
}

#[inline(always)]
fn refused(work: &mut Work, why: Untranslatable) -> u32 {
    work.drop(match why {
        Untranslatable::Short => DropReason::TooShort,
        Untranslatable::Nothing | Untranslatable::Unsummed => DropReason::NotTranslatable,
    })
}

/// Writes what stands in front, at the frame's start.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_write_front(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    if work.new.write(&mut window(ctx), 0).is_err() {
        return work.drop(DropReason::TooShort);
    }
    work.new.place(0, &mut work.inner);
    OPEN
}
