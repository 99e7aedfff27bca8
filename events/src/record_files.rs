//! The files of the history: a line for each record, in the folder `events` of `control.state`.
//!
//! Readers skip and count lines that are damaged or were cut by a loss of power.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::line_files::{AppendError, LineFiles, Position};
use crate::record::Record;

/// Returns the files in a folder. Only a writer uses the maximum size.
fn files(folder: &Path, max_bytes: u64) -> LineFiles {
    LineFiles::new(folder.to_owned(), ".log", max_bytes, 0o640)
}

/// The writer of a folder.
pub(crate) struct RecordWriter {
    /// Keeps a second process from writing to the folder.
    _claim: File,
    files: LineFiles,
    next_number: u64,
}

impl RecordWriter {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns the error of a failed system call, or `WouldBlock` if another process writes to the
    /// folder.
    pub(crate) fn open(folder: &Path, max_bytes: u64) -> io::Result<RecordWriter> {
        if let Some(above) = folder.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        let files = files(folder, max_bytes);
        let claim = files.claim()?;
        // Adds a line end to the part of a line that an interrupted write left, so that it is read.
        files.append(&[]).map_err(|error| error.source)?;
        let next_number = last_number(&files)? + 1;
        Ok(RecordWriter { _claim: claim, files, next_number })
    }

    /// Returns the number of the next record.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Appends lines of records, which have the next numbers.
    ///
    /// # Errors
    /// Returns the error of a failed write, with the number of lines that are on disk.
    pub(crate) fn append(&mut self, lines: &[String]) -> Result<(), AppendError> {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let appended = self.files.append(&lines);
        let written = appended.as_ref().map_or_else(|error| error.written, |()| lines.len());
        self.next_number += written as u64;
        appended
    }
}

/// Returns the number of the last record; 0 if there is none.
fn last_number(files: &LineFiles) -> io::Result<u64> {
    // A file whose lines are all damaged has no number to continue with.
    for file in files.numbers()?.into_iter().rev() {
        let mut last = 0;
        files.read(Position { file, offset: 0 }, None, &mut |line| {
            last = last.max(Record::parse(line).map_or(0, |record| record.number));
            true
        })?;
        if last > 0 {
            return Ok(last);
        }
    }
    Ok(0)
}

/// A reader of a folder, which continues where it stopped.
pub struct RecordReader {
    files: LineFiles,
    next: Position,
    /// Number of the last record returned.
    last: u64,
    damaged: u64,
}

impl RecordReader {
    /// Creates a reader that begins with the oldest record.
    pub fn new(folder: &Path) -> RecordReader {
        RecordReader { files: files(folder, 0), next: Position::default(), last: 0, damaged: 0 }
    }

    /// Skips all records that exist now.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn skip(&mut self) -> io::Result<()> {
        self.next = self.files.end()?;
        Ok(())
    }

    /// Returns the number of damaged lines that were left out.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Passes the records that were added since the last call to `take`, until it returns false.
    /// Returns whether all were passed.
    ///
    /// # Errors
    /// Fails if a file cannot be read. A folder that does not exist has no records.
    pub fn read(&mut self, take: &mut dyn FnMut(Record) -> bool) -> io::Result<bool> {
        let (last, damaged) = (&mut self.last, &mut self.damaged);
        let end = self.files.read(self.next, None, &mut |line| match Record::parse(line) {
            // A write that failed may have left a record that was then written again.
            Some(record) if record.number > *last => {
                *last = record.number;
                take(record)
            }
            Some(_) => true,
            None => {
                *damaged += 1;
                true
            }
        })?;
        self.next = end.next;
        Ok(end.is_last)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::record::example;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn add(writer: &mut RecordWriter, subject: &str) -> u64 {
        let number = writer.next_number();
        writer.append(&[example(number, "not_able", subject).to_line()]).unwrap();
        number
    }

    const NONE: [u64; 0] = [];

    fn numbers(folder: &Path) -> (Vec<u64>, u64) {
        let (mut reader, mut found) = (RecordReader::new(folder), Vec::new());
        let mut take = |record: Record| {
            found.push(record.number);
            true
        };
        assert!(reader.read(&mut take).unwrap());
        (found, reader.damaged())
    }

    #[test]
    fn numbers_continue_after_a_write_that_was_cut_at_any_byte() {
        let folder = folder("cut");
        let mut writer = RecordWriter::open(&folder, 1 << 20).unwrap();
        assert_eq!([add(&mut writer, "a"), add(&mut writer, "b")], [1, 2]);
        let path = folder.join("00000001.log");
        let content = std::fs::read(&path).unwrap();
        let whole = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in whole..content.len() {
            drop(writer);
            std::fs::write(&path, &content[..cut]).unwrap();
            writer = RecordWriter::open(&folder, 1 << 20).unwrap();
            // Without its line end, the line is complete.
            let (next, damaged) = match content.len() - cut {
                1 => (3, 0),
                _ => (2, u64::from(cut > whole)),
            };
            assert_eq!(add(&mut writer, "c"), next, "cut at {cut}");
            assert_eq!(numbers(&folder), ((1..=next).collect(), damaged), "cut at {cut}");
        }
        drop(writer);
        // Pages that never reached the disk are zero after a loss of power.
        let mut torn = content.clone();
        torn[whole + 3..].fill(0);
        std::fs::write(&path, &torn).unwrap();
        let mut writer = RecordWriter::open(&folder, 1 << 20).unwrap();
        assert_eq!(add(&mut writer, "c"), 2);
        assert_eq!(numbers(&folder), (vec![1, 2], 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_newest_file_does_not_make_numbers_start_anew() {
        let folder = folder("damaged");
        let mut writer = RecordWriter::open(&folder, 16_000).unwrap();
        for n in 0..100 {
            add(&mut writer, &n.to_string());
        }
        let error = RecordWriter::open(&folder, 16_000).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "another one writes");
        let newest = writer.files.numbers().unwrap().pop().unwrap();
        assert!(newest > 1);
        std::fs::write(folder.join(format!("{newest:08}.log")), "damaged\n").unwrap();
        drop(writer);
        let next = RecordWriter::open(&folder, 16_000).unwrap().next_number();
        assert!(next > 50 && next <= 101, "{next}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_reader_continues_where_it_stopped_also_in_the_next_file() {
        let folder = folder("reader");
        let mut reader = RecordReader::new(&folder);
        let read = |reader: &mut RecordReader, limit: usize| {
            let mut found = Vec::new();
            reader
                .read(&mut |record| {
                    found.push(record.number);
                    found.len() < limit
                })
                .unwrap();
            found
        };
        assert_eq!(read(&mut reader, 9), NONE, "there is no folder yet");
        let mut writer = RecordWriter::open(&folder, 4_000).unwrap();
        for _ in 0..5 {
            add(&mut writer, "a");
        }
        assert!(writer.files.numbers().unwrap().len() > 1);
        let mut newest = RecordReader::new(&folder);
        newest.skip().unwrap();
        assert_eq!(read(&mut reader, 2), [1, 2]);
        assert_eq!(read(&mut reader, 9), [3, 4, 5]);
        assert_eq!(read(&mut reader, 9), NONE);
        add(&mut writer, "b");
        assert_eq!([read(&mut reader, 9), read(&mut newest, 9)], [[6], [6]]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
