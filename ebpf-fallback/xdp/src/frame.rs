//! Access to a frame through its XDP context.

use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::{bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len};
use packet::window::{MAX_FRAME, Window};

/// Returns a window onto the frame's first buffer.
#[inline(always)]
pub fn window<'a>(ctx: *mut xdp_md) -> Window<'a> {
    // SAFETY: the context is that of the program call, which the verifier checks.
    let (frame, start, end) =
        unsafe { (bpf_xdp_get_buff_len(ctx) as usize, (*ctx).data, (*ctx).data_end) };
    let frame = if frame > MAX_FRAME { MAX_FRAME } else { frame };
    // SAFETY: the two addresses delimit the frame's first buffer, which only this program accesses.
    unsafe { Window::between(start as usize as *mut u8, end as usize as *mut u8, frame) }
}

/// Returns the size of the whole frame in bytes.
#[inline(always)]
pub fn length(ctx: *mut xdp_md) -> u64 {
    // SAFETY: the context is that of the program call, which the verifier checks.
    unsafe { bpf_xdp_get_buff_len(ctx) }
}

/// Returns whether the frame consists of more than one buffer.
#[inline(always)]
pub fn is_chained(ctx: *mut xdp_md) -> bool {
    let w = window(ctx);
    w.frame_len() > w.len()
}

/// Moves the start of the frame by `bytes`, forward if positive; returns false if there is not
/// enough headroom, or the frame would become too short.
#[inline(always)]
pub fn move_start(ctx: *mut xdp_md, bytes: i32) -> bool {
    // SAFETY: earlier windows are not used afterwards.
    unsafe { bpf_xdp_adjust_head(ctx, bytes) == 0 }
}

/// Removes `bytes` from the end of the frame; returns false if the frame would become too short.
#[inline(always)]
pub fn cut_end(ctx: *mut xdp_md, bytes: i32) -> bool {
    // SAFETY: earlier windows are not used afterwards.
    unsafe { bpf_xdp_adjust_tail(ctx, -bytes) == 0 }
}

/// Returns the ones' complement sum (not folded) from `at` to the end of the window: of at most
/// `max_blocks` blocks of 32 bytes, and of a remainder of at most 31 bytes.
#[inline(always)]
pub fn sum_from(w: &Window<'_>, at: usize, max_blocks: usize) -> u64 {
    let mut total = 0;
    let mut at = at;
    for _ in 0..max_blocks {
        let Ok(words) = w.load::<[u32; 8]>(at) else { break };
        for word in words {
            total += u64::from(word);
        }
        at += 32;
    }
    for _ in 0..7 {
        let Ok(word) = w.load::<u32>(at) else { break };
        total += u64::from(word);
        at += 4;
    }
    if let Ok(word) = w.load::<u16>(at) {
        total += u64::from(word);
        at += 2;
    }
    total + w.byte(at).map_or(0, u64::from)
}
