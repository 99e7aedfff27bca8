//! Two versions of a record side by side: a commit makes one visible and the other not, at once and
//! without a copy of anything else.
//!
//! Each version carries the generation it is *born* in and the one it is *dead* from; a reader of
//! generation g sees it when `born <= g < dead`. Nothing is ever changed that a reader may see:
//!
//! ```text
//!            generation 7 committed        writer prepares 8          8 committed, acknowledged
//! room 0     born 3  dead never  <- seen   born 3  dead 8   <- seen   born 3 dead 8: room for 9
//! room 1     born 2  dead 3      room      born 8  dead never         born 8 dead never  <- seen
//! ```
//!
//! A writer that dies in the middle leaves `born 8` and `dead 8` behind while 7 is committed; no
//! reader sees them, and the next writer takes them back.

use crate::atomic::{AtomicU32, Ordering, Word};
use core::cell::UnsafeCell;

use crate::pen::Pen;
use crate::record::Record;
use crate::rows::Shared;

#[cfg(test)]
mod tests;

/// The `dead` of a version that lives.
pub const NEVER: u32 = u32::MAX;

/// From which generation to which a version is seen.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Life<W = AtomicU32> {
    /// First generation that sees it; 0 for none.
    pub(crate) born: W,
    /// First generation that doesn't see it any more.
    pub(crate) dead: W,
}

impl<W: Word> Life<W> {
    /// Whether generation `at` sees it.
    ///
    /// `dead` is read first: a writer that reuses the room clears `born`, and only then sets `dead`
    /// anew, so that whoever sees the new `dead` sees no old `born`.
    #[inline(always)]
    pub(crate) fn sees(&self, at: u32) -> bool {
        let dead = self.dead.get(Ordering::Acquire);
        let born = self.born.get(Ordering::Acquire);
        born != 0 && born <= at && at < dead
    }

    /// Uses a room anew: hidden, written by `write`, seen from `next` on.
    pub(crate) fn renew(&self, pen: &Pen, next: u32, write: impl FnOnce()) {
        pen.word(&self.born, 0);
        write();
        pen.word(&self.dead, NEVER);
        pen.word(&self.born, next);
    }

    /// Not seen from `next` on.
    pub(crate) fn end(&self, pen: &Pen, next: u32) {
        if self.born.get(Ordering::Relaxed) == next {
            pen.word(&self.born, 0);
        } else {
            pen.word(&self.dead, next);
        }
    }

    /// Takes back what a writer prepared for a generation after `committed`.
    pub(crate) fn recover(&self, pen: &Pen, committed: u32) {
        if self.born.get(Ordering::Relaxed) > committed {
            pen.word(&self.born, 0);
        }
        let dead = self.dead.get(Ordering::Relaxed);
        if dead > committed && dead != NEVER {
            pen.word(&self.dead, NEVER);
        }
    }
}

/// A reader begins: it says which generation it is about to read, and looks again. Either the
/// writer saw it in time, or it sees the writer's newer generation. Returns the one that it reads.
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

/// One version: from when to when, and the record.
#[repr(C, align(64))]
pub(crate) struct Version<T> {
    pub(crate) life: Life,
    record: UnsafeCell<T>,
}

/// Two versions of a record.
#[repr(C)]
pub(crate) struct Twin<T> {
    rooms: [Version<T>; 2],
}

// SAFETY: a record is written only while no reader sees its version (see the module's head).
#[expect(unsafe_code, reason = "shared by the rules of born and dead")]
unsafe impl<T: Record + Sync> Sync for Version<T> {}

// SAFETY: repr(C); atomics and a record, for which any bytes are a value.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl<T: Record + Sync> Shared for Twin<T> {}

impl<T: Record> Version<T> {
    #[inline(always)]
    pub(crate) fn record(&self) -> &T {
        // SAFETY: in bounds and aligned; not written while its version is seen, and the callers
        // look at others only as the writer itself.
        #[expect(unsafe_code, reason = "the record behind the rules of born and dead")]
        unsafe {
            &*self.record.get()
        }
    }
}

impl<T: Record> Twin<T> {
    /// What generation `at` sees.
    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        for room in &self.rooms {
            if room.life.sees(at) {
                return Some(room.record());
            }
        }
        None
    }

    /// Both rooms, for the writer that looks for what was there.
    pub(crate) fn rooms(&self) -> &[Version<T>; 2] {
        &self.rooms
    }

    /// Writes what generation `next` shall see; the committed one keeps what it sees. All lcores
    /// have acknowledged the committed generation, so that one room is free.
    pub(crate) fn put(&self, pen: &Pen, next: u32, record: T) {
        let prepared = |room: &&Version<T>| room.life.born.load(Ordering::Relaxed) == next;
        let unseen = |room: &&Version<T>| !room.life.sees(next - 1);
        let room = self.rooms.iter().find(prepared).or_else(|| self.rooms.iter().find(unseen));
        // At most one room is seen by one generation; were both (a damaged region that fooled the
        // checksum), the second is given up.
        let room = room.unwrap_or(&self.rooms[1]);
        let before = self.rooms.iter().find(|room| room.life.sees(next - 1));
        room.life.renew(pen, next, || pen.record(&room.record, record));
        if let Some(before) = before {
            before.life.end(pen, next);
        }
    }

    /// Generation `next` shall see nothing here.
    pub(crate) fn remove(&self, pen: &Pen, next: u32) {
        for room in &self.rooms {
            if room.life.sees(next) {
                room.life.end(pen, next);
            }
        }
    }

    /// Takes back what was prepared after `committed`.
    pub(crate) fn recover(&self, pen: &Pen, committed: u32) {
        for room in &self.rooms {
            room.life.recover(pen, committed);
        }
    }
}
