//! Objects on disk: each batch is durable before it is acknowledged, and is never stored in part.
//!
//! A store is a directory with two files. `log` has one record for each group of batches that
//! shared a sync. `snapshot` has all objects as of some revision; it is rewritten, and the log
//! emptied, when the log is longer than 1 MiB and than twice the snapshot. Both files keep the line
//! format (`format.rs`) in which they were found until [`Store::commit_format`].
//!
//! Objects of the source `api` exist only in the store. Those of other sources are a copy, which is
//! used after a restart until the source has sent its list again.
//!
//! The end of the log may have an interrupted write, which was not acknowledged; it is cut after
//! the log was copied. Any other difference from what was written is damage: the damaged file is
//! copied, both files stay as they are, the store is empty and takes no changes, and
//! [`Store::damage`] describes the damage and the remedy.

mod damage;
mod disk;
mod format;
mod group;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod load;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use tracing::{error, warn};

pub use damage::{Cut, Damage};
pub use disk::{AnyDisk, Disk, Folder, NullDisk};
pub use group::{CommitResult, ObjectChanges, Observer, Shared, Ticket, WriteRequest, Written};

use disk::{LOG, SNAPSHOT, UNFINISHED};
use format::{FORMATS, Formats, StoredLine, UNNAMED};
use record::{Flaw, Line};

use crate::name::Source;
use crate::object::{API, Change, ChangeError, ErrorClass, Event, Key, Objects};

/// Minimum length of the log, in bytes, for writing a snapshot.
const MIN_SNAPSHOT_LOG: u64 = 1 << 20;
/// Upper bound of the length of the record that names a snapshot's format, in bytes.
const FORMAT_RECORD_MAX: u64 = 100;

/// Changes that are applied all together or not at all.
pub type Batch = Vec<Change>;

/// Bytes in the log after its valid records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tail {
    None,
    /// Bytes of a failed write of this process, or records that the snapshot contains as well; they
    /// are cut without a copy.
    Void,
    /// Bytes left by an interrupted write of an earlier process; the file is copied before they are
    /// cut.
    Found,
}

/// Objects, and the directory in which they are stored.
pub struct Store<D> {
    disk: D,
    objects: Objects,
    /// Events that have not been taken yet.
    events: Vec<Event>,
    /// Objects loaded at the start that their source, other than `api`, has not sent again yet.
    unconfirmed: BTreeSet<Key>,
    /// Number of bytes of the log that are valid and on disk.
    log_len: u64,
    /// Length of the snapshot, bytes; 0 if there is none.
    snapshot_len: u64,
    /// Bytes after the first `log_len` of the log, to be cut before the next write.
    tail: Tail,
    /// Whether both files are rewritten before the next change: one has records of the first
    /// format (`record.rs`), or no snapshot names `format` yet.
    rewrite: bool,
    /// Format of the lines in the files.
    format: u32,
    /// Line formats that this version reads and writes.
    formats: &'static Formats,
    /// Reason why the store is not used.
    damage: Option<Damage>,
    /// Interrupted write of an earlier process that was cut from the log.
    cut: Option<Cut>,
    /// Logs shorter than this, in bytes, cause no snapshot.
    min_snapshot_log: u64,
}

impl<D: Disk> Store<D> {
    /// Reads the files. An interrupted write at the end of the log is cut and logged; if that
    /// fails, the next change cuts it. If a file is damaged or cannot be read, the store is empty
    /// and takes no changes.
    pub fn open(disk: D) -> Store<D> {
        Store::open_with(disk, FORMATS)
    }

    fn open_with(mut disk: D, formats: &'static Formats) -> Store<D> {
        match read(&mut disk, formats) {
            Ok((loaded, len)) => Store::with_loaded(disk, formats, loaded, len),
            Err((file, flaw)) => {
                let copy = disk.copy(file, "damaged").map_err(|error| error.to_string());
                let damage = Damage::new(file, disk.path(file), flaw, copy);
                error!(event = "store_damaged", %damage, "store not used, tables unchanged");
                let damage = Some(damage);
                let none = load::Loaded::none(formats);
                Store { damage, ..Store::with_loaded(disk, formats, none, 0) }
            }
        }
    }

    fn with_loaded(
        disk: D,
        formats: &'static Formats,
        loaded: load::Loaded,
        snapshot_len: u64,
    ) -> Store<D> {
        let load::Loaded { objects, log, torn, stale, old, format } = loaded;
        let of_sources = objects.all().filter(|object| object.source.as_str() != API);
        let unconfirmed = of_sources.map(|object| object.key()).collect();
        let tail = match (torn, stale) {
            (0, false) => Tail::None,
            (0, true) => Tail::Void,
            _ => Tail::Found,
        };
        let mut store = Store {
            disk,
            objects,
            events: Vec::new(),
            unconfirmed,
            log_len: if stale { 0 } else { log as u64 },
            snapshot_len,
            tail,
            // Only a snapshot names a format; a log without one is read as `UNNAMED`.
            rewrite: old || (snapshot_len == 0 && format != UNNAMED),
            format,
            formats,
            damage: None,
            cut: None,
            min_snapshot_log: MIN_SNAPSHOT_LOG,
        };
        if tail == Tail::Found
            && let Err(error) = store.cut_tail()
        {
            warn!(
                event = "store_cut_failed",
                %error,
                "interrupted write at the end of the store's log not cut"
            );
        }
        store
    }

