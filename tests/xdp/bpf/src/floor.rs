//! Baselines of measurements: the minimum cost of any program, and the costs of one lookup, of the
//! kernel's LRU flow table and of parsing. Tests read the results of `parse`.
#![no_std]
#![no_main]

#[path = "../../../../ebpf-fallback/xdp/src/frame.rs"]
mod frame;
#[path = "../../../../ebpf-fallback/xdp/src/object.rs"]
mod object;
mod parser;
mod stages;

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, map, xdp};
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::XdpContext;
use frame::window;
use packet::flow::HashKey;
use packet::window::Short;
use parser::Report;

/// The parse result of the last packet.
#[btf_map]
static REPORT: Array<Report, 1> = Array::new();
/// One cache line per port, for `look_up`.
#[btf_map]
static LINES: Array<[u64; 8], 65536> = Array::new();
/// A flow table in the kernel's LRU map, as other load balancers use it: Katran's sizes of key
/// and value, with capacity for twice as many flows as are measured.
#[map]
static FLOWS: LruHashMap<[u64; 5], [u64; 2]> = LruHashMap::with_max_entries(1 << 17, 0);

/// Passes everything to the kernel.
#[xdp(frags)]
pub fn pass(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Drops everything.
#[xdp(frags)]
pub fn nothing(_: XdpContext) -> u32 {
    XDP_DROP
}

/// Reports a failure of the program itself, for every packet.
#[xdp(frags)]
pub fn abort(_: XdpContext) -> u32 {
    XDP_ABORTED
}

/// Looks up one row of an array by an index from the packet, as every table lookup of the packet
/// path does.
#[xdp(frags)]
pub fn look_up(ctx: XdpContext) -> u32 {
    /// Offset of the outer source port, after Ethernet and IPv4.
    const PORT: usize = 34;
    let Ok(row) = window(ctx.ctx).be16(PORT) else { return XDP_PASS };
    match LINES.get(u32::from(row)) {
        // The array is never written, so the word is zero; the comparison forces the load.
        Some(line) if line[0] == 0 => XDP_DROP,
        _ => XDP_PASS,
    }
}

/// Looks up the flow of the tunnel's inner packet in the kernel's LRU map, and inserts the flow if
/// it is missing. The offset of the inner packet is a constant, and nothing is parsed.
#[xdp(frags)]
pub fn keep(ctx: XdpContext) -> u32 {
    match lookup_lru(&ctx) {
        Ok(()) => XDP_DROP,
        Err(Short) => XDP_PASS,
    }
}

#[inline(always)]
fn lookup_lru(ctx: &XdpContext) -> Result<(), Short> {
    /// Offset of the inner packet's addresses: after 82 bytes, as in `bench`.
    const ENDS: usize = 82 + 12;
    let w = window(ctx.ctx);
    let (src, dst, ports) = (w.be32(ENDS)?, w.be32(ENDS + 4)?, w.be32(ENDS + 8)?);
    let key = [u64::from(src), 0, u64::from(dst), 0, u64::from(ports) << 8 | 6];
    if let Some(entry) = FLOWS.get_ptr_mut(key) {
        // SAFETY: the kernel returned the pointer; benches run one packet at a time.
        unsafe { (*entry)[1] += 1 };
    } else if FLOWS.insert(key, [0; 2], 0).is_err() {
        return Err(Short);
    }
    Ok(())
}

/// Records the parse result of the packet.
#[xdp(frags)]
pub fn parse(ctx: XdpContext) -> u32 {
    let Some(to) = REPORT.get_ptr_mut(0) else { return XDP_DROP };
    let Some(found) = stages::cpu_record() else { return XDP_DROP };
    let outcome = match stages::run(ctx.ctx) {
        Ok(()) => parser::PARSED,
        Err(outcome) => outcome,
    };
    parser::classify(found, &HashKey::new(0));
    // SAFETY: the array has one element; only tests read it, and run one packet at a time.
    unsafe { *to = Report::of(found, outcome) };
    XDP_DROP
}
