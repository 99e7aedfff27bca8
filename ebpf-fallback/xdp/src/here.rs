//! The region as this CPU sees it, and the loops that `tables` leaves to a program's own functions.

use crate::work::{Work, work};
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use tables::affinity::Affinities;
use tables::counters::LcorePage;
use tables::flow::Flows;
use tables::fragment::Fragments;
use tables::nat_port::NatPorts;
use tables::region::Region;
use tables::scope::Scopes;

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

/// The fragment table.
#[inline(always)]
pub fn fragments(work: &Work) -> Fragments<'static> {
    let lifetime = work.set().settings().timeouts.fragment_s;
    Fragments::new(&Region).as_owner(cpu() as u8, Region.epoch()).with_lifetime(lifetime)
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

/// The scope of the packet's endpoint behind a gateway; `gateway` is its number, and its kind above
/// that. 0 for none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_scope(gateway: u32) -> u32 {
    let Some(work) = work() else { return 0 };
    let scopes = Scopes::new(&Region);
    let (kind, gateway) = ((gateway >> 16) as u8, gateway as u16);
    scopes.intern(kind, gateway, work.scope_key, work.now_s).unwrap_or(0)
}
