//! Nat64: NAT between address families (NAT46, NAT64). In addition to the rewriting in `nat`,
//! headers are translated (RFC 7915), which changes their length.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::encap::{check_ttl, next_hop, part_clamp, plain_frame, too_big, update_ecn_and_ttl};
use crate::frame::{cut_end, is_chained, length, move_start, sum_from, window};
use crate::nat::{compute_forward_rewrites, part_ends};
use crate::next::{CONTINUE, FINISH, FRONT, check_next, next_stage, raw, run_stage};
use crate::packet_state::{PacketState, packet_state};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Ip;
use packet::translate::{self, Untranslatable};
use tables::counters::VerdictCounter;
use tables::reason::DropReason;

/// Result of [`part_translate`]: the datagram lacks the checksum that IPv6 requires. Not a stage
/// number.
const UNSUMMED: u32 = 40;
/// Maximum size in bytes of a datagram for which a checksum is computed: about what a frame's first
/// buffer holds, which is a page less headroom and tailroom.
const MAX_SUMMED: usize = 3_584;

/// The stage: translates a packet. Packets to the client's side come from the stage `front` and
/// return to it.
#[xdp(frags)]
pub fn nat64(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = next_stage(if pkt.to_client { to_client(ctx, pkt) } else { to_backend(ctx, pkt) });
    run_stage(ctx, next)
}

/// Translates a packet towards the backend into the backend's family.
#[inline(always)]
fn to_backend(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let route = next_hop(pkt)?;
    if translated_len(pkt) > u32::from(route.mtu) {
        let mtu = translate::sender_mtu(&pkt.inner, route.mtu);
        return Err(too_big(pkt, mtu));
    }
    check_ttl(pkt)?;
    update_ecn_and_ttl(ctx, pkt)?;
    compute_forward_rewrites(pkt);
    translate_packet(ctx, pkt)?;
    plain_frame(ctx, pkt, &route.macs, 0)?;
    Ok(pkt.transmit(VerdictCounter::Nat, route.arm))
}

/// Translates a packet from a backend into the client's family.
#[inline(always)]
fn to_client(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    check_next(part_ends())?;
    translate_packet(ctx, pkt)?;
    pkt.translated = true;
    Ok(FRONT)
}

/// Returns the size of the translated packet in bytes.
#[inline(always)]
pub fn translated_len(pkt: &PacketState) -> u32 {
    let quoted = if pkt.has_quoted { Some(&pkt.quoted) } else { None };
    translate::translated_len(&pkt.inner, quoted)
}

/// Translates a packet whose TTL was decremented in the frame but not in `pkt`. Afterwards the
/// packet is at the start of the frame.
#[inline(always)]
fn translate_packet(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<(), u32> {
    pkt.inner.ttl = pkt.inner.ttl.wrapping_sub(1);
    part_clamp(ctx);
    let padding = length(ctx) as i32 - i32::from(pkt.inner.end);
    if padding > 0 && !is_chained(ctx) {
        // Cannot fail: the frame is in one buffer and longer than the padding.
        cut_end(ctx, padding);
    }
    check_next(part_fragment_bits(ctx, 0))?;
    if pkt.has_quoted {
        check_next(part_fragment_bits(ctx, 1))?;
        check_next(part_quoted_header(ctx))?;
        check_next(part_translate_error(ctx))?;
    } else {
        let mut next = part_translate(ctx);
        if next == UNSUMMED {
            // The sender omitted the checksum. It can be computed only if the whole datagram is in
            // the first buffer.
            check_next(part_complete(ctx))?;
            next = part_translate(ctx);
        }
        check_next(next)?;
    }
    if !move_start(ctx, i32::from(pkt.new_headers.kept_from) - i32::from(pkt.new_headers.len())) {
        return Err(pkt.drop(DropReason::NoHeadroom));
    }
    check_next(part_write_front(ctx))
}

/// Checks whether the header of the packet, or of the packet that it quotes (`quoted` is 1), can be
/// translated. Stores its fragment offset and flags in [`PacketState::fragment_bits`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_fragment_bits(ctx: *mut xdp_md, quoted: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ip: &Ip = if quoted != 0 { &pkt.quoted } else { &pkt.inner };
    match translate::fragment_bits(&window(ctx), ip) {
        Ok(fragment_bits) => {
            pkt.fragment_bits = fragment_bits;
            CONTINUE
        }
        Err(cause) => reject(pkt, cause),
    }
}

/// Computes the translated header of the quoted packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted_header(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match translate::quoted_header(&window(ctx), &pkt.quoted, pkt.fragment_bits, &pkt.quote) {
        Ok(header) => {
            pkt.new_headers.quote = header;
            CONTINUE
        }
        Err(cause) => reject(pkt, cause),
    }
}

/// Rewrites the part of a packet that is kept, and computes its new headers.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_translate(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match translate::packet_as(&mut window(ctx), &pkt.inner, pkt.fragment_bits, &pkt.rewrite) {
        Ok(new) => {
            pkt.new_headers = new;
            CONTINUE
        }
        Err(Untranslatable::ZeroUdpChecksum) => UNSUMMED,
        Err(cause) => reject(pkt, cause),
    }
}

/// Computes the missing checksum of a datagram.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_complete(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (w, end) = (&mut window(ctx), usize::from(pkt.inner.end));
    let l4 = usize::from(pkt.inner.l4);
    let fits = w.len() == end && end - l4 <= MAX_SUMMED;
    let sum = if fits { sum_from(w, l4, MAX_SUMMED / 32) } else { 0 };
    if !fits || translate::add_udp_checksum_from(w, &pkt.inner, sum).is_err() {
        return pkt.drop(DropReason::NotTranslatable);
    }
    CONTINUE
}

/// As `part_translate`, for an ICMP error and the packet that it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_translate_error(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (w, inside) = (&mut window(ctx), pkt.new_headers.quote);
    let (error, quoted) = (&pkt.inner, &pkt.quoted);
    match translate::error_around(w, error, quoted, &pkt.rewrite, &pkt.quote, &inside) {
        Ok(new) => {
            pkt.new_headers = new;
            CONTINUE
        }
        Err(cause) => reject(pkt, cause),
    }
}

#[inline(always)]
fn reject(pkt: &mut PacketState, cause: Untranslatable) -> u32 {
    pkt.drop(match cause {
        Untranslatable::Short => DropReason::TooShort,
        Untranslatable::NoEquivalent | Untranslatable::ZeroUdpChecksum => {
            DropReason::NotTranslatable
        }
    })
}

/// Writes the new headers at the start of the frame.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_write_front(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if pkt.new_headers.write(&mut window(ctx), 0).is_err() {
        return pkt.drop(DropReason::TooShort);
    }
    pkt.new_headers.update_parsed(0, &mut pkt.inner);
    CONTINUE
}
