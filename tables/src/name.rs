//! Service names by id: for people, and for a restarted slowpath that looks for its services.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::pen::Pen;
use crate::record::NAME_BYTES;
use crate::region::Shared;

const WORDS: usize = 16;

/// A name: its length in the first word, UTF-8 in the others. 128 bytes. No lcore reads it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NameCell([AtomicU64; WORDS]);

const _: () = assert!(size_of::<NameCell>() == 8 + NAME_BYTES);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for NameCell {}

impl NameCell {
    /// The name; empty for none, and for one that is no UTF-8.
    pub(crate) fn load(&self) -> String {
        let len = (self.0[0].load(Ordering::Acquire) as usize).min(NAME_BYTES);
        let mut bytes = Vec::with_capacity(NAME_BYTES);
        for word in &self.0[1..] {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(len);
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Stores a name of at most [`NAME_BYTES`]; the length last.
    pub(crate) fn store(&self, pen: &Pen, name: &str) {
        let mut bytes = [0; NAME_BYTES];
        let len = name.len().min(NAME_BYTES);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        pen.long(&self.0[0], 0);
        for (cell, word) in self.0[1..].iter().zip(bytes.as_chunks::<8>().0) {
            pen.long(cell, u64::from_le_bytes(*word));
        }
        pen.long(&self.0[0], len as u64);
    }
}
