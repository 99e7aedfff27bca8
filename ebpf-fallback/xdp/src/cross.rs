//! Cross: NAT between address families (NAT46, NAT64). In addition to the rewriting in `nat`,
//! headers are translated (RFC 7915), which changes their length.

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

/// Result of [`part_translate`]: the datagram lacks the checksum that IPv6 requires.
const UNSUMMED: u32 = 40;
/// Maximum size of a datagram for which a checksum is computed, in bytes: what a frame's first
/// buffer, a page, can contain.
const MOST_SUMMED: usize = 3_584;

/// The stage. Packets towards the client's side come from `front` and return to it.
#[xdp(frags)]
pub fn cross(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = either(if work.home { to_client(ctx, work) } else { to_backend(ctx, work) });
    go(ctx, next)
}

/// Translates a packet towards the backend into the backend's family.
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

/// Translates a packet from a backend into the client's family.
#[inline(always)]
fn to_client(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    done(part_ends())?;
    to_other_family(ctx, work)?;
    work.crossed = true;
    Ok(FRONT)
}

/// Returns the size of the translated packet in bytes.
#[inline(always)]
pub fn translated_len(work: &Work) -> u32 {
    let quoted = if work.quotes { Some(&work.quoted) } else { None };
    translate::translated_len(&work.inner, quoted)
}

/// Translates a packet and decrements its TTL. Afterwards the packet is at the start of the frame.
#[inline(always)]
fn to_other_family(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    work.inner.ttl = work.inner.ttl.wrapping_sub(1);
    part_clamp(ctx);
    let padding = length(ctx) as i32 - i32::from(work.inner.end);
    if padding > 0 && !is_chained(ctx) {
        // Cannot fail: the frame is in one buffer and longer than the padding.
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
            // The sender omitted the checksum; it is computed if the whole datagram is in the first
            // buffer.
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

/// Checks whether the header of the packet, or (1) of the packet that it quotes, can be translated.
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

/// Computes the translated header of the quoted packet.
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

/// Rewrites the part of a packet that is kept, and computes its new headers.
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

/// Computes the missing checksum of a datagram.
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

/// As `part_translate`, for an ICMP error and the packet that it quotes.
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

/// Writes the new headers at the start of the frame.
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
