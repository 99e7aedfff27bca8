//! The latest changes of the audit log, and after which time each was in force.
//!
//! Role `read` sees who changed which object, when, and with which outcome. What was changed, by
//! which address, and rejected callers are in the audit log, which needs the role `admin`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::audit::files::Position;
use api::audit::{AuditFiles, Entry, Outcome};
use api::{Control, Wait, WrittenObject};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::live::Live;
use crate::sources::desired::Store;

/// Number of changes that the page shows.
const SHOWN: usize = 50;
/// Number of bytes at the end of the newest file that are read at the start. If they have fewer
/// changes than are shown, that file and the one before are read as a whole.
const FIRST_READ: u64 = 1 << 20;
/// Maximum number of entries that are read at once.
const READ_AT_ONCE: usize = 1000;
/// Number of writes whose time until in force is kept.
const MAX_WRITES: usize = 256;
/// Maximum number of objects of a write whose time is measured. The complete lists of sources may
/// be larger.
const MAX_OBJECTS: usize = 1000;
/// Time after which a write counts as not in force.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A change as the page shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeRow {
    /// When it was made (RFC 3339).
    pub time: String,
    /// Name of the token, or user.
    pub who: String,
    /// The operation.
    pub call: String,
    /// The changed objects.
    pub objects: Vec<String>,
    /// Number of further objects.
    pub more_objects: u64,
    /// Whether it was made: `done`, `failed`, `unknown`.
    pub outcome: &'static str,
    /// Why it failed, or is not in force.
    pub reason: String,
    /// Revision of the store after it.
    pub revision: Option<u64>,
    /// Whether it is in force, if that is known.
    pub in_force: InForce,
}

/// Whether a change is in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InForce {
    /// Not measured: the change is older than this process, concerns no table, or is one of too
    /// many.
    #[default]
    Unknown,
    /// It is still being applied.
    Pending,
    /// All lcores served it this time after the store had it.
    After(Duration),
    /// It is not in force, and why.
    Not(String),
}

/// Returns the row of an entry; `None` if it is no change that was made or tried.
fn row(entry: Entry) -> Option<ChangeRow> {
    let outcome = match entry.outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Unknown => "unknown",
        Outcome::Denied | Outcome::Rejected => return None,
    };
    let mut objects: Vec<String> = entry.changes.into_iter().map(|one| one.object).collect();
    if objects.is_empty() {
        objects.push(entry.object);
    }
    let more_objects = entry.more_objects + objects.len().saturating_sub(3) as u64;
    objects.truncate(3);
    Some(ChangeRow {
        time: entry.time,
        who: entry.who,
        call: entry.call,
        objects,
        more_objects,
        outcome,
        reason: entry.reason,
        revision: entry.revision,
        in_force: InForce::Unknown,
    })
}

/// The latest changes, read from the audit log.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    rows: VecDeque<ChangeRow>,
    next: Option<Position>,
    /// Why the log cannot be read; `None` if it can.
    pub error: Option<String>,
}

impl Changes {
    /// Reads what was appended to the log since the last call. May block.
    pub fn follow(&mut self, files: &AuditFiles) {
        self.error = match self.try_follow(files) {
            Ok(()) => None,
            Err(error) => Some(format!("{}: {error}", files.folder().display())),
        };
    }

    fn try_follow(&mut self, files: &AuditFiles) -> std::io::Result<()> {
        if let Some(next) = self.next {
            return self.read(files, next);
        }
        let end = files.end()?;
        // The first line is cut off then, and counts as damaged.
        self.read(files, Position { offset: end.offset.saturating_sub(FIRST_READ), ..end })?;
        if self.rows.len() < SHOWN {
            // The newest file may have just begun.
            self.rows.clear();
            self.read(files, Position { file: end.file.saturating_sub(1), offset: 0 })?;
        }
        Ok(())
    }

