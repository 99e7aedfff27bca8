//! Searches as separate functions: see `tables::parts`.

use packet::flow::FlowKey;
use tables::parts;

/// Calls [`parts::walk_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_walk(scope_key: u64, a: u64, b: u64, rest: u64, link_at: u64) -> u64 {
    parts::walk_body(scope_key, a, b, rest, link_at)
}

/// Calls [`parts::service_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_service(scope_key: u64, a: u64, b: u64, rest: u64, at: u64) -> u64 {
    parts::service_body(scope_key, a, b, rest, at)
}

/// Calls [`parts::kinds_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_kinds(scope_key: u64, a: u64, b: u64, rest: u64, kinds_at: u64) -> u64 {
    parts::kinds_body(scope_key, a, b, rest, kinds_at)
}

/// Calls [`parts::bound_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_bound(at: u64, high: u64, low: u64) -> u64 {
    parts::bound_body(at, high, low)
}

/// Calls [`parts::find_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_find(hash: u64, key: *const FlowKey) -> u64 {
    parts::find_body(hash, key)
}

/// Calls [`parts::fragment_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_piece(hash: u64, key: *const FlowKey) -> u64 {
    parts::fragment_body(hash, key)
}

/// Calls [`parts::client_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_client(hash: u64, key: *const FlowKey) -> u64 {
    parts::client_body(hash, key)
}

/// Calls [`parts::member_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_member(at: u64, sought: u64) -> u64 {
    parts::member_body(at, sought)
}

/// Calls [`parts::lock_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_lock(home: u64, owner: u64) -> u64 {
    parts::lock_body(home, owner)
}

/// Calls [`parts::claim_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_claim(hash: u64) -> u64 {
    parts::claim_body(hash)
}

/// Calls [`parts::take_body`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_take(map: u64, first: u64, last: u64) -> u64 {
    parts::take_body(map, first, last)
}
