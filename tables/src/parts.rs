//! Searches that are separate functions in the BPF program, so that the verifier checks each of
//! them once instead of once per path that leads to it.
//!
//! Global functions that are not inlined can only be defined in the program itself. The program
//! defines them under these names, and this crate contains their bodies:
//!
//! ```text
//! part_walk    walk_body      a chain of frontends
//! part_service service_body   a frontend's address in all networks
//! part_kinds   kinds_body     a frontend's address with and without port and protocol
//! part_bound   bound_body     whether a bound of source ranges is at or below an address
//! part_find    find_body      a key of the flow index
//! part_piece   fragment_body  a key of the fragments' index
//! part_client  client_body    a key of the affinities' index
//! part_member  member_body    whether a word of a run is at or below a number
//! part_lock    lock_body      a bucket's lock
//! part_claim   claim_body     a free slot of the flow index
//! part_take    take_body      a free port of a NAT port map
//! ```
//! The verifier limits such a function. It takes at most five arguments, which are numbers or
//! pointers to records; the verifier assumes that a pointer may be null. It returns one number, and
//! has to use all its arguments.

mod bodies;

use packet::addr::Addr;
use packet::flow::FlowKey;

use crate::record::FrontendKey;

pub use bodies::{
    bound_body, claim_body, client_body, find_body, fragment_body, kinds_body, lock_body,
    member_body, service_body, take_body, walk_body,
};

// SAFETY: the program defines them with these types and the documented behavior.
#[expect(unsafe_code, reason = "functions of the BPF program")]
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

/// Packs port, protocol and prefix length of a key into a number.
#[inline(always)]
fn rest(key: &FrontendKey) -> u64 {
    u64::from(key.port) | u64::from(key.proto) << 16 | u64::from(key.prefix_len) << 24
}

/// Decodes an optional number: 0 for none, else the number plus 1.
#[inline(always)]
fn less_one(number: u64) -> Option<u32> {
    if number == 0 { None } else { Some((number - 1) as u32) }
}

/// Returns the target of `key` in the chain that begins with `link`, as generation `at` sees it.
#[inline(always)]
pub(crate) fn walk(link: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    less_one(part_walk(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(link, at)))
}

/// Returns the service for a packet to this address, port and protocol in one scope, as generation
/// `at` sees it.
#[inline(always)]
pub(crate) fn service(scope: u64, addr: &Addr, port: u16, proto: u8, at: u32) -> Option<u32> {
    let [a, b, c, d] = addr.words;
    let rest = u64::from(port) | u64::from(proto) << 16;
    less_one(part_service(scope, pair(a, b), pair(c, d), rest, at.into()))
}

/// Returns the target of `key` under the first of `kinds` that matches, as generation `at` sees it.
#[inline(always)]
pub(crate) fn try_kinds(kinds: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    less_one(part_kinds(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(kinds, at)))
}

/// Returns 1 if the bound at arena index `at` is at or below an address, else 0.
#[inline(always)]
pub(crate) fn bound(at: u32, high: u64, low: u64) -> u32 {
    part_bound(at.into(), high, low) as u32
}

/// Returns 1 if the word at arena index `at` is at or below `sought`, else 0.
#[inline(always)]
pub(crate) fn member(at: u32, sought: u32) -> u32 {
    part_member(at.into(), sought.into()) as u32
}

/// Returns number and state of a flow's entry; the number is [`NONE`](crate::record::NONE) if there
/// is none.
#[inline(always)]
pub(crate) fn find(hash: u64, key: &FlowKey) -> (u32, u32) {
    halves(part_find(hash, key))
}

/// As [`find`], for a datagram's entry.
#[inline(always)]
pub(crate) fn find_fragment(hash: u64, key: &FlowKey) -> (u32, u32) {
    halves(part_piece(hash, key))
}

/// As [`find`], for a client's entry.
#[inline(always)]
pub(crate) fn find_client(hash: u64, key: &FlowKey) -> (u32, u32) {
    halves(part_client(hash, key))
}

#[inline(always)]
const fn halves(both: u64) -> (u32, u32) {
    (both as u32, (both >> 32) as u32)
}

/// Locks a bucket of the flow index; returns whether it succeeded.
#[inline(always)]
pub(crate) fn lock(home: u32, owner: u64) -> bool {
    part_lock(home.into(), owner) != 0
}

/// Claims a slot of the flow index for a key with this hash; returns
/// [`NONE`](crate::record::NONE) if all are taken.
#[inline(always)]
pub(crate) fn claim(hash: u64) -> u32 {
    part_claim(hash) as u32
}

/// Allocates a free port of a map in `first..=last`.
#[inline(always)]
pub(crate) fn take(map: u32, first: u32, last: u32) -> Option<u32> {
    less_one(part_take(map.into(), first.into(), last.into()))
}
