//! Bodies of the functions that the program defines under the names listed in [`crate::parts`].

use packet::addr::Addr;
use packet::flow::FlowKey;

use super::pair;
use crate::affinity::Affinities;
use crate::flow::Flows;
use crate::fragment::Fragments;
use crate::lookup::{Frontends, chained};
use crate::nat_port::NatPorts;
use crate::record::FrontendKey;
use crate::region::Region;

/// Unpacks a frontend key.
#[inline(always)]
fn key(scope_key: u64, first: u64, second: u64, rest: u64) -> FrontendKey {
    let [a, b, c, d] = [first, first >> 32, second, second >> 32];
    let addr = Addr { words: [a as u32, b as u32, c as u32, d as u32] };
    let (port, proto, prefix_len) = (rest as u16, (rest >> 16) as u8, (rest >> 24) as u8);
    FrontendKey { scope_key, addr, port, proto, prefix_len, pad: 0 }
}

/// Body of `part_walk`.
#[inline(always)]
pub fn walk_body(scope_key: u64, first: u64, second: u64, rest: u64, link_at: u64) -> u64 {
    let key = key(scope_key, first, second, rest);
    chained(link_at as u32, key, (link_at >> 32) as u32).map_or(0, |target| u64::from(target) + 1)
}

/// Body of `part_service`.
#[inline(always)]
pub fn service_body(scope_key: u64, first: u64, second: u64, rest: u64, at: u64) -> u64 {
    let key = key(scope_key, first, second, rest);
    let set = Region.tables(at as u32);
    let found = set.service_of(scope_key, &key.addr, key.port, key.proto);
    found.map_or(0, |target| u64::from(target) + 1)
}

/// Body of `part_kinds`. It masks the address by the prefix length, so that its callers need not.
#[inline(always)]
pub fn kinds_body(scope_key: u64, first: u64, second: u64, rest: u64, kinds_at: u64) -> u64 {
    let (key, kinds, at) = (key(scope_key, first, second, rest), kinds_at, kinds_at >> 32);
    let key = FrontendKey { addr: key.addr.masked(key.prefix_len), ..key };
    let found = Frontends::new(&Region).try_kinds(kinds as u32, key, at as u32);
    found.map_or(0, |target| u64::from(target) + 1)
}

/// Body of `part_bound`.
#[inline(always)]
pub fn bound_body(at: u64, high: u64, low: u64) -> u64 {
    // The slot arena is not versioned.
    Region.tables(0).bound(at as u32, high, low).into()
}

/// Body of `part_member`.
#[inline(always)]
pub fn member_body(at: u64, sought: u64) -> u64 {
    // Indices outside the arena compare as above all numbers.
    let word = Region.tables(0).slot(at as u32).unwrap_or(u32::MAX);
    u64::from(word <= sought as u32)
}

/// Body of `part_find`.
#[inline(always)]
pub fn find_body(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = non_null(key) else { return u64::MAX };
    stamped(Flows::new(&Region).index().seek(hash, key))
}

/// Body of `part_piece`.
#[inline(always)]
pub fn fragment_body(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = non_null(key) else { return u64::MAX };
    stamped(Fragments::new(&Region).index().seek(hash, key))
}

/// Body of `part_client`.
#[inline(always)]
pub fn client_body(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = non_null(key) else { return u64::MAX };
    stamped(Affinities::new(&Region).index().seek(hash, key))
}

/// Checks for null, as the verifier requires of pointer arguments.
#[inline(always)]
fn non_null<'a>(key: *const FlowKey) -> Option<&'a FlowKey> {
    // SAFETY: only `find`, `find_fragment` and `find_client` cause these calls, with a reference.
    #[expect(unsafe_code, reason = "a record by address")]
    unsafe {
        key.as_ref()
    }
}

#[inline(always)]
fn stamped((entry, stamp): (u32, u32)) -> u64 {
    pair(entry, stamp)
}

/// Body of `part_lock`.
#[inline(always)]
pub fn lock_body(home: u64, owner: u64) -> u64 {
    Flows::new(&Region).index().lock_as(home as u32, owner).into()
}

/// Body of `part_claim`.
#[inline(always)]
pub fn claim_body(hash: u64) -> u64 {
    Flows::new(&Region).claim_slot(hash).into()
}

/// Body of `part_take`.
#[inline(always)]
pub fn take_body(map: u64, first: u64, last: u64) -> u64 {
    let port = NatPorts::new(&Region).take(map as u32, first as u32, last as u32);
    port.map_or(0, |port| u64::from(port) + 1)
}
