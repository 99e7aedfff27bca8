//! The region as this CPU sees it, and the loops that `tables` leaves to a program's own functions.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use tables::affinity::Affinities;
use tables::counters::LcorePage;
use tables::flow::Flows;
use tables::nat_port::NatPorts;
use tables::region::Region;

/// Number of this CPU.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the call takes nothing and touches nothing.
    unsafe { bpf_get_smp_processor_id() }
}

/// This CPU's counters.
#[inline(always)]
pub fn page() -> LcorePage<'static> {
    Region.page(cpu())
}

/// The flow table.
#[inline(always)]
pub fn flows() -> Flows<'static> {
    Flows::new(&Region).as_owner(cpu() as u8, Region.epoch())
}

/// The affinity table.
#[inline(always)]
pub fn affinities() -> Affinities<'static> {
    Affinities::new(&Region).as_owner(cpu() as u8, Region.epoch())
}

/// The NAT port maps.
#[inline(always)]
pub fn nat_ports() -> NatPorts<'static> {
    NatPorts::new(&Region)
}

/// A free port of a map from `first` to `last`, or 0.
#[inline(always)]
pub fn claim(map: u32, first: u16, last: u16) -> u16 {
    nat_ports().claim(map, first..=last, cpu(), Region.lcores()).unwrap_or(0)
}
