//! Searches that are functions of their own in the kernel's program, so that the verifier looks at
//! each once and not once for every way that leads to it.
//!
//! The program has to define them, by these names, global and out of line, because only it can:
//!
//! ```text
//! part_walk    walked      a chain of frontends
//! part_kinds   tried       a frontend's address with and without port and protocol
//! part_claim   claimed     a free slot of the flow index
//! part_take    taken       a free port of a NAT port map
//! ```
//! Such a function takes five numbers at most and returns one; it must use all that it takes.

use packet::addr::Addr;

use crate::flow::Flows;
use crate::nat_port::NatPorts;
use crate::lookup::{Frontends, chained};
use crate::record::FrontendKey;
use crate::region::Region;

#[expect(unsafe_code, reason = "functions of the program's")]
unsafe extern "C" {
    safe fn part_walk(scope_key: u64, first: u64, second: u64, rest: u64, link_at: u64) -> u64;
    safe fn part_kinds(scope_key: u64, first: u64, second: u64, rest: u64, kinds_at: u64) -> u64;
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
fn found(target: u64) -> Option<u32> {
    if target == 0 { None } else { Some((target - 1) as u32) }
}

/// The target of `key` in the chain that begins with `link`, as `at` sees it.
#[inline(always)]
pub(crate) fn walk(link: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    found(part_walk(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(link, at)))
}

/// What `part_walk` does.
#[inline(always)]
pub fn walked(scope_key: u64, first: u64, second: u64, rest: u64, link_at: u64) -> u64 {
    let key = key(scope_key, first, second, rest);
    chained(link_at as u32, key, (link_at >> 32) as u32).map_or(0, |target| u64::from(target) + 1)
}

/// The target of `key`, in each of `kinds`, as `at` sees it.
#[inline(always)]
pub(crate) fn try_kinds(kinds: u32, key: &FrontendKey, at: u32) -> Option<u32> {
    let [a, b, c, d] = key.addr.words;
    found(part_kinds(key.scope_key, pair(a, b), pair(c, d), rest(key), pair(kinds, at)))
}

/// What `part_kinds` does.
#[inline(always)]
pub fn tried(scope_key: u64, first: u64, second: u64, rest: u64, kinds_at: u64) -> u64 {
    let (key, kinds, at) = (key(scope_key, first, second, rest), kinds_at, kinds_at >> 32);
    let found = Frontends::new(&Region).try_kinds(kinds as u32, key, at as u32);
    found.map_or(0, |target| u64::from(target) + 1)
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
    found(part_take(map.into(), first.into(), last.into()))
}

/// What `part_take` does.
#[inline(always)]
pub fn taken(map: u64, first: u64, last: u64) -> u64 {
    let port = NatPorts::new(&Region).take(map as u32, first as u32, last as u32);
    port.map_or(0, |port| u64::from(port) + 1)
}
