//! The heap, counted.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes and number of what is allocated.
pub fn heap() -> (usize, usize) {
    let stats = HEAP.stats();
    (
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated),
        stats.allocations.saturating_sub(stats.deallocations),
    )
}
