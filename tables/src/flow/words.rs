//! Plain records in memory that another process changes meanwhile: copied word by word.
//!
//! Every word is an atomic, so a race yields a mixed record, which the seqlock around it rejects,
//! and never undefined behaviour. On x86-64 and AArch64 the copies are ordinary moves.

use crate::record::Record;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The record as its words hold it now, possibly mixed from two.
#[inline(always)]
pub(crate) fn load<T: Record, const N: usize>(from: &[AtomicU64; N]) -> T {
    const { assert!(size_of::<T>() == N * 8) };
    let words: [u64; N] = std::array::from_fn(|i| from[i].load(Relaxed));
    // SAFETY: a Record has no padding and takes any bit pattern; the sizes agree (above), and
    // transmute_copy reads unaligned.
    #[expect(unsafe_code, reason = "words become a record")]
    unsafe {
        std::mem::transmute_copy(&words)
    }
}

/// Writes a record over its words.
#[inline(always)]
pub(crate) fn store<T: Record, const N: usize>(to: &[AtomicU64; N], record: &T) {
    const { assert!(size_of::<T>() == N * 8) };
    // SAFETY: a Record has no padding, so all its bytes are initialised; the sizes agree (above).
    #[expect(unsafe_code, reason = "a record becomes words")]
    let words: [u64; N] = unsafe { std::mem::transmute_copy(record) };
    for (word, value) in to.iter().zip(words) {
        word.store(value, Relaxed);
    }
}

/// Copies the first `len` bytes out of `from`, whole words at a time, and no more than both have.
#[inline]
pub(crate) fn load_bytes(from: &[AtomicU64], len: usize, to: &mut [u8; 256]) {
    for (word, bytes) in from.iter().zip(to.chunks_exact_mut(8)).take(len.div_ceil(8)) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
}

/// Writes `bytes` to the front of `to`, the last word filled up with zeros.
#[inline]
pub(crate) fn store_bytes(to: &[AtomicU64], bytes: &[u8]) {
    for (word, part) in to.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        word.store(u64::from_ne_bytes(whole), Relaxed);
    }
}
