//! `Pen`: the path of every store that a writer makes to shared memory.
//!
//! In tests, a pen stops storing after a chosen number of stores, which leaves the region as if the
//! process had been killed at that point, with the last record half written.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, Word};
use core::cell::UnsafeCell;

use crate::rows::Record;

/// Stores to shared memory on behalf of a writer.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    #[cfg(test)]
    ink: Option<core::cell::Cell<u64>>,
}

impl Pen {
    /// Returns a pen that performs `stores` stores and discards all later ones.
    #[cfg(test)]
    pub(crate) fn with_ink(stores: u64) -> Pen {
        Pen { ink: Some(core::cell::Cell::new(stores)) }
    }

    /// Number of stores left.
    #[cfg(test)]
    pub(crate) fn ink(&self) -> Option<u64> {
        self.ink.as_ref().map(core::cell::Cell::get)
    }

    /// Returns whether the next store is performed.
    #[inline(always)]
    fn dip(&self) -> bool {
        #[cfg(test)]
        if let Some(ink) = &self.ink {
            let left = ink.get();
            ink.set(left.saturating_sub(1));
            return left > 0;
        }
        true
    }

    /// Stores a word with release ordering.
    pub(crate) fn word<W: Word>(&self, cell: &W, value: u32) {
        if self.dip() {
            cell.set(value, Ordering::Release);
        }
    }

    /// Stores the word that publishes earlier stores, with sequentially consistent ordering.
    pub(crate) fn publish(&self, cell: &AtomicU32, value: u32) {
        if self.dip() {
            cell.store(value, Ordering::SeqCst);
        }
    }

    /// Stores a 64-bit word with release ordering.
    pub(crate) fn long(&self, cell: &AtomicU64, value: u64) {
        if self.dip() {
            cell.store(value, Ordering::Release);
        }
    }

    /// Stores words that no reader accesses yet.
    pub(crate) fn words(&self, cells: &[AtomicU32], values: &[u32]) {
        for (cell, value) in cells.iter().zip(values) {
            if self.dip() {
                cell.store(*value, Ordering::Relaxed);
            }
        }
    }

    /// Stores a record that no reader sees.
    pub(crate) fn record<T: Record>(&self, cell: &UnsafeCell<T>, record: T) {
        let bytes = if self.dip() { size_of::<T>() } else { 0 };
        #[cfg(test)]
        let bytes = if self.ink() == Some(0) { bytes / 2 } else { bytes };
        // SAFETY: both are `T`s; the record's version is hidden, so no reader accesses it, and
        // there is one writer.
        #[expect(unsafe_code, reason = "the one place where records are written")]
        unsafe {
            let from = core::ptr::from_ref(&record).cast::<u8>();
            cell.get().cast::<u8>().copy_from_nonoverlapping(from, bytes);
        }
    }
}
