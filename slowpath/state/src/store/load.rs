//! Reads the files of a store and finds where they are damaged.

use super::disk::{LOG, SNAPSHOT};
use super::record::{self, Flaw, Line, Record, Records};
use crate::object::Objects;

/// Contents of a store's files.
#[derive(Default)]
pub(super) struct Loaded {
    pub objects: Objects,
    /// Length of the valid part of the log, bytes.
    pub log: usize,
    /// Number of bytes after the valid part of the log, left by an interrupted write.
    pub torn: usize,
    /// Whether the snapshot contains all of the log's records; the log is then emptied before the
    /// next record is written.
    pub stale: bool,
    /// Whether one of the files is in the first format; both are then rewritten before the next
    /// record.
    pub old: bool,
}

/// Reads both files; `None` stands for a file that does not exist.
///
/// # Errors
/// Returns the name of the damaged file, with the offset and kind of the damage.
pub(super) fn load(
    snapshot: Option<&[u8]>,
    log: Option<&[u8]>,
) -> Result<Loaded, (&'static str, Flaw)> {
    let mut objects = Objects::default();
    let mut old = false;
    if let Some(bytes) = snapshot {
        old = load_snapshot(&mut objects, bytes).map_err(|flaw| (SNAPSHOT, flaw))?;
    }
    let (known, bytes) = (objects.revision(), log.unwrap_or_default());
    let records = load_log(&mut objects, bytes).map_err(|flaw| (LOG, flaw))?;
    // A process left such a log if it ended between writing a snapshot and emptying the log.
    let stale = records.end > 0 && objects.revision() == known;
    Ok(Loaded {
        objects,
        log: records.end,
        torn: bytes.len() - records.end,
        stale,
        old: old || records.old,
    })
}

fn lines(record: &Record<'_>) -> Result<Vec<Line>, Flaw> {
    serde_json::from_slice(record.content).map_err(|error| {
        let wrong = format!(
            "the record cannot be decoded; another version of Weir may have written it: {error}"
        );
        Flaw::new(record.at, wrong)
    })
}

/// Reads a snapshot, which must be complete, because only complete files are renamed to
/// [`SNAPSHOT`]. Returns whether it is in the first format.
fn load_snapshot(objects: &mut Objects, bytes: &[u8]) -> Result<bool, Flaw> {
    let Records { all, end, old } = record::read_all(bytes)?;
    let incomplete = || Flaw::new(end, "the file ends before its last object");
    if end != bytes.len() {
        return Err(incomplete());
    }
    let (mut count, mut complete) = (0, false);
    for record in &all {
        for line in lines(record)? {
            if complete {
                return Err(Flaw::new(record.at, "a record follows the end record"));
            }
            match line {
                Line::Put(object) => {
                    objects.restore(object);
                    count += 1;
                }
                Line::End(expected, revision) if expected == count => {
                    objects.restore_revision(revision);
                    complete = true;
                }
                Line::End(expected, _) => {
                    let wrong = format!("{count} objects were read, {expected} were written");
                    return Err(Flaw::new(record.at, wrong));
                }
                Line::Gone(..) => {
                    return Err(Flaw::new(record.at, "a deletion record in a snapshot"));
                }
            }
        }
    }
    if complete { Ok(old) } else { Err(incomplete()) }
}

/// Reads the log, and applies the records that are newer than the snapshot.
fn load_log<'b>(objects: &mut Objects, bytes: &'b [u8]) -> Result<Records<'b>, Flaw> {
    let records = record::read_all(bytes)?;
    let known = objects.revision();
    let mut reached = known;
    for (number, record) in records.all.iter().enumerate() {
        if let Some(before) = record.before {
            // The first record may be older than the snapshot, but no changes may be missing before
            // it or between two records.
            let follows = if number == 0 { before <= known } else { before == reached };
            if !follows {
                let wrong = format!(
                    "the record follows revision {before}, but the records before it end with \
                     {reached}: the changes between them are missing"
                );
                return Err(Flaw::new(record.at, wrong));
            }
            reached = before;
        }
        for line in lines(record)? {
            let revision = match line {
                Line::Put(object) => {
                    let revision = object.revision;
                    if revision > known {
                        objects.restore(object);
                    }
                    revision
                }
                Line::Gone(key, revision) => {
                    if revision > known {
                        objects.restore_removal(&key, revision);
                    }
                    revision
                }
                Line::End(..) => {
                    return Err(Flaw::new(record.at, "the end record of a snapshot in the log"));
                }
            };
            reached = reached.max(revision);
        }
    }
    Ok(records)
}
