//! Feeds a journey with packets of many flows, to be measured: each run puts the frame back as the
//! gateway sent it, gives it another flow's ends and goes on to the program in [`NEXT`].
//!
//! The kernel's test run hands a program the frame that it left, so a journey that is simply
//! repeated puts tunnel into tunnel. Without a program in [`NEXT`] this is all that is measured,
//! and can be subtracted.
#![no_std]
#![no_main]

mod frame;
mod object;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, map, xdp};
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::XdpContext;
use frame::{length, move_start, window};
use packet::window::Short;

/// Bytes of a frame, in words: 146, and what pads them.
const WORDS: usize = 19;
const FRAME: usize = 146;
/// Where the packet inside the tunnel begins.
const INNER: usize = FRAME - 64;
/// As in `perf`'s own feed: so many ports has a client, so many addresses the services.
const CLIENT_PORTS: u32 = 1 << 14;
const FRONTENDS: u32 = 1000;

/// What user space asks for, and how far it is. Flow number `turn * stride & mask` is next.
#[repr(C)]
pub struct Feed {
    turn: u64,
    mask: u64,
    stride: u64,
    /// Of the first flow: the ends' addresses, both ports, the header's sum without checksum and
    /// addresses.
    src: u32,
    dst: u32,
    ports: u32,
    sum: u32,
    frame: [u64; WORDS],
}

#[btf_map]
static FEED: Array<Feed, 1> = Array::new();
/// What is measured, in its only place.
#[map]
static NEXT: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// The next packet.
#[xdp(frags)]
pub fn feed(ctx: XdpContext) -> u32 {
    let Some(feed) = FEED.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: the bench runs one program on one processor.
    let feed = unsafe { &mut *feed };
    if write(&ctx, feed).is_ok() {
        feed.turn += 1;
        // SAFETY: a program of the same kind, with the context that this one was called with.
        unsafe { NEXT.tail_call(&ctx, 0) };
    }
    XDP_DROP
}

#[inline(always)]
fn write(ctx: &XdpContext, feed: &Feed) -> Result<(), Short> {
    let raw = ctx.as_ptr().cast();
    if !move_start(raw, length(raw) as i32 - FRAME as i32) {
        return Err(Short);
    }
    let mut w = window(raw);
    let mut i = 0;
    while i < WORDS - 1 {
        w.store(i * 8, feed.frame[i])?;
        i += 1;
    }
    w.store(i * 8, feed.frame[i] as u16)?;
    let flow = (feed.turn.wrapping_mul(feed.stride) & feed.mask) as u32;
    let src = feed.src + flow / CLIENT_PORTS;
    let dst = feed.dst + flow % FRONTENDS;
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let sum = halves(halves(feed.sum + halves(src) + halves(dst)));
    w.set_be16(INNER + 10, !sum as u16)?;
    w.set_be32(INNER + 12, src)?;
    w.set_be32(INNER + 16, dst)?;
    w.set_be32(INNER + 20, feed.ports + (flow % CLIENT_PORTS << 16))
}
