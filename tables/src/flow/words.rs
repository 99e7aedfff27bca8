//! Plain records in memory that another process changes meanwhile: copied word by word.
//!
//! Every word is an atomic, so a race yields a mixed record, which the seqlock around it rejects,
//! and never undefined behaviour. On x86-64 and AArch64 the copies are ordinary moves.

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::record::Record;

/// The record as its words hold it now, possibly mixed from two.
#[inline(always)]
pub(crate) fn load<T: Record, const N: usize>(from: &[AtomicU64; N]) -> T {
    const { assert!(size_of::<T>() == N * 8) };
    let words: [u64; N] = core::array::from_fn(|i| from[i].load(Relaxed));
    // SAFETY: a Record has no padding and takes any bit pattern; the sizes agree (above), and
    // transmute_copy reads unaligned.
    #[expect(unsafe_code, reason = "words become a record")]
    unsafe {
        core::mem::transmute_copy(&words)
    }
}

/// Writes a record over its words.
#[inline(always)]
pub(crate) fn store<T: Record, const N: usize>(to: &[AtomicU64; N], record: &T) {
    const { assert!(size_of::<T>() == N * 8) };
    for (i, to) in to.iter().enumerate() {
        to.store(word(record, i), Relaxed);
    }
}

/// Word `i` of a record, zero behind its end.
#[inline(always)]
pub(crate) fn word<T: Record>(record: &T, i: usize) -> u64 {
    if i >= size_of::<T>() / 8 {
        return 0;
    }
    // SAFETY: a Record has no padding, so all its bytes are initialised; word `i` is within it
    // (above).
    #[expect(unsafe_code, reason = "a record becomes words")]
    unsafe {
        core::ptr::from_ref(record).cast::<u64>().add(i).read_unaligned()
    }
}

/// Most option bytes that GENEVE can carry (RFC 8926 3.4: 6 bits of 4-byte words).
pub const MAX_OPTIONS: usize = 252;

/// Room for the longest options, in words: the kernel's program has no cheap way to single bytes.
pub type OptionRoom = [u64; 32];

/// A gateway's options: bytes to processes. In the kernel the words that they lie in, the last one
/// filled up with zeros, since its verifier doesn't follow slices.
#[cfg(not(target_arch = "bpf"))]
pub type Options<'a> = &'a [u8];
/// As above, in the kernel.
#[cfg(target_arch = "bpf")]
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The words.
    pub words: &'a OptionRoom,
    /// How many bytes count.
    pub len: usize,
}

/// Options of either kind.
pub(crate) trait Words {
    /// How many bytes they have.
    fn bytes(&self) -> usize;
    /// Word `i`, the last one filled up with zeros.
    fn word(&self, i: usize) -> u64;
}

#[cfg(not(target_arch = "bpf"))]
impl Words for Options<'_> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        let rest = self.get(i * 8..).unwrap_or_default();
        if let Some(whole) = rest.first_chunk() {
            return u64::from_ne_bytes(*whole);
        }
        let mut whole = [0; 8];
        whole[..rest.len()].copy_from_slice(rest);
        u64::from_ne_bytes(whole)
    }
}

#[cfg(target_arch = "bpf")]
impl Words for Options<'_> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        self.words[i & 31]
    }
}

/// Copies the first `len` bytes out of `from`, whole words at a time, and no more than both have.
#[inline(always)]
pub(crate) fn load_bytes<const N: usize>(from: &[AtomicU64; N], len: usize, to: &mut OptionRoom) {
    const { assert!(N <= 32) };
    for i in 0..N {
        if i * 8 >= len {
            break;
        }
        to[i] = from[i].load(Relaxed);
    }
}

/// Copies the first `len` bytes, whole words at a time, and no more than both have.
#[inline(always)]
pub(crate) fn copy<const N: usize>(from: &[AtomicU64; N], to: &[AtomicU64; 32], len: usize) {
    const { assert!(N <= 32) };
    for i in 0..N {
        if i * 8 >= len {
            break;
        }
        to[i].store(from[i].load(Relaxed), Relaxed);
    }
}

/// Writes `bytes` to the front of `to`, the last word filled up with zeros.
#[inline(always)]
pub(crate) fn store_bytes<const N: usize>(to: &[AtomicU64; N], bytes: &Options<'_>) {
    let len = bytes.bytes();
    for (i, to) in to.iter().enumerate() {
        if i * 8 >= len {
            break;
        }
        to.store(bytes.word(i), Relaxed);
    }
}
