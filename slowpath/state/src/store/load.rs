//! Reads the files of a store and finds where they are damaged.

use super::disk::{LOG, SNAPSHOT};
use super::format::{Formats, UNNAMED};
use super::record::{self, Flaw, Line, Record, Records};
use crate::object::Objects;

/// Contents of a store's files.
pub(super) struct Loaded {
    pub objects: Objects,
    /// Length of the valid part of the log, bytes.
    pub log: usize,
    /// Number of bytes after the valid part of the log, left by an interrupted write.
    pub torn: usize,
    /// Whether the snapshot contains all of the log's records; the log is then emptied before the
    /// next record is written.
    pub stale: bool,
    /// Whether one of the files has records of the first format (`record.rs`); both are then
    /// rewritten before the next record.
    pub old: bool,
    /// Format of the lines; the newest if there are no files.
    pub format: u32,
}

impl Loaded {
    /// Returns the contents of a store without files.
    pub fn none(formats: &Formats) -> Loaded {
        Loaded {
            objects: Objects::default(),
            log: 0,
            torn: 0,
            stale: false,
            old: false,
            format: formats.own(),
        }
    }
}

/// Reads both files; `None` stands for a file that does not exist.
///
/// # Errors
/// Returns the name of the damaged file, with the offset and kind of the damage.
pub(super) fn load(
    formats: &Formats,
    snapshot: Option<&[u8]>,
    log: Option<&[u8]>,
) -> Result<Loaded, (&'static str, Flaw)> {
    let mut objects = Objects::default();
    let bytes = log.unwrap_or_default();
    let (old, format) = match snapshot {
        Some(snapshot) => {
            load_snapshot(formats, &mut objects, snapshot).map_err(|flaw| (SNAPSHOT, flaw))?
        }
        None if bytes.is_empty() => (false, formats.own()),
        None => (false, UNNAMED),
    };
    let snapshot_revision = objects.revision();
    let records = load_log(formats, format, &mut objects, bytes).map_err(|flaw| (LOG, flaw))?;
    // A process that ended between writing a snapshot and emptying the log left such a log.
    let stale = records.end > 0 && objects.revision() == snapshot_revision;
    Ok(Loaded {
        objects,
        log: records.end,
        torn: bytes.len() - records.end,
        stale,
        old: old || records.old,
        format,
    })
}

/// Decodes the lines of a record.
fn lines(formats: &Formats, format: u32, record: &Record<'_>) -> Result<Vec<Line>, Flaw> {
    formats.decode(format, record.content).map_err(|error| {
        let wrong = format!(
            "the record cannot be decoded; another version of Weir may have written it: {error}"
        );
        Flaw::new(record.at, wrong)
    })
}

/// Reads a snapshot, which must be complete, because only complete files are renamed to
/// [`SNAPSHOT`]. Returns whether its records are in the first format, and the format of its lines.
fn load_snapshot(
    formats: &Formats,
    objects: &mut Objects,
    bytes: &[u8],
) -> Result<(bool, u32), Flaw> {
    let Records { all, end, old } = record::read_all(bytes)?;
    let incomplete = || Flaw::new(end, "the file ends before its last object");
    if end != bytes.len() {
        return Err(incomplete());
    }
    let (mut count, mut complete) = (0, false);
    let named = all.first().and_then(named_format);
    if let Some(format) = named.filter(|format| !formats.contains(*format)) {
        let wrong = format!(
            "the store has format {format}; this version of Weir reads formats {UNNAMED} to {}",
            formats.own()
        );
        return Err(Flaw::new(0, wrong));
    }
    let format = named.unwrap_or(UNNAMED);
    for record in &all[usize::from(named.is_some())..] {
        for line in lines(formats, format, record)? {
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
                Line::Format(_) => {
                    return Err(Flaw::new(record.at, "a second record of the format"));
                }
            }
        }
    }
    if complete { Ok((old, format)) } else { Err(incomplete()) }
}

/// Returns the format that the first record of a snapshot names, if it is such a record.
pub(super) fn named_format(first: &Record<'_>) -> Option<u32> {
    match serde_json::from_slice::<[Line; 1]>(first.content) {
        Ok([Line::Format(format)]) => Some(format),
        _ => None,
    }
}

/// Reads the log, and applies the records that are newer than the snapshot.
fn load_log<'b>(
    formats: &Formats,
    format: u32,
    objects: &mut Objects,
    bytes: &'b [u8],
) -> Result<Records<'b>, Flaw> {
    let records = record::read_all(bytes)?;
    let snapshot_revision = objects.revision();
    let mut reached = snapshot_revision;
    for (number, record) in records.all.iter().enumerate() {
        if let Some(before) = record.before {
            // The first record may be older than the snapshot, but no changes may be missing before
            // it or between two records.
            let follows = if number == 0 { before <= snapshot_revision } else { before == reached };
            if !follows {
                let wrong = format!(
                    "the record follows revision {before}, but the records before it end with \
                     {reached}: the changes between them are missing"
                );
                return Err(Flaw::new(record.at, wrong));
            }
            reached = before;
        }
        for line in lines(formats, format, record)? {
            let revision = match line {
                Line::Put(object) => {
                    let revision = object.revision;
                    if revision > snapshot_revision {
                        objects.restore(object);
                    }
                    revision
                }
                Line::Gone(key, revision) => {
                    if revision > snapshot_revision {
                        objects.restore_removal(&key, revision);
                    }
                    revision
                }
                Line::End(..) | Line::Format(_) => {
                    return Err(Flaw::new(record.at, "a record of a snapshot in the log"));
                }
            };
            reached = reached.max(revision);
        }
    }
    Ok(records)
}
