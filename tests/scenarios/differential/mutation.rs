//! Mutations of frames: changed bytes, lengths, segments, arrivals, and parts of other frames.

use fastpath::burst::Arrival;
use fastrand::Rng;
use std::fmt;
use tests::cases::addresses::{IN_MAC, OUT_MAC};
use tests::frames::sum::checksum;

/// The number of bytes from the front that are mutated one by one: more than any cached headers.
const REACH: usize = 112;

/// A frame as it arrives at the lcore.
#[derive(Clone, PartialEq, Eq)]
pub struct Trial {
    /// The arm at which it arrives.
    pub arm: u8,
    /// Whether it arrives from the port or from the kernel.
    pub arrival: Arrival,
    /// Bytes in the first segment.
    pub first: usize,
    /// All bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { arm, arrival, first, bytes } = self;
        let len = bytes.len();
        write!(f, "{arrival:?} by arm {arm}, {first} of {len} bytes in the first segment: ")?;
        bytes.iter().take(REACH).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The change to a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Replace by another frame of the case. The caller does this.
    Another,
    /// Replace this many bytes at the front by another frame's. [`splices`] does this.
    Splice(usize),
    /// Flip one bit.
    Bit(usize, u8),
    /// Set a byte.
    Byte(usize, u8),
    /// Set two bytes to this number.
    Word(usize, u16),
    /// Set the IP and the UDP length consistently for an IP packet of this many bytes.
    Lengths(u16),
    /// Truncate to this length.
    Cut(usize),
    /// Append this many bytes.
    Pad(usize),
    /// End the first segment here.
    Split(usize),
    /// Arrive at the other arm.
    OtherArm,
    /// Arrive at the other arm, with that arm's MAC address as destination.
    OtherArmsOwn,
    /// Arrive from the kernel.
    Kernel,
    /// Add a VLAN tag.
    Tag(u16),
    /// Remove the VLAN tag.
    Untag,
    /// Add a word of options to the outermost IPv4 header.
    Option(u32),
    /// Apply this mutation, then correct the outermost IPv4 header's checksum.
    WithChecksum(Box<Mutation>),
    /// Apply both, in this order.
    Both(Box<Mutation>, Box<Mutation>),
}

/// Returns the offset of the IP header.
fn l3(bytes: &[u8]) -> usize {
    if bytes.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 }
}

fn is_v4(bytes: &[u8]) -> bool {
    let l3 = l3(bytes);
    bytes.get(l3 - 2..l3) == Some(&[8, 0])
}

fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(value) {
        *byte = *new;
    }
}

/// Corrects the outermost IPv4 header's checksum, if there is such a header.
fn correct_checksum(bytes: &mut [u8]) {
    let at = l3(bytes);
    let Some(first) = bytes.get(at).filter(|_| is_v4(bytes)) else { return };
    let end = at + usize::from(first & 15) * 4;
    if end < at + 20 || end > bytes.len() {
        return;
    }
    set(bytes, at + 10, &[0, 0]);
    let sum = checksum(&bytes[at..end]);
    set(bytes, at + 10, &sum.to_be_bytes());
}

/// Sets the IP and UDP lengths for an IP packet of `len` bytes, assuming an IP header without
/// options.
fn set_lengths(bytes: &mut [u8], len: u16) {
    let at = l3(bytes);
    let (field, header) = if is_v4(bytes) { (at + 2, 20) } else { (at + 4, 40) };
    let ip = if header == 20 { len } else { len.wrapping_sub(40) };
    set(bytes, field, &ip.to_be_bytes());
    set(bytes, at + header + 4, &len.wrapping_sub(header as u16).to_be_bytes());
}

/// Inserts four bytes of options behind the fixed part of the outermost IPv4 header, and adapts the
/// header's lengths.
fn insert_option(bytes: &mut Vec<u8>, option: u32) {
    let at = l3(bytes);
    if !is_v4(bytes) || bytes.len() < at + 20 {
        return;
    }
    bytes[at] = bytes[at].wrapping_add(1);
    let len = word(bytes, at + 2).wrapping_add(4);
    set(bytes, at + 2, &len.to_be_bytes());
    bytes.splice(at + 20..at + 20, option.to_be_bytes());
}

impl Mutation {
    /// Applies the mutation to `seed`.
    pub fn apply_to(&self, seed: &Trial) -> Trial {
        let mut trial = seed.clone();
        let unsplit = trial.first == trial.bytes.len();
        self.change(&mut trial);
        if unsplit && trial.first == seed.first {
            trial.first = trial.bytes.len();
        }
        trial
    }

