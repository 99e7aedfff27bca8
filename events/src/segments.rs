//! The files of the history: segments with a line for each record, in a folder of their own.
//!
//! A segment is named after the number of its first record. When the newest one is full, another
//! one is begun, and the oldest ones are removed, so that the folder stays below its maximum size.
//! A line that is damaged, or cut by a loss of power, is left out by readers and counted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::record::Record;

/// Number of segments into which the maximum size is divided.
const SEGMENTS: u64 = 8;
/// Maximum length of a line, in bytes. Longer ones are damaged.
const MAX_LINE: u64 = 1 << 20;

/// Returns the segments of a folder with the numbers of their first records, in ascending order.
fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_suffix(".log").and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// File that a writer locks, so that a second process does not write to the folder.
const LOCK: &str = "lock";

/// The writer of a folder.
pub struct SegmentWriter {
    /// Locked while this exists.
    _lock: File,
    folder: PathBuf,
    max_bytes: u64,
    file: File,
    path: PathBuf,
    /// Bytes of the newest segment that are complete lines.
    len: u64,
    next_number: u64,
}

impl SegmentWriter {
    /// Opens a folder, and creates it if it does not exist. What an interrupted write left at the
    /// end of the newest segment is cut off.
    ///
    /// # Errors
    /// Fails if the disk does, or if another process writes to the folder.
    pub fn open(folder: &Path, max_bytes: u64) -> io::Result<SegmentWriter> {
        fs::create_dir_all(folder)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o640);
        let lock = options.open(folder.join(LOCK))?;
        lock.try_lock()?;
        let found = segments(folder)?;
        let mut last = None;
        // A segment whose records are all damaged has no number to continue with.
        for (_, path) in found.iter().rev() {
            last = last_number(path)?;
            if last.is_some() {
                break;
            }
        }
        let newest = found.last();
        let next_number =
            last.unwrap_or(0).max(newest.map_or(0, |(first, _)| first.saturating_sub(1))) + 1;
        let (file, path) = match newest {
            Some((_, path)) => (open_segment(path)?, path.clone()),
            None => create_segment(folder, next_number)?,
        };
        let len = complete_len(&path)?;
        file.set_len(len)?;
        let folder = folder.to_owned();
        Ok(SegmentWriter { _lock: lock, folder, max_bytes, file, path, len, next_number })
    }

    /// Returns the number of the next record.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Writes the lines of `count` records, which have the next numbers, all of them or none.
    ///
    /// # Errors
    /// Fails if the disk does. The numbers are then used again.
    pub fn append(&mut self, lines: &str, count: u64) -> io::Result<()> {
        if self.len > 0 && self.len + lines.len() as u64 > self.max_bytes / SEGMENTS {
            self.begin_segment()?;
        }
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.len += lines.len() as u64;
                self.next_number += count;
                Ok(())
            }
            Err(error) => {
                // A full disk may have taken a part of the line. If it cannot be cut off, readers
                // leave the line out.
                let _ = self.file.set_len(self.len);
                Err(error)
            }
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        (self.file, self.path) = create_segment(&self.folder, self.next_number)?;
        self.len = 0;
        let found = segments(&self.folder)?;
        let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        let sizes: Vec<u64> = found.iter().map(|(_, path)| size(path)).collect();
        let mut total: u64 = sizes.iter().sum();
        // The newest one may grow to its share.
        let allowed = self.max_bytes - self.max_bytes / SEGMENTS;
        for ((_, path), size) in found.iter().zip(sizes) {
            if *path == self.path || total <= allowed {
                break;
            }
            fs::remove_file(path)?;
            total -= size;
        }
        Ok(())
    }
}