    /// Returns why the store is not used; it is then empty and takes no changes.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns the interrupted write of an earlier process that was cut from the log, if any.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Returns the size of the objects on disk in bytes: of the snapshot, and of the valid records
    /// of the log.
    pub fn bytes(&self) -> u64 {
        self.snapshot_len + self.log_len
    }

    /// Returns the current objects; a clone is a snapshot.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the events of the changes committed since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Applies batches of changes in order, each as a whole or not at all, with one sync for all of
    /// them. Returns for each batch the revision after it, or the reason why it was rejected. If
    /// the disk fails, no batch is applied.
    pub fn commit(&mut self, batches: &[Batch], now: SystemTime) -> Vec<Result<u64, ChangeError>> {
        if let Some(damage) = &self.damage {
            return batches.iter().map(|_| Err(damage.change_error())).collect();
        }
        let mut next = self.objects.clone();
        let (mut lines, mut events, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for batch in batches {
            let applied = apply(&next, batch, now).and_then(|(after, applied)| {
                let stored = applied.iter().filter_map(Line::of);
                let stored = stored.map(|line| self.formats.encode(self.format, line));
                Ok((stored.collect::<Result<Vec<_>, _>>()?, after, applied))
            });
            answers.push(applied.map(|(stored, after, applied)| {
                lines.extend(stored);
                events.extend(applied);
                next = after;
                next.revision()
            }));
        }
        if let Err(error) = self.append(&lines) {
            error!(event = "store_write_failed", %error, "store write failed");
            let wrong = format!("the write to the store's disk failed: {error}");
            let failure =
                ChangeError::new("", wrong, "check the disk of control.state, and try again")
                    .with_class(ErrorClass::Disk);
            return answers.into_iter().map(|a| a.and(Err(failure.clone()))).collect();
        }
        for change in batches.iter().zip(&answers).filter(|(_, a)| a.is_ok()).flat_map(|(b, _)| b) {
            if let Change::Put { object, .. } = change {
                self.unconfirmed.remove(&object.key());
            }
        }
        self.unconfirmed.retain(|key| next.get(key).is_some());
        self.objects = next;
        self.events.extend(events);
        if self.log_len > self.min_snapshot_log.max(2 * self.snapshot_len)
            && let Err(error) = self.write_snapshot()
        {
            warn!(
                event = "store_snapshot_failed",
                %error,
                "store snapshot failed, log not shortened"
            );
        }
        answers
    }

    /// Returns the changes that delete the objects that a source has not sent since the start. The
    /// caller applies them when the source has sent its complete list.
    pub fn unconfirmed_deletions(&self, source: &Source) -> Batch {
        let keys = self.unconfirmed.iter().filter(|key| key.source == *source);
        let existing = keys
            .filter(|key| self.objects.get(key).is_some_and(|o| o.lifecycle().deletion.is_none()));
        existing.cloned().map(Change::delete).collect()
    }

    /// Marks all objects of a source as confirmed, after its complete list was applied with
    /// [`Objects::changes_to`].
    pub fn confirm_source(&mut self, source: &Source) {
        self.unconfirmed.retain(|key| key.source != *source);
    }

    /// Returns the sources with objects that they have not sent since the start.
    pub fn unconfirmed_sources(&self) -> BTreeSet<Source> {
        self.unconfirmed.iter().map(|key| key.source.clone()).collect()
    }

    /// Appends all lines to the log as one record and syncs it. After a crash, the second of two
    /// records could exist without the first, which would look like damage.
    fn append(&mut self, lines: &[StoredLine]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        record::put(&mut bytes, self.objects.revision(), lines)?;
        if self.rewrite {
            self.write_snapshot()?;
        }
        self.cut_tail()?;
        self.tail = Tail::Void;
        self.disk.append(LOG, &bytes)?;
        self.disk.sync(LOG)?;
        if self.log_len == 0 {
            // The file may be new, so its directory entry has to be synced as well.
            self.disk.sync_folder()?;
        }
        (self.log_len, self.tail) = (self.log_len + bytes.len() as u64, Tail::None);
        Ok(())
    }

    /// Truncates the log to its valid records and syncs it.
    fn cut_tail(&mut self) -> io::Result<()> {
        let found = match self.tail {
            Tail::None => return Ok(()),
            Tail::Void => None,
            Tail::Found => {
                let len = self.disk.read(LOG)?.unwrap_or_default().len() as u64;
                let (path, offset) = (self.disk.path(LOG), self.log_len);
                let copy = self.disk.copy(LOG, "cut")?;
                Some(Cut { path, offset, bytes: len.saturating_sub(offset), copy })
            }
        };
        self.disk.truncate(LOG, self.log_len)?;
        self.disk.sync(LOG)?;
        self.tail = Tail::None;
        if let Some(cut) = found {
            warn!(event = "store_log_cut", %cut, "interrupted write cut from the store's log");
            self.cut = Some(cut);
        }
        Ok(())
    }

    /// Returns the store. If it has no files yet, they get this format instead of the newest one,
    /// so that an earlier version of Weir can read them.
    #[must_use]
    pub fn readable_in(mut self, format: u32) -> Store<D> {
        if self.snapshot_len == 0 && self.log_len == 0 && self.formats.contains(format) {
            (self.format, self.rewrite) = (format, format != UNNAMED);
        }
        self
    }

    /// Returns the format of the lines in the files.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// Rewrites both files in the newest format, which the previous version of Weir may not be able
    /// to read. Does nothing if they have it already.
    ///
    /// # Errors
    /// Fails if the disk fails or the store is damaged. After a failure of the disk, a change may
    /// rewrite the files, and the call can be repeated.
    pub fn commit_format(&mut self) -> io::Result<()> {
        if let Some(damage) = &self.damage {
            return Err(io::Error::other(damage.to_string()));
        }
        if self.format == self.formats.own() && !self.rewrite {
            return Ok(());
        }
        if self.log_len > 0 || self.tail != Tail::None {
            // First empties the log, with a snapshot in the earlier format: a log is read in the
            // format that the snapshot names.
            self.write_snapshot()?;
        }
        (self.format, self.rewrite) = (self.formats.own(), true);
        self.write_snapshot()
    }

    /// Writes all objects to a new snapshot, renames it into place, and empties the log. After a
    /// crash between the last two steps, the log repeats what the snapshot contains.
    fn write_snapshot(&mut self) -> io::Result<()> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        if self.format != UNNAMED {
            record::put(&mut bytes, 0, &[Line::Format(self.format)])?;
        }
        let stored = |line| {
            let stored = self.formats.encode(self.format, line);
            stored.map_err(|error| io::Error::other(error.to_string()))
        };
        for object in self.objects.all() {
            record::put(&mut bytes, 0, &[stored(Line::Put(object.clone()))?])?;
            count += 1;
        }
        record::put(&mut bytes, 0, &[stored(Line::End(count, self.objects.revision()))?])?;
        self.disk.truncate(UNFINISHED, 0)?;
        self.disk.append(UNFINISHED, &bytes)?;
        self.disk.sync(UNFINISHED)?;
        self.disk.rename(UNFINISHED, SNAPSHOT)?;
        self.disk.sync_folder()?;
        self.snapshot_len = bytes.len() as u64;
        self.disk.truncate(LOG, 0)?;
        (self.log_len, self.tail, self.rewrite) = (0, Tail::None, false);
        self.disk.sync(LOG)
    }
}

