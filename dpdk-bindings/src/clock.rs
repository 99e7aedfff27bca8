//! The CPU's time stamp counter, which a poll loop can afford to read once per burst.
#![expect(unsafe_code, reason = "reads the counter, calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::Eal;

/// Returns the time stamp counter of this CPU in ticks. It counts at a constant rate, from about
/// the start of the machine, and has the same value on all CPUs of the machines that Weir supports.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux permits it in user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the rate of [`ticks`] per second, which DPDK determines when it starts.
pub fn ticks_per_second(_: &Eal) -> u64 {
    // SAFETY: reads an integer that the EAL's start has set.
    unsafe { sys::rte_get_tsc_hz() }
}