/// Opens a segment so that each write appends, also after it was cut.
fn open_segment(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn create_segment(folder: &Path, number: u64) -> io::Result<(File, PathBuf)> {
    let path = folder.join(format!("{number:020}.log"));
    let file = open_segment(&path)?;
    // So that the entry survives a loss of power, as its content does.
    File::open(folder)?.sync_all()?;
    Ok((file, path))
}

/// Returns the length of a segment up to the end of its last complete line.
fn complete_len(path: &Path) -> io::Result<u64> {
    Ok(complete(&fs::read(path)?) as u64)
}

fn complete(content: &[u8]) -> usize {
    content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Returns the highest number in the complete lines of a segment.
fn last_number(path: &Path) -> io::Result<Option<u64>> {
    let mut content = fs::read(path)?;
    content.truncate(complete(&content));
    let records = content.split(|byte| *byte == b'\n').filter_map(Record::parse);
    Ok(records.map(|record| record.number).max())
}

/// A reader of a folder, which continues where it stopped.
pub struct SegmentReader {
    folder: PathBuf,
    /// Number of the segment being read, and the offset in it.
    at: Option<(u64, u64)>,
    /// Number of the last record returned.
    last: u64,
    /// Number of damaged lines.
    damaged: u64,
}

impl SegmentReader {
    /// Creates a reader that begins with the oldest record.
    pub fn new(folder: &Path) -> SegmentReader {
        SegmentReader { folder: folder.to_owned(), at: None, last: 0, damaged: 0 }
    }

    /// Returns the number of damaged lines that were left out.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Passes the records that were added since the last call to `take`, until it returns false.
    ///
    /// # Errors
    /// Fails if a file cannot be read. A folder that does not exist has no records.
    pub fn read(&mut self, take: &mut dyn FnMut(Record) -> bool) -> io::Result<()> {
        let found = match segments(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        for (number, path) in found {
            let offset = match self.at {
                Some((at, _)) if number < at => continue,
                Some((at, offset)) if number == at => offset,
                _ => 0,
            };
            self.at = Some((number, offset));
            match self.read_segment(&path, number, offset, take) {
                // The writer removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(true) => {}
                end => return end.map(drop),
            }
        }
        Ok(())
    }

    /// Returns whether `take` wants more.
    fn read_segment(
        &mut self,
        path: &Path,
        number: u64,
        mut offset: u64,
        take: &mut dyn FnMut(Record) -> bool,
    ) -> io::Result<bool> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line)?;
            let is_complete = line.last() == Some(&b'\n');
            // A line without an end is being written; the next call reads it.
            if read == 0 || (!is_complete && read < MAX_LINE as usize) {
                return Ok(true);
            }
            offset += read as u64;
            self.at = Some((number, offset));
            let record = Record::parse(line.strip_suffix(b"\n").unwrap_or(&line));
            match record {
                // A number that was written before a failed write was cut off occurs twice.
                Some(record) if record.number > self.last => {
                    self.last = record.number;
                    if !take(record) {
                        return Ok(false);
                    }
                }
                Some(_) => {}
                None => self.damaged += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn add(writer: &mut SegmentWriter, subject: &str) -> u64 {
        let number = writer.next_number();
        writer.append(&example(number, "not_able", subject).to_line(), 1).unwrap();
        number
    }

    const NONE: [u64; 0] = [];

    fn numbers(folder: &Path) -> (Vec<u64>, u64) {
        let (mut reader, mut found) = (SegmentReader::new(folder), Vec::new());
        let mut take = |record: Record| {
            found.push(record.number);
            true
        };
        reader.read(&mut take).unwrap();
        (found, reader.damaged())
    }

    #[test]
    fn numbers_continue_after_a_write_that_was_cut_at_any_byte() {
        let folder = folder("cut");
        let mut writer = SegmentWriter::open(&folder, 1 << 20).unwrap();
        assert_eq!([add(&mut writer, "a"), add(&mut writer, "b")], [1, 2]);
        let path = writer.path.clone();
        let content = fs::read(&path).unwrap();
        let whole = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in whole..content.len() {
            drop(writer);
            fs::write(&path, &content[..cut]).unwrap();
            writer = SegmentWriter::open(&folder, 1 << 20).unwrap();
            assert_eq!(add(&mut writer, "c"), 2, "cut at {cut}");
            assert_eq!(numbers(&folder), (vec![1, 2], 0), "cut at {cut}");
        }
        drop(writer);
        // Pages that never reached the disk are zero after a loss of power.
        let mut torn = content.clone();
        torn[whole + 3..].fill(0);
        torn.extend(b"\n");
        fs::write(&path, &torn).unwrap();
        let mut writer = SegmentWriter::open(&folder, 1 << 20).unwrap();
        assert_eq!(add(&mut writer, "c"), 2);
        assert_eq!(numbers(&folder), (vec![1, 2], 1));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_folder_stays_below_its_size_and_keeps_the_newest_records() {
        let folder = folder("size");
        let mut writer = SegmentWriter::open(&folder, 16_000).unwrap();
        for n in 0..1000 {
            add(&mut writer, &format!("{n}"));
            let size: u64 = segments(&folder)
                .unwrap()
                .iter()
                .map(|(_, path)| fs::metadata(path).unwrap().len())
                .sum();
            assert!(size <= 16_000, "{size} bytes after {n} records");
        }
        let (found, damaged) = numbers(&folder);
        assert_eq!((found.last(), damaged), (Some(&1000), 0));
        assert!(found.len() > 50, "{} records are left", found.len());
        assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1));
        // A damaged newest segment does not make numbers start anew.
        let (_, newest) = segments(&folder).unwrap().pop().unwrap();
        fs::write(&newest, "damaged\n").unwrap();
        assert!(SegmentWriter::open(&folder, 16_000).is_err(), "another one writes");
        drop(writer);
        let next = SegmentWriter::open(&folder, 16_000).unwrap().next_number();
        assert!(next > found[0] && next <= 1001, "{next}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_reader_continues_where_it_stopped_also_in_the_next_segment() {
        let folder = folder("reader");
        let mut reader = SegmentReader::new(&folder);
        let mut read = |limit: usize| {
            let mut found = Vec::new();
            reader
                .read(&mut |record| {
                    found.push(record.number);
                    found.len() < limit
                })
                .unwrap();
            found
        };
        assert_eq!(read(9), NONE, "there is no folder yet");
        let mut writer = SegmentWriter::open(&folder, 4_000).unwrap();
        for _ in 0..5 {
            add(&mut writer, "a");
        }
        assert!(segments(&folder).unwrap().len() > 1);
        assert_eq!(read(2), [1, 2]);
        assert_eq!(read(9), [3, 4, 5]);
        assert_eq!(read(9), NONE);
        add(&mut writer, "b");
        assert_eq!(read(9), [6]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
