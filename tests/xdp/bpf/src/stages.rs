//! The stages of `open` as separate functions for the verifier, which checks each once for any
//! packet, and not once per path that leads to it. Their results are in a record per CPU.

use crate::frame::window;
use crate::open::{self, Found};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;

/// The state of the packet that a CPU processes.
#[btf_map]
static WORK: PerCpuArray<Found, 1> = PerCpuArray::new();

/// Returns the record of this CPU.
#[inline(always)]
pub fn work() -> Option<&'static mut Found> {
    // SAFETY: a CPU works on one packet at a time, and each stage holds the record only while it
    // runs.
    WORK.get_ptr_mut(0).map(|found| unsafe { &mut *found })
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident($ctx:ident, $window:ident, $found:ident) $body:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub extern "C" fn $name($ctx: *mut xdp_md) -> u32 {
            let ($window, Some($found)) = (&window($ctx), work()) else { return open::OUTER };
            $body
        }
    )*};
}

stages! {
    /// See [`open::outer`].
    stage_outer(ctx, w, found) open::outer(w, found);
    /// See [`open::tunnel`].
    stage_tunnel(ctx, w, found) open::tunnel(w, found);
    /// See [`open::inner`].
    stage_inner(ctx, w, found) open::inner(w, found);
}

/// Runs all stages up to the key; the error is the outcome of the stage that failed.
#[inline(always)]
pub fn run(ctx: *mut xdp_md) -> Result<(), u32> {
    done(stage_outer(ctx))?;
    let found = work().ok_or(open::OUTER)?;
    match open::usual_tunnel(&window(ctx), found) {
        Some(outcome) => done(outcome)?,
        None => done(stage_tunnel(ctx))?,
    }
    done(stage_inner(ctx))
}

#[inline(always)]
fn done(outcome: u32) -> Result<(), u32> {
    if outcome == open::PARSED { Ok(()) } else { Err(outcome) }
}