    fn change(&self, trial: &mut Trial) {
        let bytes = &mut trial.bytes;
        match self {
            Mutation::Another | Mutation::Splice(_) => {}
            Mutation::Bit(at, bit) => {
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte ^= 1 << bit;
                }
            }
            Mutation::Byte(at, value) => set(bytes, *at, &[*value]),
            Mutation::Word(at, value) => set(bytes, *at, &value.to_be_bytes()),
            Mutation::Lengths(len) => set_lengths(bytes, *len),
            Mutation::Cut(len) => bytes.truncate(*len),
            Mutation::Pad(more) => bytes.resize(bytes.len() + more, 0xa5),
            Mutation::Split(first) => trial.first = *first,
            Mutation::OtherArm => trial.arm ^= 1,
            Mutation::OtherArmsOwn => {
                trial.arm ^= 1;
                set(bytes, 0, &[IN_MAC, OUT_MAC][usize::from(trial.arm)]);
            }
            Mutation::Kernel => trial.arrival = Arrival::Kernel,
            Mutation::Tag(tag) => {
                let at = bytes.len().min(12);
                bytes.splice(at..at, [0x81, 0, (tag >> 8) as u8, *tag as u8]);
            }
            Mutation::Untag => {
                if l3(bytes) == 18 && bytes.len() >= 16 {
                    bytes.drain(12..16);
                }
            }
            Mutation::Option(option) => insert_option(bytes, *option),
            Mutation::WithChecksum(mutation) => {
                mutation.change(trial);
                correct_checksum(&mut trial.bytes);
            }
            Mutation::Both(one, other) => {
                one.change(trial);
                other.change(trial);
            }
        }
    }
}

/// Returns mutations of bits, bytes and numbers at every offset within reach.
fn fields(seed: &Trial, rng: &mut Rng) -> Vec<Mutation> {
    let mut out = Vec::new();
    for at in 0..seed.bytes.len().min(REACH) {
        out.extend((0..8).map(|bit| Mutation::Bit(at, bit)));
        let values = [0, 0xff, rng.u8(..), rng.u8(..)];
        out.extend(values.map(|value| Mutation::Byte(at, value)));
        let old = word(&seed.bytes, at);
        let values = [0, 0xffff, old.wrapping_add(1), old.wrapping_sub(1), old.swap_bytes()];
        out.extend(values.map(|value| Mutation::Word(at, value)));
    }
    out
}

/// Returns mutations of lengths, ends and segments.
fn shapes(seed: &Trial) -> Vec<Mutation> {
    let len = seed.bytes.len();
    let near = (0..len.min(REACH + 64)).chain(len.saturating_sub(4)..len + 2);
    let mut out: Vec<Mutation> = near
        .clone()
        .map(|n| Mutation::Lengths(n as u16))
        .chain([Mutation::Lengths(65_535)])
        .collect();
    out.extend(near.clone().map(Mutation::Cut));
    out.extend(near.map(Mutation::Split));
    out.extend([1, 2, 4, 46, 1_500].map(Mutation::Pad));
    out
}

/// Returns mutations of the arm, the arrival, the VLAN tag and the IPv4 options.
fn arrivals_and_tags() -> Vec<Mutation> {
    let mut out = vec![
        Mutation::OtherArm,
        Mutation::OtherArmsOwn,
        Mutation::Kernel,
        Mutation::Untag,
        Mutation::Option(0x0101_0101),
        Mutation::Option(0),
        Mutation::Option(0x8304_0000),
    ];
    out.extend([0, 1, 7, 0x2007, 0xffff].map(Mutation::Tag));
    out
}

/// Returns all mutations of a frame, in random order, so that any part of them is a sample.
pub fn all(seed: &Trial, rng: &mut Rng) -> Vec<Mutation> {
    let l3 = l3(&seed.bytes);
    let mut out = fields(seed, rng);
    out.extend(shapes(seed));
    let in_header: Vec<Mutation> = out.iter().filter(|m| is_summed(m, l3)).cloned().collect();
    out.extend(in_header.into_iter().map(|m| Mutation::WithChecksum(Box::new(m))));
    let others = arrivals_and_tags();
    out.extend(others.iter().cloned().map(|m| Mutation::WithChecksum(Box::new(m))));
    out.extend(others);
    for n in (1..out.len()).rev() {
        out.swap(n, rng.usize(..n + 1));
    }
    out
}

/// Returns whether the mutation changes bytes that the checksum of an IPv4 header at `l3` covers.
fn is_summed(mutation: &Mutation, l3: usize) -> bool {
    match mutation {
        Mutation::Bit(at, _) | Mutation::Byte(at, _) | Mutation::Word(at, _) => {
            (l3 - 1..l3 + 20).contains(at)
        }
        Mutation::Lengths(_) => true,
        _ => false,
    }
}

/// Returns `count` random pairs of mutations, with a corrected IPv4 header checksum.
pub fn double(single: &[Mutation], count: usize, rng: &mut Rng) -> Vec<Mutation> {
    let mut one = || Box::new(single[rng.usize(..single.len())].clone());
    (0..count).map(|_| Mutation::WithChecksum(Box::new(Mutation::Both(one(), one())))).collect()
}

/// Returns variants of `seed` in which 1, 2, 3 and more bytes at the front are those of `other`.
pub fn splices(seed: &Trial, other: &Trial) -> impl Iterator<Item = (Mutation, Trial)> {
    let max = seed.bytes.len().min(other.bytes.len()).min(REACH);
    (1..max).map(|n| {
        let mut trial = seed.clone();
        set(&mut trial.bytes, 0, &other.bytes[..n]);
        correct_checksum(&mut trial.bytes);
        (Mutation::Splice(n), trial)
    })
}
