//! The processor's time stamp counter: the one clock that a poll loop may read, once a burst.
#![expect(unsafe_code, reason = "reads the counter, calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::Eal;

/// Ticks since the machine started; the same on all cores of the machines that Weir runs on.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to user programs.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks in a second, as DPDK measured them at its start.
pub fn ticks_per_second(_: &Eal) -> u64 {
    // SAFETY: reads an integer that the EAL's start has set.
    unsafe { sys::rte_get_tsc_hz() }
}
