//! Searches that are functions of their own in the kernel's program, so that the verifier looks at
//! each once and not once for every way that leads to it.
//!
//! The program has to define them, by these names, global and out of line, because only it can:
//!
//! ```text
//! part_walk    walked      a chain of frontends
//! part_service served      a frontend's address in all networks
//! part_kinds   tried       a frontend's address with and without port and protocol
//! part_bound   bounded     a bound of source ranges against an address
//! part_find    found       a key of the flow index
//! part_piece   piece       a key of the fragments' index
//! part_client  client      a key of the affinities' index
//! part_member  membered    whether a word of a run is above a number
//! part_lock    locked      a bucket's lock
//! part_claim   claimed     a free slot of the flow index
//! part_take    taken       a free port of a NAT port map
//! ```
//! Such a function takes five numbers at most (or records by address, which may be null to the
//! verifier) and returns one; it must use all that it takes.

use packet::addr::Addr;
use packet::flow::FlowKey;

use crate::affinity::Affinities;
use crate::flow::{Flows, Which};
use crate::fragment::Fragments;
use crate::lookup::{Frontends, chained};
use crate::nat_port::NatPorts;
use crate::record::FrontendKey;
use crate::region::Region;

// SAFETY: the program defines them, with these types, and they do what is said of each.
#[expect(unsafe_code, reason = "functions of the program's")]
unsafe extern "C" {
    safe fn part_walk(scope_key: u64, first: u64, second: u64, rest: u64, link_at: u64) -> u64;
    safe fn part_kinds(scope_key: u64, first: u64, second: u64, rest: u64, kinds_at: u64) -> u64;
    safe fn part_service(scope_key: u64, first: u64, second: u64, rest: u64, at: u64) -> u64;
    safe fn part_bound(at: u64, high: u64, low: u64) -> u64;
    safe fn part_find(hash: u64, key: *const FlowKey) -> u64;
    safe fn part_piece(hash: u64, key: *const FlowKey) -> u64;
    safe fn part_client(hash: u64, key: *const FlowKey) -> u64;
    safe fn part_member(at: u64, sought: u64) -> u64;
    safe fn part_lock(home: u64, owner: u64) -> u64;
    safe fn part_claim(hash: u64) -> u64;
    safe fn part_take(map: u64, first: u64, last: u64) -> u64;
}

#[inline(always)]
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Port, protocol and length of a key.
#[inline(always)]
fn rest(key: &FrontendKey) -> u64 {
    u64::from(key.port) | u64::from(key.proto) << 16 | u64::from(key.prefix_len) << 24
}

/// The key that these numbers are of.
#[inline(always)]
fn key(scope_key: u64, first: u64, second: u64, rest: u64) -> FrontendKey {
    let [a, b, c, d] = [first, first >> 32, second, second >> 32];
    let addr = Addr { words: [a as u32, b as u32, c as u32, d as u32] };
    let (port, proto, prefix_len) = (rest as u16, (rest >> 16) as u8, (rest >> 24) as u8);
    FrontendKey { scope_key, addr, port, proto, prefix_len, pad: 0 }
}

#[inline(always)]
fn less_one(number: u64) -> Option<u32> {
    if number == 0 { None } else { Some((number - 1) as u32) }
}

/// The target of `key` in the chain that begins with `link`, as `at` sees it.
#[inline(always)]
pub(crate) fn walk(link: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    less_one(part_walk(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(link, at)))
}

/// What `part_walk` does.
#[inline(always)]
pub fn walked(scope_key: u64, first: u64, second: u64, rest: u64, link_at: u64) -> u64 {
    let key = key(scope_key, first, second, rest);
    chained(link_at as u32, key, (link_at >> 32) as u32).map_or(0, |target| u64::from(target) + 1)
}

/// The service for an address, whatever it is a frontend by.
#[inline(always)]
pub(crate) fn service(scope: u64, addr: &Addr, port: u16, proto: u8, at: u32) -> Option<u32> {
    let [a, b, c, d] = addr.words;
    let rest = u64::from(port) | u64::from(proto) << 16;
    less_one(part_service(scope, pair(a, b), pair(c, d), rest, at.into()))
}

/// What `part_service` does.
#[inline(always)]
pub fn served(scope_key: u64, first: u64, second: u64, rest: u64, at: u64) -> u64 {
    let key = key(scope_key, first, second, rest);
    let set = Region.tables(at as u32);
    let found = set.service_of(scope_key, &key.addr, key.port, key.proto);
    found.map_or(0, |target| u64::from(target) + 1)
}

