//! Objects on disk: every change is there before it is answered, and nothing is there by half.
//!
//! Two files in a folder. `log` has a record for each group of batches that shared a wait for the
//! disk; `snapshot` has all objects as they once were, and is made anew when the log has grown past
//! it. What was given directly (the source `api`) is the truth; what other sources said is a memory
//! of it, which serves after a restart until the source has said everything again.
//!
//! What is in the files was acknowledged, with one exception: a write that was interrupted is the
//! last thing in the log. It alone is cut, with a copy beside it. Whatever else is not as it was
//! written is damage: the files stay as they are, with a copy beside them, the store is empty and
//! takes no changes, and [`Store::damage`] says where and what to do.

mod damage;
mod disk;
mod group;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod load;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::time::SystemTime;

use tracing::{error, warn};

pub use damage::{Cut, Damage};
pub use disk::{AnyDisk, Disk, Folder, Nowhere};
pub use group::{Answer, News, Order, Shared, Ticket};

use disk::{LOG, SNAPSHOT, UNFINISHED};
use record::{Flaw, Line};

use crate::name::Source;
use crate::object::{API, Change, Event, Key, Objects, Refusal, Why};

/// The shortest log, bytes, that is a reason for a snapshot.
const SHORT_LOG: u64 = 1 << 20;

/// Changes that are made all or not at all.
pub type Batch = Vec<Change>;

/// What is in the log behind the records that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tail {
    None,
    /// What this process wrote in vain, or what the snapshot has as well.
    Void,
    /// What an earlier process left. It is copied before it is cut.
    Found,
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
    /// What is behind `log`, and has to go before the next write.
    tail: Tail,
    /// A file is in the first format: both are written anew before the next change is.
    old: bool,
    /// Why nothing is read or written.
    damage: Option<Damage>,
    /// What was cut since the start.
    cut: Option<Cut>,
    /// A log that is shorter than this, bytes, is no reason for a snapshot.
    short_log: u64,
}

impl<D: Disk> Store<D> {
    /// Reads what is there. An interrupted write at the log's end is cut and logged. Where a file
    /// is damaged or cannot be read, the store is empty and takes no changes.
    pub fn open(mut disk: D) -> Store<D> {
        match read(&mut disk) {
            Ok((loaded, snapshot)) => Store::over(disk, loaded, snapshot),
            Err((file, flaw)) => {
                let copy = disk.copy(file, "damaged").map_err(|error| error.to_string());
                let damage = Damage::new(file, disk.path(file), flaw, copy);
                error!(%damage, "the store is not used, the tables stay as they are");
                let damage = Some(damage);
                Store { damage, ..Store::over(disk, load::Loaded::default(), 0) }
            }
        }
    }

    fn over(disk: D, loaded: load::Loaded, snapshot: u64) -> Store<D> {
        let load::Loaded { objects, log, torn, stale, old } = loaded;
        let strange = objects.all().filter(|object| object.source.as_str() != API);
        let unconfirmed = strange.map(|object| object.key()).collect();
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
            log: if stale { 0 } else { log as u64 },
            snapshot,
            tail,
            old,
            damage: None,
            cut: None,
            short_log: SHORT_LOG,
        };
        if tail == Tail::Found
            && let Err(error) = store.cut_tail()
        {
            warn!(%error, "the store's log ends in an interrupted write, which is still there");
        }
        store
    }

    /// Why the store is not used: it is empty and takes no changes.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// What was cut since the start.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
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
        if let Some(damage) = &self.damage {
            return batches.iter().map(|_| Err(damage.refusal())).collect();
        }
        let mut next = self.objects.clone();
        let (mut lines, mut events, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for batch in batches {
            let made = apply(&mut next, batch, now);
            answers.push(made.map(|made| {
                lines.extend(made.iter().filter_map(Line::of));
                events.extend(made);
                next.revision()
            }));
        }
        if let Err(error) = self.append(&lines) {
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

    /// Writes one record: of several, a crash could leave the second and not the first, which
    /// would look like damage.
    fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        record::put(&mut bytes, self.objects.revision(), lines)?;
        if self.old {
            self.fold()?;
        }
        self.cut_tail()?;
        self.tail = Tail::Void;
        self.disk.append(LOG, &bytes)?;
        self.disk.sync(LOG)?;
        if self.log == 0 {
            // The file itself may be new in its folder.
            self.disk.sync_folder()?;
        }
        (self.log, self.tail) = (self.log + bytes.len() as u64, Tail::None);
        Ok(())
    }

    /// Cuts the log behind the records that count, on disk before this returns.
    fn cut_tail(&mut self) -> io::Result<()> {
        let found = match self.tail {
            Tail::None => return Ok(()),
            Tail::Void => None,
            Tail::Found => {
                let len = self.disk.read(LOG)?.unwrap_or_default().len() as u64;
                let (path, offset) = (self.disk.path(LOG), self.log);
                let copy = self.disk.copy(LOG, "cut")?;
                Some(Cut { path, offset, bytes: len.saturating_sub(offset), copy })
            }
        };
        self.disk.truncate(LOG, self.log)?;
        self.disk.sync(LOG)?;
        self.tail = Tail::None;
        if let Some(cut) = found {
            warn!("{cut}");
            self.cut = Some(cut);
        }
        Ok(())
    }

    /// Writes all objects beside the snapshot, puts them in its place, and empties the log. Killed
    /// between the last two, the log says again what the snapshot knows.
    fn fold(&mut self) -> io::Result<()> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for object in self.objects.all() {
            record::put(&mut bytes, 0, &[Line::Put(object.clone())])?;
            count += 1;
        }
        record::put(&mut bytes, 0, &[Line::End(count, self.objects.revision())])?;
        self.disk.truncate(UNFINISHED, 0)?;
        self.disk.append(UNFINISHED, &bytes)?;
        self.disk.sync(UNFINISHED)?;
        self.disk.rename(UNFINISHED, SNAPSHOT)?;
        self.disk.sync_folder()?;
        self.snapshot = bytes.len() as u64;
        self.disk.truncate(LOG, 0)?;
        (self.log, self.tail, self.old) = (0, Tail::None, false);
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

/// Reads both files; returns the snapshot's length as well.
fn read<D: Disk>(disk: &mut D) -> Result<(load::Loaded, u64), (&'static str, Flaw)> {
    let mut file = |name| {
        disk.read(name).map_err(|error| (name, Flaw::new(0, format!("it cannot be read: {error}"))))
    };
    let (snapshot, log) = (file(SNAPSHOT)?, file(LOG)?);
    let loaded = load::load(snapshot.as_deref(), log.as_deref())?;
    Ok((loaded, snapshot.map_or(0, |bytes| bytes.len() as u64)))
}
