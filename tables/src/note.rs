//! What the tables keep for dumps and for a restarted slowpath, and no lcore reads: the name of
//! each service, all its backends in their order, and what its choice was made of.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::pen::Pen;
use crate::record::{NAME_BYTES, SlotArray};
use crate::rows::{Shared, records};
use crate::versioned::Twin;

const WORDS: usize = 16;

/// All of one service. 256 bytes.
#[repr(C)]
pub(crate) struct NoteCell {
    /// The name's length in the first word, UTF-8 in the others.
    name: [AtomicU64; WORDS],
    pub(crate) note: Twin<ServiceNote>,
}

const _: () = assert!(8 * WORDS == 8 + NAME_BYTES && size_of::<NoteCell>() == 256);

// SAFETY: atomics, and a twin, which is shared by its own rules.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for NoteCell {}

impl NoteCell {
    /// The name; empty for none, and for one that is no UTF-8.
    pub(crate) fn name(&self) -> String {
        let len = (self.name[0].load(Ordering::Acquire) as usize).min(NAME_BYTES);
        let mut bytes = Vec::with_capacity(NAME_BYTES);
        for word in &self.name[1..] {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(len);
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Stores a name of at most [`NAME_BYTES`]; the length last.
    pub(crate) fn rename(&self, pen: &Pen, name: &str) {
        let mut bytes = [0; NAME_BYTES];
        let len = name.len().min(NAME_BYTES);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        pen.long(&self.name[0], 0);
        for (cell, word) in self.name[1..].iter().zip(bytes.as_chunks::<8>().0) {
            pen.long(cell, u64::from_le_bytes(*word));
        }
        pen.long(&self.name[0], len as u64);
    }
}

/// What a service's slots were made of.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceNote {
    /// The writer's own: tells equal choices apart from others without making them again.
    pub made_of: u64,
    /// A run of the slot arena with two words for each backend ([`Member`]). The writer decides it.
    pub members: SlotArray,
    /// A run with five words for each of its source ranges, as they were asked for: an address and
    /// how many of its 128 bits count. The writer decides it.
    pub ranges: SlotArray,
    /// How many of them, from the first, get new flows.
    pub serving: u32,
    /// Slots of the table, were there one: as asked for.
    pub table_size: u32,
}

records!(ServiceNote: 40);

/// A backend of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its id.
    pub backend: u32,
    /// Its weight in this service.
    pub weight: u16,
    /// Its state in this service, for dumps.
    pub state: u8,
    /// IP protocol that it serves; 0 for any.
    pub protocol: u8,
}

impl Member {
    pub(crate) fn words(self) -> [u32; 2] {
        let [low, high] = self.weight.to_le_bytes();
        [self.backend, u32::from_le_bytes([low, high, self.state, self.protocol])]
    }

    pub(crate) fn of([backend, more]: [u32; 2]) -> Member {
        let [low, high, state, protocol] = more.to_le_bytes();
        Member { backend, weight: u16::from_le_bytes([low, high]), state, protocol }
    }
}
