//! Floors: what any program pays, and what one look-up and parsing cost. Tests ask `parse` what the
//! kernel's copy of `packet` finds, benches subtract them.
#![no_std]
#![no_main]

mod frame;
mod object;
mod open;
mod stages;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use frame::window;
use open::Report;
use packet::flow::HashKey;

/// What the last packet was.
#[btf_map]
static FOUND: Array<Report, 1> = Array::new();
/// Lines to be looked up, as many as there are ports.
#[btf_map]
static LINES: Array<[u64; 8], 65536> = Array::new();

/// Leaves everything to the kernel.
#[xdp(frags)]
pub fn pass(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Drops everything.
#[xdp(frags)]
pub fn nothing(_: XdpContext) -> u32 {
    XDP_DROP
}

/// Looks up one row of an array, whose number stands in the packet, as every step of the journey
/// does that asks a table.
#[xdp(frags)]
pub fn look_up(ctx: XdpContext) -> u32 {
    /// Where the outer source port stands, behind Ethernet and IPv4.
    const PORT: usize = 34;
    let Ok(row) = window(ctx.ctx).be16(PORT) else { return XDP_PASS };
    match LINES.get(u32::from(row)) {
        // It is zero: nobody writes to it.
        Some(line) if line[0] == 0 => XDP_DROP,
        _ => XDP_PASS,
    }
}

/// Says what the packet is.
#[xdp(frags)]
pub fn parse(ctx: XdpContext) -> u32 {
    let (Some(to), Some(found)) = (FOUND.get_ptr_mut(0), stages::work()) else { return XDP_DROP };
    let outcome = match stages::run(ctx.ctx) {
        Ok(()) => open::OPENED,
        Err(outcome) => outcome,
    };
    open::classify(found, &HashKey::new(0));
    // SAFETY: the array has one element; only tests read it, and run one packet at a time.
    unsafe { *to = Report::of(found, outcome) };
    XDP_DROP
}