    /// Reads from a position to the end.
    fn read(&mut self, files: &AuditFiles, mut next: Position) -> std::io::Result<()> {
        self.next = Some(next);
        loop {
            let part = files.read(next, None, READ_AT_ONCE, |_| true)?;
            next = part.next;
            self.next = Some(next);
            for row in part.entries.into_iter().filter_map(row) {
                if self.rows.len() == SHOWN {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
            if part.is_end {
                return Ok(());
            }
        }
    }

    /// Returns the latest changes, newest first, with what `writes` knows of them.
    pub fn rows(&self, writes: &Writes) -> Vec<ChangeRow> {
        let with_time = |row: &ChangeRow| {
            let in_force = row.revision.map(|revision| writes.of(revision)).unwrap_or_default();
            ChangeRow { in_force, ..row.clone() }
        };
        self.rows.iter().rev().map(with_time).collect()
    }
}

/// Writes to the store, and whether each is in force.
#[derive(Debug, Default)]
pub struct Writes(VecDeque<Write>);

#[derive(Debug)]
struct Write {
    /// Revisions that the write consists of: after the first one, up to the second one.
    revisions: (u64, u64),
    in_force: InForce,
}

impl Writes {
    /// Adds a write of the revisions after `revisions.0` up to `revisions.1`, which is pending.
    pub fn begin(&mut self, revisions: (u64, u64)) {
        if self.0.len() == MAX_WRITES {
            self.0.pop_front();
        }
        self.0.push_back(Write { revisions, in_force: InForce::Pending });
    }

    /// Notes what became of the write up to a revision.
    pub fn end(&mut self, revision: u64, in_force: InForce) {
        if let Some(write) = self.0.iter_mut().find(|write| write.revisions.1 == revision) {
            write.in_force = in_force;
        }
    }

    fn of(&self, revision: u64) -> InForce {
        let contains =
            |write: &&Write| write.revisions.0 < revision && revision <= write.revisions.1;
        self.0.iter().find(contains).map(|write| write.in_force.clone()).unwrap_or_default()
    }
}

/// Measures when each write to the store is in force, as `?wait=` does. Ends with the store.
pub async fn measure(store: Arc<Store>, live: &Live, writes: Arc<Mutex<Writes>>) {
    let mut stored = store.watch();
    let mut before = *stored.borrow_and_update();
    while stored.changed().await.is_ok() {
        let revision = *stored.borrow_and_update();
        let events = store.changes_since(before).events.unwrap_or_default();
        let revisions = (before, revision);
        before = revision;
        let objects: Vec<WrittenObject> =
            events.iter().filter_map(WrittenObject::of_event).collect();
        if objects.is_empty() || objects.len() > MAX_OBJECTS {
            continue;
        }
        writes.lock().begin(revisions);
        let (answer, outcome) = oneshot::channel();
        let began = Instant::now();
        // In a write of several sources, an object may be shadowed by another one.
        live.shared().wait(Wait { revision, objects, is_complete_list: true, answer });
        let writes = Arc::clone(&writes);
        tokio::spawn(async move {
            let in_force = match tokio::time::timeout(TIMEOUT, outcome).await {
                Ok(Ok(api::Outcome::InForce)) => InForce::After(began.elapsed()),
                Ok(Ok(api::Outcome::Rejected { reason, .. })) => InForce::Not(reason),
                Ok(Err(_)) | Err(_) => InForce::Not(format!("not within {} s", TIMEOUT.as_secs())),
            };
            writes.lock().end(revision, in_force);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_time_of_the_write_that_contains_it() {
        let mut writes = Writes::default();
        writes.begin((4, 7));
        writes.begin((7, 8));
        writes.end(7, InForce::After(Duration::from_millis(3)));
        assert_eq!(writes.of(4), InForce::Unknown, "before this process");
        for revision in 5..=7 {
            assert_eq!(writes.of(revision), InForce::After(Duration::from_millis(3)));
        }
        assert_eq!(writes.of(8), InForce::Pending);
        writes.end(8, InForce::Not("shadowed".to_owned()));
        assert_eq!(writes.of(8), InForce::Not("shadowed".to_owned()));
        for revision in 9..1000 {
            writes.begin((revision - 1, revision));
        }
        assert_eq!((writes.0.len(), writes.of(8)), (MAX_WRITES, InForce::Unknown));
    }

    #[test]
    fn the_latest_changes_are_followed_without_rejected_callers() {
        let folder = std::env::temp_dir().join(format!("weir-page-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let files = AuditFiles::new(&folder, 8 << 20);
        let append = |number: u64, outcome| {
            let mut entry = Entry::offline("applyService", &format!("services/shop/{number}"));
            (entry.outcome, entry.revision) = (outcome, Some(number));
            files.append(&[&entry.line()]).unwrap();
        };
        let mut changes = Changes::default();
        changes.follow(&files);
        assert_eq!((changes.rows.len(), &changes.error), (0, &None), "no log yet");
        append(1, Outcome::Done);
        append(2, Outcome::Denied);
        append(3, Outcome::Rejected);
        append(4, Outcome::Failed);
        changes.follow(&files);
        let outcomes = |changes: &Changes| {
            let rows = changes.rows(&Writes::default());
            rows.iter().map(|row| (row.revision.unwrap(), row.outcome)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&changes), [(4, "failed"), (1, "done")]);
        changes.follow(&files);
        assert_eq!(changes.rows.len(), 2, "each is read once");
        for number in 5..5 + 2 * SHOWN as u64 {
            append(number, Outcome::Done);
        }
        changes.follow(&files);
        assert_eq!(changes.rows.len(), SHOWN);
        assert_eq!(outcomes(&changes)[0].0, 4 + 2 * SHOWN as u64);
        // Another process begins with the end of the log.
        let mut restarted = Changes::default();
        restarted.follow(&files);
        assert_eq!(outcomes(&restarted), outcomes(&changes));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_start_after_a_rotation_reads_the_file_before() {
        let name = format!("weir-page-rotation-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        // Eight files of 64 KiB.
        let files = AuditFiles::new(&folder, 8 << 16);
        let mut last = 0;
        while files.end().unwrap().file < 2 {
            last += 1;
            let mut entry = Entry::offline("applyService", "services/shop/web");
            (entry.outcome, entry.revision) = (Outcome::Done, Some(last));
            files.append(&[&entry.line()]).unwrap();
        }
        let mut changes = Changes::default();
        changes.follow(&files);
        changes.follow(&files);
        let rows = changes.rows(&Writes::default());
        let revisions: Vec<u64> = rows.iter().filter_map(|row| row.revision).collect();
        let expected: Vec<u64> = (1..=last).rev().take(SHOWN).collect();
        assert_eq!((revisions.len(), revisions), (SHOWN, expected), "{:?}", changes.error);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
