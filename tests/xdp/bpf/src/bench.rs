//! Writes packets of many flows and passes each to the packet path, for measurements.
//!
//! Each repetition of the kernel's test run gets the frame as the previous one left it, so
//! repetitions of the packet path would nest tunnels. This program restores the frame's length,
//! rewrites the whole frame with the addresses and ports of the next packet, and tail-calls the
//! program in [`NEXT`]. Without a program in [`NEXT`], or with one that drops, a run measures the
//! writing alone, which benchmarks subtract.
#![no_std]
#![no_main]

#[path = "../../../../ebpf-fallback/xdp/src/frame.rs"]
mod frame;
#[path = "../../../../ebpf-fallback/xdp/src/object.rs"]
mod object;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, map, xdp};
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::XdpContext;
use frame::{length, move_start, window};
use packet::window::Short;

/// The longest frame, in 64-bit words.
const WORDS: usize = 21;
/// The maximum number of packets in a round, in which each packet occurs once: requests and answers
/// of 65,536 flows.
const PACKETS: usize = 1 << 17;

/// A frame without the fields that differ between flows.
#[repr(C)]
pub struct Template {
    /// Bytes of the frame, an even number.
    len: u32,
    /// Offset of the inner IP packet.
    inner: u32,
    /// 1 if the inner packet is IPv6, otherwise 0.
    v6: u32,
    /// Sum of the inner IPv4 header without checksum and addresses.
    sum: u32,
    /// Sum of the outer IPv4 header without checksum and source; 0 if the outer header is IPv6, or
    /// if its source does not differ between flows.
    outer_sum: u32,
    /// Offset of the last word of the outer source, if it differs between flows; otherwise 0.
    outer: u32,
    frame: [u64; WORDS],
}

/// The fields that differ between flows, in host order.
#[repr(C)]
pub struct Ends {
    /// Last word of the inner source.
    src: u32,
    /// Last word of the inner destination.
    dst: u32,
    /// Source port, destination port.
    ports: u32,
    /// Last word of the outer source.
    outer: u32,
}

/// The parameters from user space, and the position. The next packet has the number
/// `position & mask`.
#[repr(C)]
pub struct Feed {
    position: u64,
    mask: u64,
    /// The templates of even and of odd packets.
    templates: [Template; 2],
}

/// One value: see [`Feed`].
#[btf_map]
static FEED: Array<Feed, 1> = Array::new();
/// The addresses and ports of each packet of the round.
#[btf_map]
static ENDS: Array<Ends, PACKETS> = Array::new();
/// The program under measurement, at index 0.
#[map]
static NEXT: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Writes the next packet and passes it on.
#[xdp(frags)]
pub fn feed(ctx: XdpContext) -> u32 {
    let Some(feed) = FEED.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: the benchmark runs one program on one processor.
    let feed = unsafe { &mut *feed };
    let Some(ends) = ENDS.get((feed.position & feed.mask) as u32) else { return XDP_DROP };
    if write(&ctx, &feed.templates[(feed.position & 1) as usize], ends).is_ok() {
        feed.position += 1;
        // SAFETY: the called program is an XDP program too, and gets the context of this one.
        unsafe { NEXT.tail_call(&ctx, 0) };
    }
    XDP_DROP
}

#[inline(always)]
fn write(ctx: &XdpContext, template: &Template, ends: &Ends) -> Result<(), Short> {
    let raw = ctx.as_ptr().cast();
    let len = template.len as usize;
    if !move_start(raw, length(raw) as i32 - len as i32) {
        return Err(Short);
    }
    let mut w = window(raw);
    let mut at = 0;
    for word in &template.frame {
        if at + 8 > len {
            // Bytes after the last whole word.
            for half in 0..3 {
                if at + 2 * half < len {
                    w.store(at + 2 * half, (*word >> (16 * half)) as u16)?;
                }
            }
            break;
        }
        w.store(at, *word)?;
        at += 8;
    }
    if template.outer != 0 {
        w.set_be32(template.outer as usize, ends.outer)?;
        if template.outer_sum != 0 {
            // 24 is the offset of the outer IPv4 header's checksum.
            w.set_be16(24, checksum(template.outer_sum + halves(ends.outer)))?;
        }
    }
    let inner = template.inner as usize;
    if template.v6 != 0 {
        w.set_be32(inner + 20, ends.src)?;
        w.set_be32(inner + 36, ends.dst)?;
        return w.set_be32(inner + 40, ends.ports);
    }
    let sum = template.sum + halves(ends.src) + halves(ends.dst);
    w.set_be16(inner + 10, checksum(sum))?;
    w.set_be32(inner + 12, ends.src)?;
    w.set_be32(inner + 16, ends.dst)?;
    w.set_be32(inner + 20, ends.ports)
}

/// Returns the sum of the two halves of a word.
#[inline(always)]
fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

/// Returns the checksum of a header whose 16-bit words have this sum.
#[inline(always)]
fn checksum(sum: u32) -> u16 {
    !halves(halves(sum)) as u16
}
