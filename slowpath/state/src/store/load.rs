//! Reading the files of a store: complete, or the place where they are damaged.

use super::disk::{LOG, SNAPSHOT};
use super::record::{self, Flaw, Line, Record, Records};
use crate::object::Objects;

/// What the files hold.
#[derive(Default)]
pub(super) struct Loaded {
    pub objects: Objects,
    /// Bytes of the log that count.
    pub log: usize,
    /// Bytes behind them that an interrupted write left.
    pub torn: usize,
    /// The log's records are all in the snapshot: it goes before the next record is written.
    pub stale: bool,
    /// One of the files is in the first format: both are written anew before the next record is.
    pub old: bool,
}

/// Reads both files; none stands for a file that does not exist.
///
/// # Errors
/// The damaged file, with the place and what is wrong there.
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
    // What a fold left behind that was interrupted before it emptied the log.
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
            "the record there is not understood, as if another version of Weir had written it: \
             {error}"
        );
        Flaw::new(record.at, wrong)
    })
}

/// All or nothing: it was whole when it got its name. Returns whether it is in the first format.
fn load_snapshot(objects: &mut Objects, bytes: &[u8]) -> Result<bool, Flaw> {
    let Records { all, end, old } = record::all(bytes)?;
    let incomplete = || Flaw::new(end, "the file ends before all of its objects");
    if end != bytes.len() {
        return Err(incomplete());
    }
    let (mut count, mut complete) = (0, false);
    for record in &all {
        for line in lines(record)? {
            if complete {
                return Err(Flaw::new(record.at, "a record follows the last one"));
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
                    let wrong = format!("{count} objects precede, {expected} were written");
                    return Err(Flaw::new(record.at, wrong));
                }
                Line::Gone(..) => {
                    return Err(Flaw::new(record.at, "a deletion, which no snapshot has"));
                }
            }
        }
    }
    if complete { Ok(old) } else { Err(incomplete()) }
}

fn load_log<'b>(objects: &mut Objects, bytes: &'b [u8]) -> Result<Records<'b>, Flaw> {
    let records = record::all(bytes)?;
    let known = objects.revision();
    let mut reached = known;
    for (number, record) in records.all.iter().enumerate() {
        if let Some(before) = record.before {
            // The log may begin before the snapshot, and has no gap.
            let follows = if number == 0 { before <= known } else { before == reached };
            if !follows {
                let wrong = format!(
                    "the record there follows revision {before}, and what is there ends with \
                     {reached}: what was between them is missing"
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
                        objects.restore_gone(&key, revision);
                    }
                    revision
                }
                Line::End(..) => return Err(Flaw::new(record.at, "the end of a snapshot")),
            };
            reached = reached.max(revision);
        }
    }
    Ok(records)
}
