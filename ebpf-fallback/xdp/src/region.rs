//! The region in the kernel: what the loader told, and the loops that `tables` leaves to a program.

use crate::work::Work;
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use tables::flow::Flows;
use tables::fragment::Fragments;
use tables::nat_port::NatPorts;
use tables::region::Region;

/// The region.
pub static REGION: Region = Region;

/// The flow table, for this CPU.
#[inline(always)]
pub fn flows() -> Flows<'static> {
    Flows::new(&REGION).as_owner(cpu() as u8, REGION.epoch())
}

/// The fragment table, for this CPU.
#[inline(always)]
pub fn fragments(work: &Work) -> Fragments<'static> {
    let lifetime = work.set().settings().timeouts.fragment_s;
    Fragments::new(&REGION).as_owner(cpu() as u8, REGION.epoch()).with_lifetime(lifetime)
}

/// The NAT port maps.
#[inline(always)]
pub fn nat_ports() -> NatPorts<'static> {
    NatPorts::new(&REGION)
}

/// Number of this CPU.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the call takes nothing and touches nothing.
    unsafe { bpf_get_smp_processor_id() }
}
