//! Service notes: data that dumps and a restarted slowpath read, and lcores do not. The note of a
//! service has its name, all its backends in their order, and the inputs of its backend selection.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{NAME_BYTES, SlotArray};
use crate::region_writer::RegionWriter;
use crate::rows::{Shared, records};
use crate::versioned::Versioned;

const WORDS: usize = 16;

/// Name and note of a service. 256 bytes.
#[repr(C)]
pub(crate) struct NoteCell {
    /// Length of the name in bytes in the first word, UTF-8 in the others.
    name: [AtomicU64; WORDS],
    pub(crate) note: Versioned<ServiceNote>,
}

const _: () = assert!(8 * WORDS == 8 + NAME_BYTES && size_of::<NoteCell>() == 256);

// SAFETY: atomics and a `Versioned`, which is `Shared` itself.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for NoteCell {}

impl NoteCell {
    /// Returns the name; empty if there is none or it is not valid UTF-8.
    pub(crate) fn name(&self) -> String {
        let len = (self.name[0].load(Ordering::Acquire) as usize).min(NAME_BYTES);
        let mut bytes = Vec::with_capacity(NAME_BYTES);
        for word in &self.name[1..] {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(len);
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Stores a name of at most [`NAME_BYTES`]; its length is stored last.
    pub(crate) fn rename(&self, writer: &RegionWriter, name: &str) {
        let mut bytes = [0; NAME_BYTES];
        let len = name.len().min(NAME_BYTES);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        writer.store_u64(&self.name[0], 0);
        for (cell, word) in self.name[1..].iter().zip(bytes.as_chunks::<8>().0) {
            writer.store_u64(cell, u64::from_le_bytes(*word));
        }
        writer.store_u64(&self.name[0], len as u64);
    }
}

/// Inputs from which a service's slots were built.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceNote {
    /// Fingerprint of the inputs. The writer's caller computes it, and rebuilds the slots only if
    /// it changed.
    pub inputs_sum: u64,
    /// Run of the slot arena with two words per backend ([`Member`]). The writer assigns it.
    pub members: SlotArray,
    /// Run of the slot arena with five words per configured source range: an address and its prefix
    /// length in the 128-bit form. The writer assigns it.
    pub ranges: SlotArray,
    /// Number of backends, from the first, that receive new flows.
    pub serving: u32,
    /// Configured number of slots; used if the service has a Maglev table.
    pub table_size: u32,
}

records!(ServiceNote: 32);

/// A backend as a member of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Backend id.
    pub backend: u32,
    /// Weight in this service.
    pub weight: u16,
    /// State in this service, for dumps: a number of [`BackendState`](crate::record::BackendState).
    pub state: u8,
    /// IP protocol for which it serves; 0 for any.
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
