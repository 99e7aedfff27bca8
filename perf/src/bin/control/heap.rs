//! A global allocator that counts heap usage.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the bytes in use and the number of live allocations.
pub fn heap() -> (usize, usize) {
    let stats = HEAP.stats();
    (
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated),
        stats.allocations.saturating_sub(stats.deallocations),
    )
}
