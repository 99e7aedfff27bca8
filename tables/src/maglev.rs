//! Maglev tables as Cilium builds them, slot for slot: the same backends, weights, size and seed
//! give the same table on every appliance, and on a Cilium node beside it.
//!
//! Each backend walks the slots in an order of its own (offset and skip from a 128-bit hash of its
//! text); the backends take turns, and each takes its next free slot. A weight makes a backend miss
//! turns. Sorting by text makes ids irrelevant.

mod murmur;
mod order;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use packet::addr::Addr;

pub use order::Order;

/// Table sizes: the primes that Cilium allows.
pub const SIZES: [u32; 10] = [251, 509, 1021, 2039, 4093, 8191, 16_381, 32_749, 65_521, 131_071];

/// The seed of all tables: the first four of twelve bytes that are written in base64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

impl Seed {
    /// The seed in its twelve bytes, as a checked configuration has it.
    pub const fn from_bytes(bytes: [u8; 12]) -> Seed {
        Seed(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

impl Default for Seed {
    fn default() -> Seed {
        // Of JLfvgnHc2kaSUFaI, Cilium's default. The other eight bytes seed the packet hash of its
        // data path, which is not ours.
        Seed(0x24b7_ef82)
    }
}

/// Bytes of the longest [`text`].
const LONGEST_TEXT: usize = 72;

/// One backend of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaglevBackend {
    /// What it is hashed and sorted by: see [`text`].
    pub text: String,
    /// Its share is this weight by the sum of weights; not 0.
    pub weight: u32,
}

/// The text by which Cilium hashes a serving backend, `[10.0.0.1:80/TCP,State:active]`.
pub fn text(addr: &Addr, port: u16, protocol: &str) -> String {
    let mut text = String::with_capacity(LONGEST_TEXT);
    text.push('[');
    match IpAddr::from(*addr) {
        IpAddr::V4(ip) => {
            for (n, octet) in ip.octets().into_iter().enumerate() {
                if n > 0 {
                    text.push('.');
                }
                push_decimal(&mut text, octet.into());
            }
        }
        IpAddr::V6(ip) => text.push_str(&format!("[{ip}]")),
    }
    text.push(':');
    push_decimal(&mut text, port);
    text.push('/');
    text.push_str(protocol);
    text.push_str(",State:active]");
    text
}

/// A number in digits, without the formatter: a service may have 10,000 backends.
fn push_decimal(text: &mut String, number: u16) {
    let (more, digit) = (number / 10, (number % 10) as u8);
    if more > 0 {
        push_decimal(text, more);
    }
    text.push(char::from(b'0' + digit));
}

/// Where a backend's own order of the slots begins, and how it goes on.
#[derive(Clone, Copy, Debug)]
struct Start {
    next: u32,
    skip: u32,
    backend: u32,
}

/// A backend's own order of the slots, and where it stands in it.
struct Walk {
    next: u64,
    skip: u64,
    weight: u64,
    /// What Cilium compares with turns times weight.
    counter: f64,
    backend: u32,
}

/// What all backends of a table have in common.
struct Share {
    count: usize,
    /// By which weights are multiplied.
    scale: u64,
    /// Of the weights, multiplied.
    sum: u64,
}

impl Share {
    fn of(weights: impl Iterator<Item = u32> + Clone) -> Share {
        let (count, scale) = (weights.clone().count(), scale(weights.clone()));
        Share { count, scale, sum: weights.map(|weight| u64::from(weight) * scale).sum() }
    }
}

/// The table of `size` slots (one of [`SIZES`]): for each slot the index of its backend in
/// `backends`. Empty without backends.
pub fn build(backends: &[MaglevBackend], size: u32, seed: Seed) -> Vec<u32> {
    if backends.is_empty() || size < 2 {
        return Vec::new();
    }
    let share = Share::of(backends.iter().map(|backend| backend.weight));
    let walk = |start: &Start| Walk::new(*start, backends[start.backend as usize].weight, &share);
    fill(walks(backends, u64::from(size), seed).iter().map(walk).collect(), size, &share)
}

/// Gives the slots to backends that are sorted by text.
fn fill(mut walks: Vec<Walk>, size: u32, share: &Share) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    let (count, sum, m) = (share.count, share.sum, u64::from(size));
    let weighted = sum / count as u64 > 1;
    let mut table = vec![FREE; size as usize];
    for turn in 0..m {
        let mut at = (turn % count as u64) as usize;
        if weighted {
            // Some backend is always due: turns times weights sum up to no less than the counters
            // do. The bound is for their rounding.
            for _ in 0..count {
                let walk = &walks[at];
                if (turn + 1) * walk.weight >= walk.counter as u64 {
                    break;
                }
                at = (at + 1) % count;
            }
            walks[at].counter += sum as f64;
        }
        let walk = &mut walks[at];
        while table[walk.next as usize] != FREE {
            walk.step(m);
        }
        table[walk.next as usize] = walk.backend;
        walk.step(m);
    }
    table
}

/// A table of `size` slots for services that ask for no consistency: to each backend its share by
/// weight, as exactly as whole slots allow, one run after the other.
pub fn shares(weights: &[u32], size: u32) -> Vec<u32> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let (mut table, mut upto) = (Vec::with_capacity(size as usize), 0);
    for (index, weight) in (0..).zip(weights) {
        upto += u64::from(*weight) * u64::from(size);
        table.resize((upto / sum.max(1)) as usize, index);
    }
    table
}

