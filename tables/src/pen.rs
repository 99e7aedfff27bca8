//! The writer's pen: every store of a writer to shared memory goes through it.
//!
//! In tests the pen runs out of ink after a chosen number of stores, which leaves the region as if
//! the process had been killed there (the last record half written).

use crate::atomic::{AtomicU32, AtomicU64, Ordering, Word};
use core::cell::UnsafeCell;

use crate::rows::Record;

/// Writes to shared memory.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    #[cfg(test)]
    ink: Option<core::cell::Cell<u64>>,
}

impl Pen {
    /// A pen for `stores` stores; all after them are lost.
    #[cfg(test)]
    pub(crate) fn with_ink(stores: u64) -> Pen {
        Pen { ink: Some(core::cell::Cell::new(stores)) }
    }

    /// Stores that are left.
    #[cfg(test)]
    pub(crate) fn ink(&self) -> Option<u64> {
        self.ink.as_ref().map(core::cell::Cell::get)
    }

    /// Whether one more store happens.
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

    /// Stores a word, after everything stored before it.
    pub(crate) fn word<W: Word>(&self, cell: &W, value: u32) {
        if self.dip() {
            cell.set(value, Ordering::Release);
        }
    }

    /// Stores the word that all others look at.
    pub(crate) fn publish(&self, cell: &AtomicU32, value: u32) {
        if self.dip() {
            cell.store(value, Ordering::SeqCst);
        }
    }

    /// Stores a long word.
    pub(crate) fn long(&self, cell: &AtomicU64, value: u64) {
        if self.dip() {
            cell.store(value, Ordering::Release);
        }
    }

    /// Stores words that nobody reads yet.
    pub(crate) fn words(&self, cells: &[AtomicU32], values: &[u32]) {
        for (cell, value) in cells.iter().zip(values) {
            if self.dip() {
                cell.store(*value, Ordering::Relaxed);
            }
        }
    }

    /// Stores a record that nobody sees.
    pub(crate) fn record<T: Record>(&self, cell: &UnsafeCell<T>, record: T) {
        let bytes = if self.dip() { size_of::<T>() } else { 0 };
        #[cfg(test)]
        let bytes = if self.ink() == Some(0) { bytes / 2 } else { bytes };
        // SAFETY: both are `T`s; the record's version is hidden, so that no reader looks at it, and
        // there is one writer.
        #[expect(unsafe_code, reason = "the one place where records are written")]
        unsafe {
            let from = core::ptr::from_ref(&record).cast::<u8>();
            cell.get().cast::<u8>().copy_from_nonoverlapping(from, bytes);
        }
    }
}
