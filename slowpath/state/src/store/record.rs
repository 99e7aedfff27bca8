//! Records in a file: a header with its own magic number and checksum, then the content.
//!
//! ```text
//!    0  magic number: F7 'W' 'R' '1'
//!    4  length of the content, u32
//!    8  revision of the objects before this record, u64
//!   16  CRC-32 of the content
//!   20  CRC-32 of bytes 0 to 19
//!   24  content, JSON
//! ```
//! Numbers are little-endian. F7 occurs in no UTF-8 text, so no content contains the magic number,
//! and the next record can be found after a damaged one.
//!
//! In the first format, a header has only the length and a CRC-32 of length and content.
//!
//! Damage is distinguished from an interrupted write, because only an interrupted write may be cut.
//! The bytes of an interrupted write are at the end of the file. Each of them is as it was written,
//! or zero if its page did not reach the disk, or missing.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::object::{Event, Key, Object};

/// First bytes of a record.
const MAGIC: [u8; 4] = [0xf7, b'W', b'R', b'1'];
/// Length of the header, bytes.
pub(super) const HEAD: usize = 24;
/// Number of header bytes covered by the header's checksum.
const COVERED: usize = 20;
/// Length of a header of the first format, bytes: length of the content, CRC-32 of length and
/// content.
const OLD_HEAD: usize = 8;

/// Line of a record: one object written or removed, or a mark of a snapshot. The content of a
/// record is a JSON list of lines.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Line {
    /// Object, as of its revision.
    Put(Arc<Object>),
    /// Deletion of an object, with its revision.
    Gone(Key, u64),
    /// End of a snapshot: the number of its objects, and its revision.
    End(u64, u64),
    /// Format of the lines of this snapshot and of the log; the first line of a snapshot, alone in
    /// its record.
    Format(u32),
}

impl Line {
    /// Returns the line that records an event; `None` if the event has no object.
    pub(super) fn of(event: &Event) -> Option<Line> {
        match (&event.after, &event.before) {
            (Some(after), _) => Some(Line::Put(after.clone())),
            (None, before) => before.as_ref().map(|o| Line::Gone(o.key(), event.revision)),
        }
    }
}

/// Complete record.
#[derive(Debug)]
pub(super) struct Record<'b> {
    /// Offset of the first byte.
    pub at: usize,
    /// Revision of the objects before the record; `None` in the first format.
    pub before: Option<u64>,
    pub content: &'b [u8],
    /// Offset after the last byte.
    pub end: usize,
}

/// Records of a file.
#[derive(Debug, Default)]
pub(super) struct Records<'b> {
    pub all: Vec<Record<'b>>,
    /// Offset after the last record. Bytes from here on are of an interrupted write.
    pub end: usize,
    /// Whether the records are in the first format.
    pub old: bool,
}

/// Damage in a file, and its offset.
#[derive(Debug)]
pub(super) struct Flaw {
    pub at: usize,
    pub fault: String,
}

impl Flaw {
    pub(super) fn new(at: usize, fault: impl Into<String>) -> Flaw {
        Flaw { at, fault: fault.into() }
    }
}

/// Appends a record with this content. `before` is the revision of the objects before the record;
/// records of a snapshot have 0.
pub(super) fn put<T: Serialize + ?Sized>(
    to: &mut Vec<u8>,
    before: u64,
    content: &T,
) -> io::Result<()> {
    let content = serde_json::to_vec(content)?;
    let len = u32::try_from(content.len()).map_err(io::Error::other)?;
    let mut head = Vec::with_capacity(HEAD);
    head.extend(MAGIC);
    head.extend(len.to_le_bytes());
    head.extend(before.to_le_bytes());
    head.extend(crc32fast::hash(&content).to_le_bytes());
    head.extend(crc32fast::hash(&head).to_le_bytes());
    to.extend(head);
    to.extend(content);
    Ok(())
}

/// Returns the records of a file, up to its end or to an interrupted write.
///
/// # Errors
/// Returns the first damage in the file.
pub(super) fn read_all(bytes: &[u8]) -> Result<Records<'_>, Flaw> {
    if read_old(bytes, 0).is_some() {
        return read_all_old(bytes);
    }
    let mut records = Records::default();
    while records.end < bytes.len() {
        let at = records.end;
        match read(bytes, at) {
            Ok(record) => {
                records.end = record.end;
                records.all.push(record);
            }
            Err(unreadable) => match unreadable.damage(bytes, at) {
                Some(fault) => return Err(Flaw::new(at, fault)),
                None => break,
            },
        }
    }
    Ok(records)
}

