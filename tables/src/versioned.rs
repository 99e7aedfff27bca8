//! Two versions of a record side by side, so that a commit switches between them at once and copies
//! nothing else.
//!
//! Each version carries the generation in which it is *born* and the one from which it is *dead*. A
//! reader of generation g sees it if `born <= g < dead`. A version that a reader may see is never
//! modified:
//!
//! ```text
//!            generation 7 committed       writer prepares 8         8 committed and acknowledged
//! version 0  born 3  dead never <- seen   born 3  dead 8  <- seen   born 3  dead 8      free for 9
//! version 1  born 2  dead 3        free   born 8  dead never        born 8  dead never  <- seen
//! ```
//!
//! A writer that is killed while it prepares generation 8 leaves `born 8` and `dead 8` behind while
//! 7 is committed. No reader sees them, and the next writer rolls them back.

use crate::atomic::{AtomicU32, Ordering, Word};
use core::cell::UnsafeCell;

use crate::record::Record;
use crate::region_writer::RegionWriter;
use crate::rows::Shared;

#[cfg(test)]
mod tests;

/// Value of `dead` for a live version.
pub const NEVER: u32 = u32::MAX;

/// The range of generations that see a version of a record, or another item.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Lifetime<W = AtomicU32> {
    /// First generation that sees the version; 0 if none does.
    pub(crate) born: W,
    /// First generation that no longer sees the version.
    pub(crate) dead: W,
}

impl<W: Word> Lifetime<W> {
    /// Returns whether generation `at` sees the version.
    ///
    /// `dead` is read first. A writer that reuses the slot clears `born` and only then sets `dead`,
    /// so a reader that sees the new `dead` cannot see the old `born`.
    #[inline(always)]
    pub(crate) fn sees(&self, at: u32) -> bool {
        let dead = self.dead.get(Ordering::Acquire);
        let born = self.born.get(Ordering::Acquire);
        born != 0 && born <= at && at < dead
    }

    /// Reuses a slot: hides it, runs `write`, and makes it visible from generation `next`.
    pub(crate) fn renew(&self, writer: &RegionWriter, next: u32, write: impl FnOnce()) {
        writer.store_word(&self.born, 0);
        write();
        writer.store_word(&self.dead, NEVER);
        writer.store_word(&self.born, next);
    }

    /// Hides the version from generation `next` on. One that was born in `next` is hidden at once.
    pub(crate) fn end(&self, writer: &RegionWriter, next: u32) {
        if self.born.get(Ordering::Relaxed) == next {
            writer.store_word(&self.born, 0);
        } else {
            writer.store_word(&self.dead, next);
        }
    }

    /// Rolls back changes that a writer prepared for a generation after `committed`.
    pub(crate) fn recover(&self, writer: &RegionWriter, committed: u32) {
        if self.born.get(Ordering::Relaxed) > committed {
            writer.store_word(&self.born, 0);
        }
        let dead = self.dead.get(Ordering::Relaxed);
        if dead > committed && dead != NEVER {
            writer.store_word(&self.dead, NEVER);
        }
    }
}

/// Registers a reader, by storing `joined` to `state`, and returns the generation that it reads.
///
/// The reader publishes the generation that it is about to read and then checks for a newer one.
/// Either the writer sees the published generation and does not reuse its versions, or the reader
/// sees the newer generation.
pub(crate) fn join<W: Word>(generation: &W, acknowledged: &W, state: &W, joined: u32) -> u32 {
    let mut reads = generation.get(Ordering::Acquire);
    loop {
        acknowledged.set(reads, Ordering::Release);
        state.set(joined, Ordering::Release);
        W::fence();
        let now = generation.get(Ordering::Acquire);
        if now == reads {
            return reads;
        }
        reads = now;
    }
}

/// One version of a record and its lifetime.
#[repr(C, align(64))]
pub(crate) struct Version<T> {
    pub(crate) lifetime: Lifetime,
    record: UnsafeCell<T>,
}

/// Two versions of a record, of which any generation sees at most one.
#[repr(C)]
pub(crate) struct Versioned<T> {
    versions: [Version<T>; 2],
}

// SAFETY: a record is written only while no reader sees its version (see the module's
// documentation).
#[expect(unsafe_code, reason = "shared according to born and dead")]
unsafe impl<T: Record + Sync> Sync for Version<T> {}

// SAFETY: repr(C); atomics and a record, for which any bytes are a value.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl<T: Record + Sync> Shared for Versioned<T> {}

impl<T: Record> Version<T> {
    #[inline(always)]
    pub(crate) fn record(&self) -> &T {
        // SAFETY: in bounds and aligned. The record is not written while a reader sees its version,
        // and only the writer itself looks at other versions.
        #[expect(unsafe_code, reason = "the record according to born and dead")]
        unsafe {
            &*self.record.get()
        }
    }
}

impl<T: Record> Versioned<T> {
    /// The record that generation `at` sees.
    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        for version in &self.versions {
            if version.lifetime.sees(at) {
                return Some(version.record());
            }
        }
        None
    }

    /// Both versions, for writers that inspect earlier state.
    pub(crate) fn versions(&self) -> &[Version<T>; 2] {
        &self.versions
    }

    /// Writes the record for generation `next`; the committed generation keeps its own. All lcores
    /// have acknowledged the committed generation, so one slot is free.
    pub(crate) fn put(&self, writer: &RegionWriter, next: u32, record: T) {
        let prepared =
            |version: &&Version<T>| version.lifetime.born.load(Ordering::Relaxed) == next;
        let unseen = |version: &&Version<T>| !version.lifetime.sees(next - 1);
        let version =
            self.versions.iter().find(prepared).or_else(|| self.versions.iter().find(unseen));
        // A generation sees at most one version. If it sees both (a damaged region that passed the
        // checksum), the second is overwritten.
        let version = version.unwrap_or(&self.versions[1]);
        let before = self.versions.iter().find(|version| version.lifetime.sees(next - 1));
        version.lifetime.renew(writer, next, || writer.store_record(&version.record, record));
        if let Some(before) = before {
            before.lifetime.end(writer, next);
        }
    }

    /// Removes the record from generation `next` on.
    pub(crate) fn remove(&self, writer: &RegionWriter, next: u32) {
        for version in &self.versions {
            if version.lifetime.sees(next) {
                version.lifetime.end(writer, next);
            }
        }
    }

    /// Rolls back changes prepared after `committed`.
    pub(crate) fn recover(&self, writer: &RegionWriter, committed: u32) {
        for version in &self.versions {
            version.lifetime.recover(writer, committed);
        }
    }
}
