//! Searches as separate functions: see `tables::parts`.

use packet::flow::FlowKey;
use tables::parts;

/// Calls [`parts::walked`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_walk(scope_key: u64, a: u64, b: u64, rest: u64, link_at: u64) -> u64 {
    parts::walked(scope_key, a, b, rest, link_at)
}

/// Calls [`parts::served`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_service(scope_key: u64, a: u64, b: u64, rest: u64, at: u64) -> u64 {
    parts::served(scope_key, a, b, rest, at)
}

/// Calls [`parts::tried`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_kinds(scope_key: u64, a: u64, b: u64, rest: u64, kinds_at: u64) -> u64 {
    parts::tried(scope_key, a, b, rest, kinds_at)
}

/// Calls [`parts::bounded`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_bound(at: u64, high: u64, low: u64) -> u64 {
    parts::bounded(at, high, low)
}

/// Calls [`parts::found`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_find(hash: u64, key: *const FlowKey) -> u64 {
    parts::found(hash, key)
}

/// Calls [`parts::piece`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_piece(hash: u64, key: *const FlowKey) -> u64 {
    parts::piece(hash, key)
}

/// Calls [`parts::client`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_client(hash: u64, key: *const FlowKey) -> u64 {
    parts::client(hash, key)
}

/// Calls [`parts::membered`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_member(at: u64, sought: u64) -> u64 {
    parts::membered(at, sought)
}

/// Calls [`parts::locked`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_lock(home: u64, owner: u64) -> u64 {
    parts::locked(home, owner)
}

/// Calls [`parts::claimed`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_claim(hash: u64) -> u64 {
    parts::claimed(hash)
}

/// Calls [`parts::taken`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_take(map: u64, first: u64, last: u64) -> u64 {
    parts::taken(map, first, last)
}