/// The target of `key`, in each of `kinds`, as `at` sees it.
#[inline(always)]
pub(crate) fn try_kinds(kinds: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    less_one(part_kinds(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(kinds, at)))
}

/// What `part_kinds` does. The address is masked here, so that the caller need not.
#[inline(always)]
pub fn tried(scope_key: u64, first: u64, second: u64, rest: u64, kinds_at: u64) -> u64 {
    let (key, kinds, at) = (key(scope_key, first, second, rest), kinds_at, kinds_at >> 32);
    let key = FrontendKey { addr: key.addr.masked(key.prefix_len), ..key };
    let found = Frontends::new(&Region).try_kinds(kinds as u32, key, at as u32);
    found.map_or(0, |target| u64::from(target) + 1)
}

/// Whether the bound at a place of the slot arena is not above an address: 1 or 0.
#[inline(always)]
pub(crate) fn bound(at: u32, high: u64, low: u64) -> u32 {
    part_bound(at.into(), high, low) as u32
}

/// What `part_bound` does.
#[inline(always)]
pub fn bounded(at: u64, high: u64, low: u64) -> u64 {
    // The slot arena has no generation.
    Region.tables(0).bound(at as u32, high, low).into()
}

/// Whether the word at a place of the slot arena is not above a number: 1 or 0.
#[inline(always)]
pub(crate) fn member(at: u32, sought: u32) -> u32 {
    part_member(at.into(), sought.into()) as u32
}

/// What `part_member` does.
#[inline(always)]
pub fn membered(at: u64, sought: u64) -> u64 {
    // What lies outside the arena is above all numbers.
    let word = Region.tables(0).slot(at as u32).unwrap_or(u32::MAX);
    u64::from(word <= sought as u32)
}

/// Number and state of the entry of a key; [`NONE`] as its number for none.
#[inline(always)]
pub(crate) fn find(which: Which, hash: u64, key: &FlowKey) -> (u32, u32) {
    let found = match which {
        Which::Flows => part_find(hash, key),
        Which::Fragments => part_piece(hash, key),
        Which::Affinities => part_client(hash, key),
    };
    (found as u32, (found >> 32) as u32)
}

/// What `part_find` does.
#[inline(always)]
pub fn found(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = given(key) else { return u64::MAX };
    stamped(Flows::new(&Region).index().seek(hash, key))
}

/// What `part_piece` does.
#[inline(always)]
pub fn piece(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = given(key) else { return u64::MAX };
    stamped(Fragments::new(&Region).index().seek(hash, key))
}

/// What `part_client` does.
#[inline(always)]
pub fn client(hash: u64, key: *const FlowKey) -> u64 {
    let Some(key) = given(key) else { return u64::MAX };
    stamped(Affinities::new(&Region).index().seek(hash, key))
}

/// What the verifier wants to see of an address that it is given.
#[inline(always)]
fn given<'a>(key: *const FlowKey) -> Option<&'a FlowKey> {
    // SAFETY: only `find` calls the three functions, with a reference.
    #[expect(unsafe_code, reason = "a record by address")]
    unsafe {
        key.as_ref()
    }
}

#[inline(always)]
fn stamped((entry, stamp): (u32, u32)) -> u64 {
    pair(entry, stamp)
}

/// Locks a bucket of the flow index.
#[inline(always)]
pub(crate) fn lock(home: u32, owner: u64) -> bool {
    part_lock(home.into(), owner) != 0
}

/// What `part_lock` does.
#[inline(always)]
pub fn locked(home: u64, owner: u64) -> u64 {
    Flows::new(&Region).index().lock_as(home as u32, owner).into()
}

/// A slot of the flow index.
#[inline(always)]
pub(crate) fn claim(hash: u64) -> u32 {
    part_claim(hash) as u32
}

/// What `part_claim` does.
#[inline(always)]
pub fn claimed(hash: u64) -> u64 {
    Flows::new(&Region).claim_slot(hash).into()
}

/// A free port of a map from `first` to `last`.
#[inline(always)]
pub(crate) fn take(map: u32, first: u32, last: u32) -> Option<u32> {
    less_one(part_take(map.into(), first.into(), last.into()))
}

/// What `part_take` does.
#[inline(always)]
pub fn taken(map: u64, first: u64, last: u64) -> u64 {
    let port = NatPorts::new(&Region).take(map as u32, first as u32, last as u32);
    port.map_or(0, |port| u64::from(port) + 1)
}