impl Walk {
    fn new(Start { next, skip, backend }: Start, weight: u32, share: &Share) -> Walk {
        let weight = u64::from(weight) * share.scale;
        let counter = weight as f64 / share.count as f64;
        Walk { next: next.into(), skip: skip.into(), weight, counter, backend }
    }

    fn step(&mut self, m: u64) {
        // Both are below m.
        let next = self.next + self.skip;
        self.next = if next < m { next } else { next - m };
    }
}

/// The starts of all walks in the order of texts.
fn walks(backends: &[MaglevBackend], m: u64, seed: Seed) -> Vec<Start> {
    // Most texts differ in their first bytes, which are compared as numbers.
    let mut order: Vec<([u64; 3], u32)> =
        (0..).zip(backends).map(|(index, backend)| (first_bytes(&backend.text), index)).collect();
    order.sort_unstable_by(|(first, a), (other, b)| {
        let texts = || backends[*a as usize].text.cmp(&backends[*b as usize].text);
        first.cmp(other).then_with(texts).then(a.cmp(b))
    });
    let start = |(_, index)| start(&backends[index as usize].text, index, m, seed);
    order.into_iter().map(start).collect()
}

/// Where the walk of a backend with this text begins.
fn start(text: &str, backend: u32, m: u64, seed: Seed) -> Start {
    let (h1, h2) = murmur::hash128(text.as_bytes(), seed.0);
    // Both are below m, which is 32 bits wide.
    Start { next: (h1 % m) as u32, skip: (h2 % (m - 1) + 1) as u32, backend }
}

/// The bytes of a text behind its first one, which all texts have alike; 0 where it is shorter.
fn first_bytes(text: &str) -> [u64; 3] {
    let mut bytes = [0; 24];
    let there = text.as_bytes().get(1..).unwrap_or_default();
    let there = &there[..there.len().min(bytes.len())];
    bytes[..there.len()].copy_from_slice(there);
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|n| u64::from_be_bytes(words[n]))
}

/// Cilium ignores weights whose integer mean is at most 1, {1, 2} for instance. Such weights, where
/// they differ, are multiplied first, which keeps their ratios and brings the mean to 2.
fn scale(weights: impl Iterator<Item = u32> + Clone) -> u64 {
    let (count, first) = (weights.clone().count() as u64, weights.clone().next());
    let sum: u64 = weights.clone().map(u64::from).sum();
    let differ = weights.map(Some).any(|weight| weight != first);
    if !differ || sum == 0 || sum / count > 1 { 1 } else { (2 * count).div_ceil(sum) }
}
