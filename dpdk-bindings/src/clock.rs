//! The CPU's time stamp counter, which a poll loop can afford to read once per burst.
#![expect(unsafe_code, reason = "reads the counter, calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::Eal;

/// Returns the ticks since the machine started; equal on all CPUs of the machines that Weir
/// supports.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux permits it in user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the ticks per second, as DPDK measured at its start.
pub fn ticks_per_second(_: &Eal) -> u64 {
    // SAFETY: reads an integer that the EAL's start has set.
    unsafe { sys::rte_get_tsc_hz() }
}
