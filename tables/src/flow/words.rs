//! Word-by-word copies of plain records that other processes modify concurrently.
//!
//! Each word is an atomic. A race therefore results in a torn record, which the surrounding seqlock
//! rejects, and never in undefined behavior. On x86-64 and AArch64 the copies are ordinary moves.

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::record::Record;

/// Returns the record in these words, which may be torn.
#[inline(always)]
pub(crate) fn load<T: Record, const N: usize>(from: &[AtomicU64; N]) -> T {
    const { assert!(size_of::<T>() == N * 8) };
    let words: [u64; N] = core::array::from_fn(|i| from[i].load(Relaxed));
    // SAFETY: a Record has no padding and takes any bit pattern; the sizes agree (above), and
    // transmute_copy reads unaligned.
    #[expect(unsafe_code, reason = "converts words to a record")]
    unsafe {
        core::mem::transmute_copy(&words)
    }
}

/// Stores a record into its words.
#[inline(always)]
pub(crate) fn store<T: Record, const N: usize>(to: &[AtomicU64; N], record: &T) {
    const { assert!(size_of::<T>() == N * 8) };
    for (i, to) in to.iter().enumerate() {
        to.store(word(record, i), Relaxed);
    }
}

/// Returns word `i` of a record, or zero beyond its end.
#[inline(always)]
pub(crate) fn word<T: Record>(record: &T, i: usize) -> u64 {
    if i >= size_of::<T>() / 8 {
        return 0;
    }
    // SAFETY: a Record has no padding, so all its bytes are initialized; word `i` is within it
    // (above).
    #[expect(unsafe_code, reason = "converts a record to words")]
    unsafe {
        core::ptr::from_ref(record).cast::<u64>().add(i).read_unaligned()
    }
}

/// Maximum length of GENEVE options in bytes (RFC 8926 §3.4: a 6-bit count of 4-byte words).
pub const MAX_OPTIONS: usize = 252;

/// Space for the longest options, in words: byte access is expensive in the BPF program.
pub type OptionWords = [u64; 32];

/// Options of a gateway: bytes in processes. In the BPF program they are words with a zero-padded
/// last word, because the verifier does not support slices.
#[cfg(not(target_arch = "bpf"))]
pub type Options<'a> = &'a [u8];
/// Options of a gateway in the BPF program: words, of which the last is zero-padded.
#[cfg(target_arch = "bpf")]
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The words.
    pub words: &'a OptionWords,
    /// Length in bytes.
    pub len: usize,
}

/// Common access to both forms of options.
pub(crate) trait Words {
    /// Length in bytes.
    fn byte_len(&self) -> usize;
    /// Returns word `i`; the last one is zero-padded.
    fn word(&self, i: usize) -> u64;
}

#[cfg(not(target_arch = "bpf"))]
impl Words for Options<'_> {
    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        let rest = self.get(i * 8..).unwrap_or_default();
        if let Some(chunk) = rest.first_chunk() {
            return u64::from_ne_bytes(*chunk);
        }
        let mut padded = [0; 8];
        padded[..rest.len()].copy_from_slice(rest);
        u64::from_ne_bytes(padded)
    }
}

#[cfg(target_arch = "bpf")]
impl Words for Options<'_> {
    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        self.words[i & 31]
    }
}

/// Copies the words that hold the first `len` bytes of `from`, at most `N` words, to plain words.
#[inline(always)]
pub(crate) fn load_bytes<const N: usize>(from: &[AtomicU64; N], len: usize, to: &mut OptionWords) {
    const { assert!(N <= 32) };
    for i in 0..N {
        if i * 8 >= len {
            break;
        }
        to[i] = from[i].load(Relaxed);
    }
}

/// Copies the words that hold the first `len` bytes of `from`, at most `N` words, to shared words.
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

/// Writes `bytes` to the beginning of `to`, at most `N` words; the last word is zero-padded.
#[inline(always)]
pub(crate) fn store_bytes<const N: usize>(to: &[AtomicU64; N], bytes: &Options<'_>) {
    let len = bytes.byte_len();
    for (i, to) in to.iter().enumerate() {
        if i * 8 >= len {
            break;
        }
        to.store(bytes.word(i), Relaxed);
    }
}
