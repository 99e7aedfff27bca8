//! The stages of `parse` as separate functions. The verifier checks each function once for any
//! packet, and not once per path that leads to it. The stages' results are in a record per CPU.

use crate::frame::window;
use crate::parser::{self, ParsedPacket};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;

/// The state of the packet that a CPU processes.
#[btf_map]
static PARSED_PACKET: PerCpuArray<ParsedPacket, 1> = PerCpuArray::new();

/// Returns the record of this CPU.
#[inline(always)]
pub fn cpu_record() -> Option<&'static mut ParsedPacket> {
    // SAFETY: a CPU works on one packet at a time, and each stage holds the record only while it
    // runs.
    PARSED_PACKET.get_ptr_mut(0).map(|found| unsafe { &mut *found })
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident($ctx:ident, $window:ident, $found:ident) $body:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub extern "C" fn $name($ctx: *mut xdp_md) -> u32 {
            let ($window, Some($found)) = (&window($ctx), cpu_record()) else {
                return parser::OUTER;
            };
            $body
        }
    )*};
}

stages! {
    /// See [`parser::outer`].
    stage_outer(ctx, w, found) parser::outer(w, found);
    /// See [`parser::tunnel`].
    stage_tunnel(ctx, w, found) parser::tunnel(w, found);
    /// See [`parser::inner`].
    stage_inner(ctx, w, found) parser::inner(w, found);
}

/// Runs all stages up to the key; the error is the outcome of the stage that failed.
#[inline(always)]
pub fn run(ctx: *mut xdp_md) -> Result<(), u32> {
    check(stage_outer(ctx))?;
    let found = cpu_record().ok_or(parser::OUTER)?;
    match parser::usual_tunnel(&window(ctx), found) {
        Some(outcome) => check(outcome)?,
        None => check(stage_tunnel(ctx))?,
    }
    check(stage_inner(ctx))
}

/// Converts the outcome of a stage into a result.
#[inline(always)]
fn check(outcome: u32) -> Result<(), u32> {
    if outcome == parser::PARSED { Ok(()) } else { Err(outcome) }
}
