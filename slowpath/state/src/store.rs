//! Objects on disk: every change is there before it is answered, and nothing is there by half.
//!
//! Two files in a folder. `log` has a record for each batch of changes; `snapshot` has all objects
//! as they once were, and is made anew when the log has grown past it. What was given directly (the
//! source `api`) is the truth; what other sources said is a memory of it, which serves after a
//! restart until the source has said everything again.

mod disk;
mod group;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tracing::{error, warn};

pub use disk::{AnyDisk, Disk, Folder, Nowhere};
pub use group::{News, Shared};

use crate::name::Source;
use crate::object::{API, Change, Event, Key, Object, Objects, Refusal, Why};

/// Changes, one record a batch.
const LOG: &str = "log";
/// All objects, one record each, and one that says that they are all.
const SNAPSHOT: &str = "snapshot";
/// A snapshot that is being written.
const UNFINISHED: &str = "snapshot.new";
/// The shortest log, bytes, that is a reason for a snapshot.
const SHORT_LOG: u64 = 1 << 20;

/// Changes that are made all or not at all.
pub type Batch = Vec<Change>;

/// What is in a record.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// An object, as it is from its revision on.
    Put(std::sync::Arc<Object>),
    /// No such object from this revision on.
    Gone(Key, u64),
    /// The end of a snapshot: the number of its objects, and its revision.
    End(u64, u64),
}

impl Line {
    fn of(event: &Event) -> Option<Line> {
        match (&event.after, &event.before) {
            (Some(after), _) => Some(Line::Put(after.clone())),
            (None, before) => before.as_ref().map(|o| Line::Gone(o.key(), event.revision)),
        }
    }
}

/// Objects, and the folder in which they are kept.
pub struct Store<D> {
    disk: D,
    objects: Objects,
    /// What happened and nobody has asked for yet.
    events: Vec<Event>,
    /// Remembered from before the start, and not said again by their source yet.
    unconfirmed: BTreeSet<Key>,
    /// Bytes of the log that are known to be on disk; what is behind them doesn't count.
    log: u64,
    /// Bytes of the snapshot.
    snapshot: u64,
    /// A write failed: what is behind `log` has to be cut before the next.
    torn: bool,
    /// A log that is shorter than this, bytes, is no reason for a snapshot.
    short_log: u64,
}

