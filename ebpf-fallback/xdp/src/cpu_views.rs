//! Views of the region for this CPU.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use tables::affinity::Affinities;
use tables::counters::LcorePage;
use tables::flow::Flows;
use tables::nat_port::NatPorts;
use tables::region::Region;

/// Returns the number of this CPU.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the helper has no arguments and no side effects.
    unsafe { bpf_get_smp_processor_id() }
}

/// Returns the counter page of this CPU.
#[inline(always)]
pub fn page() -> LcorePage<'static> {
    Region.page(cpu())
}

/// Returns the flow table, with this CPU as the owner of locks.
#[inline(always)]
pub fn flows() -> Flows<'static> {
    Flows::new(&Region).as_owner(cpu() as u8, Region.epoch())
}

/// Returns the affinity table, with this CPU as the owner of locks.
#[inline(always)]
pub fn affinities() -> Affinities<'static> {
    Affinities::new(&Region).as_owner(cpu() as u8, Region.epoch())
}

/// Returns the NAT port maps.
#[inline(always)]
pub fn nat_ports() -> NatPorts<'static> {
    NatPorts::new(&Region)
}

/// Allocates a free port of a map in `first..=last`; returns 0 if there is none.
#[inline(always)]
pub fn claim(map: u32, first: u16, last: u16) -> u16 {
    nat_ports().claim(map, first..=last, cpu(), Region.lcores()).unwrap_or(0)
}
