//! A frame as the kernel hands it over.

use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use packet::window::{MAX_FRAME, Window};

/// The window onto a frame's first buffer.
#[inline(always)]
pub fn window<'a>(ctx: *mut xdp_md) -> Window<'a> {
    // SAFETY: the context is the one that the program was called with; the verifier sees to it.
    let (frame, start, end) =
        unsafe { (bpf_xdp_get_buff_len(ctx) as usize, (*ctx).data, (*ctx).data_end) };
    let frame = if frame > MAX_FRAME { MAX_FRAME } else { frame };
    // SAFETY: between the two addresses lies the frame's first buffer, this program's alone.
    unsafe { Window::between(start as usize as *mut u8, end as usize as *mut u8, frame) }
}
