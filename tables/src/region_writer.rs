//! `RegionWriter`: the path of every store that a writer makes to shared memory.
//!
//! In tests, a writer stops storing after a chosen number of stores, which leaves the region as if
//! the process had been killed at that point, with the last record half written.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, Word};
use core::cell::UnsafeCell;

use crate::rows::Record;

/// Stores to shared memory on behalf of a table writer.
#[derive(Debug, Default)]
pub(crate) struct RegionWriter {
    #[cfg(test)]
    stores_left: Option<core::cell::Cell<u64>>,
}

impl RegionWriter {
    /// Returns a writer that performs `stores` stores and discards all later ones.
    #[cfg(test)]
    pub(crate) fn with_store_limit(stores: u64) -> RegionWriter {
        RegionWriter { stores_left: Some(core::cell::Cell::new(stores)) }
    }

    /// Number of stores left.
    #[cfg(test)]
    pub(crate) fn stores_left(&self) -> Option<u64> {
        self.stores_left.as_ref().map(core::cell::Cell::get)
    }

    /// Returns whether the next store is performed.
    #[inline(always)]
    fn may_store(&self) -> bool {
        #[cfg(test)]
        if let Some(stores_left) = &self.stores_left {
            let left = stores_left.get();
            stores_left.set(left.saturating_sub(1));
            return left > 0;
        }
        true
    }

    /// Stores a word with release ordering.
    pub(crate) fn store_word<W: Word>(&self, cell: &W, value: u32) {
        if self.may_store() {
            cell.set(value, Ordering::Release);
        }
    }

    /// Stores the word that publishes earlier stores, with sequentially consistent ordering.
    pub(crate) fn publish(&self, cell: &AtomicU32, value: u32) {
        if self.may_store() {
            cell.store(value, Ordering::SeqCst);
        }
    }

    /// Stores a 64-bit word with release ordering.
    pub(crate) fn store_u64(&self, cell: &AtomicU64, value: u64) {
        if self.may_store() {
            cell.store(value, Ordering::Release);
        }
    }

    /// Stores words that no reader accesses yet.
    pub(crate) fn store_words(&self, cells: &[AtomicU32], values: &[u32]) {
        for (cell, value) in cells.iter().zip(values) {
            if self.may_store() {
                cell.store(*value, Ordering::Relaxed);
            }
        }
    }

    /// Stores a record that no reader sees.
    pub(crate) fn store_record<T: Record>(&self, cell: &UnsafeCell<T>, record: T) {
        let bytes = if self.may_store() { size_of::<T>() } else { 0 };
        #[cfg(test)]
        let bytes = if self.stores_left() == Some(0) { bytes / 2 } else { bytes };
        // SAFETY: both are `T`s; the record's version is hidden, so no reader accesses it, and
        // there is one writer.
        #[expect(unsafe_code, reason = "the only place that writes records")]
        unsafe {
            let from = core::ptr::from_ref(&record).cast::<u8>();
            cell.get().cast::<u8>().copy_from_nonoverlapping(from, bytes);
        }
    }
}
