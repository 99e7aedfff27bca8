//! Element counts derived from configured capacities.

use crate::reason::MAX_REASONS;

/// Entries per bucket of the flow index, the fragment table and the affinity table.
pub const BUCKET_ENTRIES: usize = 4;

/// Number of bits of an address filter: 8 KiB, which stay in the L1 or L2 cache.
pub(crate) const FILTER_BITS: usize = 1 << 16;

/// Number of leg copies, a power of two. Each leg update in progress needs one; an lcore performs
/// one update at a time.
pub(crate) const LEG_COPIES: u32 = 64;

/// Number of return legs per set.
pub const RETURN_LEG_WAYS: u32 = 4;

/// Number of words of a counter page before its drop counters: see `counters`.
pub const COUNTER_WORDS: usize = 64;

/// Number of words of counters per service or backend: one cache line.
pub const OBJECT_WORDS: usize = 8;

/// Returns the number of words of a counter page: general counters, drops of both arms, one line
/// per counted service and one for all others, and the same for backends.
pub const fn counter_page_words(services: u32, backends: u32) -> usize {
    let objects = services as usize + 1 + backends as usize + 1;
    COUNTER_WORDS + 2 * MAX_REASONS + objects * OBJECT_WORDS
}

/// Maximum number of a NIC driver's counters (DPDK's xstats) that are published by name. ENA and
/// mlx5 have about 20 for each queue.
pub const NIC_XSTATS: usize = 384;

/// Number of words of a NIC's block before its driver's counters: see `nic`.
pub(crate) const NIC_HEADER_WORDS: usize = 64;

/// Number of words of a driver's counter: 64 bytes of name, as in DPDK, and the value.
pub(crate) const XSTAT_WORDS: usize = 9;

/// Number of words of a NIC's block, rounded up to whole pages of 4 KiB.
pub(super) const NIC_WORDS: usize =
    (NIC_HEADER_WORDS + NIC_XSTATS * XSTAT_WORDS).next_multiple_of(512);

/// Returns the number of flow index entries for `flows` flows: two per flow, load factor at most
/// 4/5, a power of two.
pub const fn flow_entries(flows: u32) -> usize {
    let entries = (flows as usize * 2 * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Returns the number of entries of the fragment or affinity table for `keys` datagrams or clients:
/// load factor at most 4/5, a power of two.
pub const fn single_entries(keys: u32) -> usize {
    let entries = (keys as usize * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Returns the number of scope cells for `scopes` endpoints: load factor at most 1/2, a power of
/// two.
pub const fn scope_cells(scopes: u32) -> usize {
    (scopes as usize * 2).next_power_of_two()
}

/// Returns the number of return legs for `scopes` endpoints with two gateway nodes each: a power of
/// two.
pub const fn return_legs(scopes: u32) -> usize {
    let legs = (scopes as usize * 2).next_power_of_two();
    if legs < RETURN_LEG_WAYS as usize { RETURN_LEG_WAYS as usize } else { legs }
}

/// Returns the number of entries of the frontend hash. Each frontend needs up to three, for itself,
/// its address mark and its scope mark, and has a fourth as spare for replacements. Each backend
/// needs one for its probe mark and one for the replacement of that.
pub const fn frontend_entries(frontends: u32, backends: u32) -> usize {
    frontends as usize * 4 + backends as usize * 2
}

/// Returns the number of 64-bit words with one bit per chain head of `entries` entries.
pub(super) const fn frontend_words(entries: usize) -> usize {
    entries.next_power_of_two().div_ceil(64)
}
