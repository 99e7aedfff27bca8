//! Tracepoint programs that count what the kernel lost after the XDP programs returned: failed
//! redirects, frames that a driver did not accept, and aborted programs.
//!
//! The kernel transmits after a program has returned, so that a program cannot count these losses.
//! The programs read fixed offsets of the tracepoints' records, which the loader compares with the
//! kernel's description before it attaches them. No helper is called that requires the GPL.
//!
//! Each lost frame is counted once. ENA, mlx5 and others raise `xdp_exception` for a redirect that
//! failed, for which the kernel has raised `xdp_redirect_err` before: exceptions with the action
//! XDP_REDIRECT are not counted. The tracepoints for bulk transmission do not identify the program,
//! only the interfaces, by indices that are unique only within a network namespace.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod object;
mod watched;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::{XDP_REDIRECT, XDP_TX};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, tracepoint};
use aya_ebpf::programs::TracePointContext;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use watched::{ABORTED, KINDS, REDIRECT_DROPPED, REDIRECT_REFUSED, SEND_DROPPED, Watched};

#[btf_map]
static WATCHED: Array<Watched, 1> = Array::new();
/// A [`watched::LossCounts`], shared by all CPUs: losses are rare. It is a flat array, because aya
/// computes the size of a nested one as that of a single row (`type_size` in aya-obj 0.3).
#[btf_map]
static LOSSES: Array<[AtomicU64; 4 * KINDS], 1> = Array::new();

/// The record of `xdp_exception`. All records begin with eight bytes of fields that all tracepoints
/// have in common.
#[repr(C)]
struct Exception {
    _common: u64,
    prog_id: u32,
    act: u32,
    ifindex: u32,
}

/// The record of `xdp_redirect_err`.
#[repr(C)]
struct RedirectError {
    _common: u64,
    prog_id: u32,
    _act: u32,
    ifindex: u32,
}

/// The record of `xdp_devmap_xmit`.
#[repr(C)]
struct DevmapXmit {
    _common: u64,
    from_ifindex: u32,
    _act: u32,
    to_ifindex: u32,
    drops: u32,
}

/// The record of `xdp_bulk_tx`.
#[repr(C)]
struct BulkTx {
    _common: u64,
    ifindex: u32,
    _act: u32,
    drops: u32,
}

/// Counts a program that was aborted, or whose action failed, as reported by a driver.
#[tracepoint(name = "xdp_exception", category = "xdp")]
pub fn xdp_exception(ctx: TracePointContext) -> u32 {
    // SAFETY: the record of the tracepoint to which the loader attaches this program.
    let event = unsafe { &*ctx.as_ptr().cast::<Exception>() };
    let Some(watched) = watched_by(event.prog_id) else { return 0 };
    let kind = match event.act {
        XDP_REDIRECT => return 0,
        XDP_TX => SEND_DROPPED,
        _ => ABORTED,
    };
    count(position(watched, event.ifindex), kind, 1);
    0
}

/// Counts a redirect that the kernel rejected.
#[tracepoint(name = "xdp_redirect_err", category = "xdp")]
pub fn xdp_redirect_err(ctx: TracePointContext) -> u32 {
    // SAFETY: the record of the tracepoint to which the loader attaches this program.
    let event = unsafe { &*ctx.as_ptr().cast::<RedirectError>() };
    let Some(watched) = watched_by(event.prog_id) else { return 0 };
    count(position(watched, event.ifindex), REDIRECT_REFUSED, 1);
    0
}

/// Counts redirected frames that a driver did not accept.
#[tracepoint(name = "xdp_devmap_xmit", category = "xdp")]
pub fn xdp_devmap_xmit(ctx: TracePointContext) -> u32 {
    // SAFETY: the record of the tracepoint to which the loader attaches this program.
    let event = unsafe { &*ctx.as_ptr().cast::<DevmapXmit>() };
    let Some(watched) = WATCHED.get(0) else { return 0 };
    if event.drops != 0 && position(watched, event.from_ifindex) < 4 {
        count(position(watched, event.to_ifindex), REDIRECT_DROPPED, event.drops);
    }
    0
}

/// Counts frames of XDP_TX that a driver did not accept.
#[tracepoint(name = "xdp_bulk_tx", category = "xdp")]
pub fn xdp_bulk_tx(ctx: TracePointContext) -> u32 {
    // SAFETY: the record of the tracepoint to which the loader attaches this program.
    let event = unsafe { &*ctx.as_ptr().cast::<BulkTx>() };
    let Some(watched) = WATCHED.get(0) else { return 0 };
    if event.drops != 0 {
        count(position(watched, event.ifindex), SEND_DROPPED, event.drops);
    }
    0
}

/// Returns the configuration if this XDP program is Weir's.
#[inline(always)]
fn watched_by(program: u32) -> Option<&'static Watched> {
    WATCHED.get(0).filter(|watched| watched.program == program)
}

/// Returns the position of an interface among the watched ones, or 4.
#[inline(always)]
fn position(watched: &Watched, ifindex: u32) -> usize {
    let [a, b, c, d] = watched.interfaces;
    match ifindex {
        0 => 4,
        i if i == a => 0,
        i if i == b => 1,
        i if i == c => 2,
        i if i == d => 3,
        _ => 4,
    }
}

#[inline(always)]
fn count(interface: usize, kind: usize, frames: u32) {
    let Some(losses) = LOSSES.get(0) else { return };
    if let Some(loss) = losses.get(interface * KINDS + kind) {
        loss.fetch_add(u64::from(frames), Relaxed);
    }
}
