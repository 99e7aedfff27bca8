//! Maglev tables identical to Cilium's, slot for slot: equal backends, weights, size and seed
//! result in the same table on every appliance and on Cilium nodes.
//!
//! Each backend visits the slots in an order of its own (offset and skip from a 128-bit hash of its
//! text). In round-robin order, each backend takes its next free slot. A lower weight makes a
//! backend skip rounds. Backends are sorted by text, so ids do not matter.

mod murmur;
mod order;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use packet::addr::Addr;

pub use order::Order;

/// Permitted table sizes: the primes that Cilium permits.
pub const SIZES: [u32; 10] = [251, 509, 1021, 2039, 4093, 8191, 16_381, 32_749, 65_521, 131_071];

/// Seed of all tables: the first four of the twelve bytes that the configuration gives in base64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

impl Seed {
    /// Creates a seed from the twelve decoded bytes of the configuration.
    pub const fn from_bytes(bytes: [u8; 12]) -> Seed {
        Seed(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

impl Default for Seed {
    fn default() -> Seed {
        // From JLfvgnHc2kaSUFaI, Cilium's default. The other eight bytes seed the packet hash of
        // Cilium's data path, which is not used here.
        Seed(0x24b7_ef82)
    }
}

/// Maximum length of a [`text`] in bytes.
const LONGEST_TEXT: usize = 72;

/// A backend of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaglevBackend {
    /// Text by which it is hashed and sorted: see [`text`].
    pub text: String,
    /// Weight, above 0; its share of slots is the weight divided by the sum of weights.
    pub weight: u32,
}

/// Returns the text by which Cilium hashes a serving backend, for example
/// `[10.0.0.1:80/TCP,State:active]`.
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

/// Appends a number in decimal, without the cost of the formatter: a service may have 10,000
/// backends.
fn push_decimal(text: &mut String, number: u16) {
    let (more, digit) = (number / 10, (number % 10) as u8);
    if more > 0 {
        push_decimal(text, more);
    }
    text.push(char::from(b'0' + digit));
}

/// Start of the order in which a backend visits the slots.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// First slot.
    next: u32,
    /// Distance from one slot to the next, modulo the table size.
    skip: u32,
    /// Index of the backend.
    backend: u32,
}

/// Position of a backend in its slot order, and its account of the slots that are due to it.
struct Walk {
    /// Slot to try next.
    next: u64,
    skip: u64,
    /// Scaled weight: see [`scale`].
    weight: u64,
    /// Value that Cilium compares with rounds times weight.
    counter: f64,
    backend: u32,
}

/// Values common to all backends of a table.
struct Share {
    count: usize,
    /// Factor applied to weights.
    scale: u64,
    /// Sum of the scaled weights.
    sum: u64,
}

impl Share {
    fn of(weights: impl Iterator<Item = u32> + Clone) -> Share {
        let (count, scale) = (weights.clone().count(), scale(weights.clone()));
        Share { count, scale, sum: weights.map(|weight| u64::from(weight) * scale).sum() }
    }
}

/// Builds a table of `size` slots (one of [`SIZES`]) and returns, for each slot, the index of its
/// backend in `backends`. Empty without backends.
pub fn build(backends: &[MaglevBackend], size: u32, seed: Seed) -> Vec<u32> {
    if backends.is_empty() || size < 2 {
        return Vec::new();
    }
    let share = Share::of(backends.iter().map(|backend| backend.weight));
    let walk = |start: &Start| Walk::new(*start, backends[start.backend as usize].weight, &share);
    fill(sorted_starts(backends, u64::from(size), seed).iter().map(walk).collect(), size, &share)
}

/// Assigns slots to backends that are sorted by text. `m` is the number of slots, as in the Maglev
/// paper.
fn fill(mut walks: Vec<Walk>, size: u32, share: &Share) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    let (count, sum, m) = (share.count, share.sum, u64::from(size));
    let weighted = sum / count as u64 > 1;
    let mut table = vec![FREE; size as usize];
    for iteration in 0..m {
        let mut at = (iteration % count as u64) as usize;
        if weighted {
            // Some backend is always due, because rounds times weights sum up to at least the sum
            // of the counters. The bound covers rounding.
            for _ in 0..count {
                let walk = &walks[at];
                if (iteration + 1) * walk.weight >= walk.counter as u64 {
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

/// Builds a table of `size` slots without Maglev's property that few slots change with the
/// backends: each backend gets one contiguous run, with a share by weight that is exact to whole
/// slots.
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

/// Returns the starts of all backends, sorted by text.
fn sorted_starts(backends: &[MaglevBackend], m: u64, seed: Seed) -> Vec<Start> {
    // Most texts differ in their first bytes, which are compared as integers.
    let mut order: Vec<([u64; 3], u32)> =
        (0..).zip(backends).map(|(index, backend)| (first_bytes(&backend.text), index)).collect();
    order.sort_unstable_by(|(first, a), (other, b)| {
        let texts = || backends[*a as usize].text.cmp(&backends[*b as usize].text);
        first.cmp(other).then_with(texts).then(a.cmp(b))
    });
    let start = |(_, index)| start(&backends[index as usize].text, index, m, seed);
    order.into_iter().map(start).collect()
}

/// Returns the start of the slot order of a backend with this text.
fn start(text: &str, backend: u32, m: u64, seed: Seed) -> Start {
    let (h1, h2) = murmur::hash128(text.as_bytes(), seed.0);
    // Both are below m, which fits in 32 bits.
    Start { next: (h1 % m) as u32, skip: (h2 % (m - 1) + 1) as u32, backend }
}

/// Returns the 24 bytes after the first byte, which is the same in all texts, padded with zeros.
fn first_bytes(text: &str) -> [u64; 3] {
    let mut bytes = [0; 24];
    let rest = text.as_bytes().get(1..).unwrap_or_default();
    let rest = &rest[..rest.len().min(bytes.len())];
    bytes[..rest.len()].copy_from_slice(rest);
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|n| u64::from_be_bytes(words[n]))
}

/// Returns the factor for weights. Cilium ignores weights whose integer mean is at most 1, such as
/// {1, 2}. If such weights differ, they are scaled to a mean of at least 2, which keeps their
/// ratios.
fn scale(weights: impl Iterator<Item = u32> + Clone) -> u64 {
    let (count, first) = (weights.clone().count() as u64, weights.clone().next());
    let sum: u64 = weights.clone().map(u64::from).sum();
    let differ = weights.map(Some).any(|weight| weight != first);
    if !differ || sum == 0 || sum / count > 1 { 1 } else { (2 * count).div_ceil(sum) }
}
