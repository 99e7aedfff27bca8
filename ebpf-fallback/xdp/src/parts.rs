//! Searches as functions of their own: see `tables::parts`.

use tables::parts;

/// See [`parts::walked`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_walk(scope_key: u64, a: u64, b: u64, rest: u64, link_at: u64) -> u64 {
    parts::walked(scope_key, a, b, rest, link_at)
}

/// See [`parts::tried`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_kinds(scope_key: u64, a: u64, b: u64, rest: u64, kinds_at: u64) -> u64 {
    parts::tried(scope_key, a, b, rest, kinds_at)
}

/// See [`parts::claimed`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_claim(hash: u64) -> u64 {
    parts::claimed(hash)
}

/// See [`parts::taken`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_take(map: u64, first: u64, last: u64) -> u64 {
    parts::taken(map, first, last)
}