/// Applies a batch to a copy of the objects, and returns the copy with its events.
fn apply(
    objects: &Objects,
    batch: &Batch,
    now: SystemTime,
) -> Result<(Objects, Vec<Event>), ChangeError> {
    let mut next = objects.clone();
    let mut events = Vec::new();
    for change in batch {
        events.extend(next.apply(change, now)?);
    }
    Ok((next, events))
}

/// Reads the objects of a store that no process has open, without changing its files. An
/// interrupted write at the end of the log is left out, because it was not acknowledged.
///
/// # Errors
/// Fails if a process has the store open (`WouldBlock`), if the directory or a file cannot be read,
/// or if a file is damaged (`InvalidData`).
pub fn read_closed(path: &Path) -> io::Result<Objects> {
    let mut folder = Folder::open_to_read(path)?;
    let (loaded, _) = read(&mut folder, FORMATS).map_err(|(file, flaw)| {
        let (path, Flaw { at, fault }) = (folder.path(file), flaw);
        let text = format!("{path} is damaged at byte {at}: {fault}");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(loaded.objects)
}

/// Returns the newest format that this version reads and writes.
pub const fn own_format() -> u32 {
    FORMATS.own()
}

/// Returns the format of the lines in a store's files, also while a process has the store open.
///
/// # Errors
/// Fails if the snapshot cannot be read.
pub fn format_of(path: &Path) -> io::Result<u32> {
    let mut first = Vec::new();
    match File::open(path.join(SNAPSHOT)) {
        Ok(file) => file.take(FORMAT_RECORD_MAX).read_to_end(&mut first)?,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let named = record::first(&first).and_then(|record| load::named_format(&record));
    Ok(named.unwrap_or(UNNAMED))
}

/// Reads both files; also returns the snapshot's length.
fn read<D: Disk>(
    disk: &mut D,
    formats: &Formats,
) -> Result<(load::Loaded, u64), (&'static str, Flaw)> {
    let mut file = |name| {
        disk.read(name).map_err(|error| (name, Flaw::new(0, format!("it cannot be read: {error}"))))
    };
    let (snapshot, log) = (file(SNAPSHOT)?, file(LOG)?);
    let loaded = load::load(formats, snapshot.as_deref(), log.as_deref())?;
    Ok((loaded, snapshot.map_or(0, |bytes| bytes.len() as u64)))
}
