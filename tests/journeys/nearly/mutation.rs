//! Frames that are nearly another one.

use fastpath::burst::Arrival;
use fastrand::Rng;
use std::fmt;
use tests::cases::world::{IN_MAC, OUT_MAC};
use tests::frames::sum::checksum;

/// Bytes from the front that are mutated one by one: more than any headers that are remembered.
const REACH: usize = 112;

/// A frame as it is shown to the lcore.
#[derive(Clone, PartialEq, Eq)]
pub struct Trial {
    /// Arm by which it arrives.
    pub arm: u8,
    /// From the port or from the kernel.
    pub arrival: Arrival,
    /// Bytes in the first segment.
    pub first: usize,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { arm, arrival, first, bytes } = self;
        write!(f, "{arrival:?} by arm {arm}, {first} of {} bytes at hand: ", bytes.len())?;
        bytes.iter().take(REACH).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is changed in a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Another frame of the case altogether.
    Another,
    /// The first so many bytes are another frame's.
    Splice(usize),
    /// One bit is turned.
    Bit(usize, u8),
    /// A byte is set.
    Byte(usize, u8),
    /// Two bytes become this number.
    Word(usize, u16),
    /// The IP and the UDP length agree on an IP packet of so many bytes.
    Lengths(u16),
    /// The frame ends here.
    Cut(usize),
    /// So many bytes follow.
    Pad(usize),
    /// The first segment ends here.
    Split(usize),
    /// It comes by the other arm.
    OtherArm,
    /// It comes by the other arm, and to its address.
    OtherArmsOwn,
    /// It comes from the kernel.
    Kernel,
    /// It has a VLAN tag (one more).
    Tag(u16),
    /// Its VLAN tag is taken out.
    Untag,
    /// Its IPv4 header has a word of options (one more).
    Option(u32),
    /// The IPv4 header's checksum is made right after the change.
    Mended(Box<Mutation>),
    /// One after the other.
    Both(Box<Mutation>, Box<Mutation>),
}

/// Where the IP header begins.
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

/// Makes the outermost IPv4 header's checksum right, if there is such a header.
fn mend(bytes: &mut [u8]) {
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

/// Both lengths for an IP packet of `len` bytes, UDP behind a header without options.
fn set_lengths(bytes: &mut [u8], len: u16) {
    let at = l3(bytes);
    let (field, header) = if is_v4(bytes) { (at + 2, 20) } else { (at + 4, 40) };
    let ip = if header == 20 { len } else { len.wrapping_sub(40) };
    set(bytes, field, &ip.to_be_bytes());
    set(bytes, at + header + 4, &len.wrapping_sub(header as u16).to_be_bytes());
}

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
    /// What `seed` becomes by it.
    pub fn of(&self, seed: &Trial) -> Trial {
        let mut trial = seed.clone();
        let whole = trial.first == trial.bytes.len();
        self.change(&mut trial);
        if whole && trial.first == seed.first {
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
            Mutation::Mended(mutation) => {
                mutation.change(trial);
                mend(&mut trial.bytes);
            }
            Mutation::Both(one, other) => {
                one.change(trial);
                other.change(trial);
            }
        }
    }
}

/// Bits, bytes and numbers at every place within reach.
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

/// Lengths, ends and segments.
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

fn elsewhere() -> Vec<Mutation> {
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

/// All that is done to every frame. In a random order, so that any part of it is a sample.
pub fn all(seed: &Trial, rng: &mut Rng) -> Vec<Mutation> {
    let l3 = l3(&seed.bytes);
    let mut out = fields(seed, rng);
    out.extend(shapes(seed));
    let in_header: Vec<Mutation> = out.iter().filter(|m| is_summed(m, l3)).cloned().collect();
    out.extend(in_header.into_iter().map(|m| Mutation::Mended(Box::new(m))));
    let elsewhere = elsewhere();
    out.extend(elsewhere.iter().cloned().map(|m| Mutation::Mended(Box::new(m))));
    out.extend(elsewhere);
    for n in (1..out.len()).rev() {
        out.swap(n, rng.usize(..n + 1));
    }
    out
}

/// Whether what changes is below the checksum of an IP header at `l3`.
fn is_summed(mutation: &Mutation, l3: usize) -> bool {
    match mutation {
        Mutation::Bit(at, _) | Mutation::Byte(at, _) | Mutation::Word(at, _) => {
            (l3 - 1..l3 + 20).contains(at)
        }
        Mutation::Lengths(_) => true,
        _ => false,
    }
}

/// `count` pairs of them, with a right checksum.
pub fn double(single: &[Mutation], count: usize, rng: &mut Rng) -> Vec<Mutation> {
    let mut one = || Box::new(single[rng.usize(..single.len())].clone());
    (0..count).map(|_| Mutation::Mended(Box::new(Mutation::Both(one(), one())))).collect()
}

/// `seed` with ever more of the front of `other`.
pub fn splices(seed: &Trial, other: &Trial) -> impl Iterator<Item = (Mutation, Trial)> {
    let most = seed.bytes.len().min(other.bytes.len()).min(REACH);
    (1..most).map(|n| {
        let mut trial = seed.clone();
        set(&mut trial.bytes, 0, &other.bytes[..n]);
        mend(&mut trial.bytes);
        (Mutation::Splice(n), trial)
    })
}