impl<D: Disk> Store<D> {
    /// Reads what is there. A log whose end is torn is cut where it is whole, and that is logged.
    ///
    /// # Errors
    /// What the disk says, or `InvalidData` where the snapshot is damaged: it was whole when it got
    /// its name, so the disk has lost what it had.
    pub fn open(mut disk: D) -> io::Result<Store<D>> {
        let mut objects = Objects::default();
        let snapshot = disk.read(SNAPSHOT)?.unwrap_or_default();
        if !snapshot.is_empty() && load_snapshot(&mut objects, &snapshot).is_none() {
            let text = format!(
                "the file `{SNAPSHOT}` of the store is damaged; move it and `{LOG}` away to begin \
                 with nothing, or restore both from a copy"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let log = disk.read(LOG)?.unwrap_or_default();
        let whole = load_log(&mut objects, &log);
        if whole < log.len() {
            let (cut, whole) = (log.len() - whole, whole);
            warn!(
                cut,
                whole, "the store's log ends in a torn record, which nobody was told is kept: cut"
            );
            disk.truncate(LOG, whole as u64)?;
            disk.sync(LOG)?;
        }
        let strange = objects.all().filter(|object| object.source.as_str() != API);
        let unconfirmed = strange.map(|object| object.key()).collect();
        let (log, snapshot) = (whole as u64, snapshot.len() as u64);
        Ok(Store {
            disk,
            objects,
            events: Vec::new(),
            unconfirmed,
            log,
            snapshot,
            torn: false,
            short_log: SHORT_LOG,
        })
    }

    /// The objects as they are; a copy is a snapshot.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// What happened since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Makes batches of changes, in order, each whole or not at all, with one wait for the disk for
    /// all of them. The answers are the revisions after each, or why it isn't made: a change that
    /// cannot be, or a disk that doesn't take it, and then none is made.
    pub fn commit(&mut self, batches: &[Batch], now: SystemTime) -> Vec<Result<u64, Refusal>> {
        let mut next = self.objects.clone();
        let (mut bytes, mut events, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut written = Ok(());
        for batch in batches {
            let made = apply(&mut next, batch, now);
            answers.push(made.map(|made| {
                let lines: Vec<Line> = made.iter().filter_map(Line::of).collect();
                if !lines.is_empty() && written.is_ok() {
                    written = record::put(&mut bytes, &lines);
                }
                events.extend(made);
                next.revision()
            }));
        }
        if let Err(error) = written.and_then(|()| self.append(&bytes)) {
            error!(%error, "the store doesn't take changes");
            let wrong = format!("the store's disk doesn't take it: {error}");
            let refusal =
                Refusal::new("", wrong, "look at the disk of control.state, and ask again")
                    .because(Why::Disk);
            return answers.into_iter().map(|a| a.and(Err(refusal.clone()))).collect();
        }
        for change in batches.iter().zip(&answers).filter(|(_, a)| a.is_ok()).flat_map(|(b, _)| b) {
            if let Change::Put { object, .. } = change {
                self.unconfirmed.remove(&object.key());
            }
        }
        self.unconfirmed.retain(|key| next.get(key).is_some());
        self.objects = next;
        self.events.extend(events);
        if self.log > self.short_log.max(2 * self.snapshot)
            && let Err(error) = self.fold()
        {
            warn!(%error, "the store's log stays long: no snapshot could be written");
        }
        answers
    }

    /// What a source said before the start and has not said since: the changes that forget it. To
    /// be made when the source has said everything that it knows.
    pub fn forgotten(&self, source: &Source) -> Batch {
        let keys = self.unconfirmed.iter().filter(|key| key.source == *source);
        let there =
            keys.filter(|key| self.objects.get(key).is_some_and(|o| o.life().deletion.is_none()));
        there.cloned().map(Change::delete).collect()
    }

    /// All that a source knows has been taken over by [`Objects::towards`]: nothing of it is a mere
    /// memory any more.
    pub fn settled(&mut self, source: &Source) {
        self.unconfirmed.retain(|key| key.source != *source);
    }

    /// The sources of which something is remembered that they have not said since the start.
    pub fn remembered(&self) -> BTreeSet<Source> {
        self.unconfirmed.iter().map(|key| key.source.clone()).collect()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.torn {
            self.disk.truncate(LOG, self.log)?;
        }
        self.torn = true;
        self.disk.append(LOG, bytes)?;
        self.disk.sync(LOG)?;
        if self.log == 0 {
            // The file itself may be new in its folder.
            self.disk.sync_folder()?;
        }
        (self.log, self.torn) = (self.log + bytes.len() as u64, false);
        Ok(())
    }

    /// Writes all objects beside the snapshot, puts them in its place, and empties the log. Killed
    /// between the last two, the log says again what the snapshot knows.
    fn fold(&mut self) -> io::Result<()> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for object in self.objects.all() {
            record::put(&mut bytes, &[Line::Put(object.clone())])?;
            count += 1;
        }
        record::put(&mut bytes, &[Line::End(count, self.objects.revision())])?;
        self.disk.truncate(UNFINISHED, 0)?;
        self.disk.append(UNFINISHED, &bytes)?;
        self.disk.sync(UNFINISHED)?;
        self.disk.rename(UNFINISHED, SNAPSHOT)?;
        self.disk.sync_folder()?;
        self.snapshot = bytes.len() as u64;
        self.disk.truncate(LOG, 0)?;
        self.log = 0;
        self.disk.sync(LOG)
    }
}

fn apply(objects: &mut Objects, batch: &Batch, now: SystemTime) -> Result<Vec<Event>, Refusal> {
    let mut next = objects.clone();
    let mut events = Vec::new();
    for change in batch {
        events.extend(next.apply(change, now)?);
    }
    *objects = next;
    Ok(events)
}

/// All or nothing.
fn load_snapshot(objects: &mut Objects, bytes: &[u8]) -> Option<()> {
    let mut count = 0;
    for (lines, rest) in record::all::<Vec<Line>>(bytes) {
        for line in lines {
            match line {
                Line::Put(object) => {
                    objects.restore(object);
                    count += 1;
                }
                Line::End(told, revision) => {
                    objects.restore_revision(revision);
                    return (told == count && rest == bytes.len()).then_some(());
                }
                Line::Gone(..) => return None,
            }
        }
    }
    None
}

/// What is whole, and how many bytes that is.
fn load_log(objects: &mut Objects, bytes: &[u8]) -> usize {
    let known = objects.revision();
    let mut whole = 0;
    for (lines, end) in record::all::<Vec<Line>>(bytes) {
        for line in lines {
            match line {
                Line::Put(object) if object.revision > known => objects.restore(object),
                Line::Gone(key, revision) if revision > known => {
                    objects.restore_gone(&key, revision);
                }
                _ => {}
            }
        }
        whole = end;
    }
    whole
}