/// Returns the first record, if it is complete and not in the first format.
pub(super) fn first(bytes: &[u8]) -> Option<Record<'_>> {
    read(bytes, 0).ok()
}

/// Reason why there is no complete record at an offset.
enum Unreadable<'b> {
    /// The header is incomplete or invalid.
    Head,
    /// The file ends within the content.
    Short,
    /// The content's checksum is wrong.
    Content(&'b [u8]),
}

impl Unreadable<'_> {
    /// Returns a description of the damage; `None` if an interrupted write may have left these
    /// bytes.
    fn damage(&self, bytes: &[u8], at: usize) -> Option<String> {
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(next) = find_record(bytes, at + 1) {
            let what = match self {
                Unreadable::Head => "the record's header is invalid",
                Unreadable::Short => "the file ends within the record",
                Unreadable::Content(_) => "the record's checksum is wrong",
            };
            return Some(format!("{what}, and a complete record follows at byte {next}"));
        }
        match self {
            Unreadable::Head if !rest.iter().zip(MAGIC).all(|(b, m)| *b == m || *b == 0) => {
                Some("no record begins at this offset".to_owned())
            }
            // JSON contains no zero byte, so all of the content was written.
            Unreadable::Content(content) if !content.contains(&0) => {
                Some("the record is complete, but its checksum is wrong".to_owned())
            }
            _ => None,
        }
    }
}

/// Returns the `N` bytes at an offset.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// Returns the record at an offset.
fn read(bytes: &[u8], at: usize) -> Result<Record<'_>, Unreadable<'_>> {
    let head = bytes.get(at..at.saturating_add(HEAD)).ok_or(Unreadable::Head)?;
    let part = |at| bytes_at(head, at).map(u32::from_le_bytes).ok_or(Unreadable::Head);
    let covered = head.get(..COVERED).ok_or(Unreadable::Head)?;
    if !head.starts_with(&MAGIC) || crc32fast::hash(covered) != part(COVERED)? {
        return Err(Unreadable::Head);
    }
    let (len, sum) = (part(4)? as usize, part(16)?);
    let before = bytes_at(head, 8).map(u64::from_le_bytes);
    let end = at.saturating_add(HEAD).saturating_add(len);
    let content = bytes.get(at + HEAD..end).ok_or(Unreadable::Short)?;
    match crc32fast::hash(content) == sum {
        true => Ok(Record { at, before, content, end }),
        false => Err(Unreadable::Content(content)),
    }
}

/// Returns the offset of the next complete record at or after an offset.
fn find_record(bytes: &[u8], from: usize) -> Option<usize> {
    let mut windows = bytes.get(from..)?.windows(MAGIC.len()).enumerate();
    windows.find_map(|(skipped, window)| {
        (window == MAGIC && read(bytes, from + skipped).is_ok()).then_some(from + skipped)
    })
}

/// Returns the record of the first format at an offset, if it is complete.
fn read_old(bytes: &[u8], at: usize) -> Option<Record<'_>> {
    let len = u32::from_le_bytes(bytes_at(bytes, at)?);
    let sum = u32::from_le_bytes(bytes_at(bytes, at + 4)?);
    let end = at.checked_add(OLD_HEAD)?.checked_add(len as usize)?;
    let content = bytes.get(at + OLD_HEAD..end)?;
    let mut found = crc32fast::Hasher::new();
    found.update(&len.to_le_bytes());
    found.update(content);
    (found.finalize() == sum).then_some(Record { at, before: None, content, end })
}

/// Returns the records of a file in the first format. In this format an interrupted write cannot be
/// distinguished from damage, so anything incomplete is damage.
fn read_all_old(bytes: &[u8]) -> Result<Records<'_>, Flaw> {
    let mut records = Records { old: true, ..Records::default() };
    while records.end < bytes.len() {
        let record = read_old(bytes, records.end).ok_or_else(|| {
            let fault = "the record, in the format of an earlier version, is incomplete";
            Flaw::new(records.end, fault)
        })?;
        records.end = record.end;
        records.all.push(record);
    }
    Ok(records)
}
