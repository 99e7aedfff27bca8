//! How many elements what was asked for takes.

use crate::reason::MAX_REASONS;

/// Flow index entries in a bucket; fragments are bucketed alike.
pub const BUCKET_ENTRIES: usize = 4;

/// Bits of a filter of addresses: 8 KiB, which stays in the nearest caches.
pub(crate) const FILTER_BITS: usize = 1 << 16;

/// Copies of gateway legs, a power of two: as many changes may be under way at once, and an lcore
/// has one at a time.
pub(crate) const LEG_COPIES: u32 = 64;

/// Return legs in a set.
pub const RETURN_LEG_WAYS: u32 = 4;

/// Words in front of a counter page's drops: see `counters`.
pub const COUNTER_WORDS: usize = 64;

/// Words of counters for a service or a backend: one cache line.
pub const OBJECT_WORDS: usize = 8;

/// Words of a counter page: what counts for all, drops of two arms, a line for each counted service
/// and one for the others, backends likewise.
pub const fn counter_page_words(services: u32, backends: u32) -> usize {
    let objects = services as usize + 1 + backends as usize + 1;
    COUNTER_WORDS + 2 * MAX_REASONS + objects * OBJECT_WORDS
}

/// Flow index entries for `flows` flows: two each, at most four fifths full, a power of two.
pub const fn flow_entries(flows: u32) -> usize {
    let entries = (flows as usize * 2 * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Entries for so many datagrams, or clients: at most four fifths full, a power of two.
pub const fn single_entries(things: u32) -> usize {
    let entries = (things as usize * 5 / 4).next_power_of_two();
    if entries < 2 * BUCKET_ENTRIES { 2 * BUCKET_ENTRIES } else { entries }
}

/// Scope cells for `scopes` endpoints: at most half full, a power of two.
pub const fn scope_cells(scopes: u32) -> usize {
    (scopes as usize * 2).next_power_of_two()
}

/// Return legs for `scopes` endpoints, each with two gateway nodes: a power of two.
pub const fn return_legs(scopes: u32) -> usize {
    let legs = (scopes as usize * 2).next_power_of_two();
    if legs < RETURN_LEG_WAYS as usize { RETURN_LEG_WAYS as usize } else { legs }
}

/// Frontend entries: live ones, their address and scope marks, and a replacement of each; probe
/// addresses of backends and a replacement of each.
pub const fn frontend_entries(frontends: u32, backends: u32) -> usize {
    frontends as usize * 4 + backends as usize * 2
}

/// Words with a bit for each head of so many entries.
pub(super) const fn frontend_words(entries: usize) -> usize {
    entries.next_power_of_two().div_ceil(64)
}
