//! Element counts derived from configured capacities.

use crate::reason::MAX_REASONS;

/// Entries per bucket of the flow index, the fragment table and the affinity table.
pub const BUCKET_ENTRIES: usize = 4;

/// Bits of an address filter. 8 KiB stay in the L1 or L2 cache.
pub(crate) const FILTER_BITS: usize = 1 << 16;

/// Number of leg copies, a power of two. It bounds the leg updates in progress at once; an lcore
/// has at most one.
pub(crate) const LEG_COPIES: u32 = 64;

/// Return legs per set.
pub const RETURN_LEG_WAYS: u32 = 4;

/// Words of a counter page before its drop counters: see `counters`.
pub const COUNTER_WORDS: usize = 64;

/// Words of counters per service or backend: one cache line.
pub const OBJECT_WORDS: usize = 8;

/// Words of a counter page: general counters, drops of both arms, one line per counted service and
/// one for all others, and the same for backends.
pub const fn counter_page_words(services: u32, backends: u32) -> usize {
    let objects = services as usize + 1 + backends as usize + 1;
    COUNTER_WORDS + 2 * MAX_REASONS + objects * OBJECT_WORDS
}

/// Flow index entries for `flows` flows: two per flow, load factor at most 4/5, a power of two.
pub const fn flow_entries(flows: u32) -> usize {
    let entries = (flows as usize * 2 * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Entries for `keys` datagrams or clients: load factor at most 4/5, a power of two.
pub const fn single_entries(keys: u32) -> usize {
    let entries = (keys as usize * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Scope cells for `scopes` endpoints: load factor at most 1/2, a power of two.
pub const fn scope_cells(scopes: u32) -> usize {
    (scopes as usize * 2).next_power_of_two()
}

/// Return legs for `scopes` endpoints with two gateway nodes each: a power of two.
pub const fn return_legs(scopes: u32) -> usize {
    let legs = (scopes as usize * 2).next_power_of_two();
    if legs < RETURN_LEG_WAYS as usize { RETURN_LEG_WAYS as usize } else { legs }
}

/// Frontend entries: for each frontend itself, its address mark and its scope mark, and spare
/// entries for replacements; for each backend a probe mark and its replacement.
pub const fn frontend_entries(frontends: u32, backends: u32) -> usize {
    frontends as usize * 4 + backends as usize * 2
}

/// 64-bit words that hold one bit per chain head of `entries` entries.
pub(super) const fn frontend_words(entries: usize) -> usize {
    entries.next_power_of_two().div_ceil(64)
}
