//! Numbered files of lines, in a folder of their own, with a maximum total size. The history of
//! events and the audit log are stored in this form.
//!
//! One process or several append to the file with the highest number, under a lock of the folder. A
//! file that would exceed an eighth of the maximum size is followed by the next one, and the oldest
//! files are removed. Lines are written by one call and synced. If a crash or a full disk leaves a
//! part of a line, the next writer adds a line end to it, and readers get the part as a line of its
//! own, so that no other line is lost.
//!
//! Root writes to the files as well, in a folder that belongs to the user of slowpath: files are
//! opened relative to the folder, without following links, and new ones get the folder's owner.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use config::atomic_file::{self, Access, folder_of};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, statat, unlinkat};
use rustix::io::Errno;

/// Maximum length of a line, in bytes. Longer ones are read in parts.
pub const MAX_LINE: usize = 1 << 20;
/// Number of files among which the maximum size is divided.
const FILES: u64 = 8;
/// Maximum time to wait for the lock. A writer holds it for one write and its sync.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The files of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineFiles {
    folder: PathBuf,
    suffix: &'static str,
    max_bytes: u64,
    mode: u32,
}

/// A position between two lines: the number of a file, and an offset in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// Number of the file.
    pub file: u64,
    /// Offset in bytes.
    pub offset: u64,
}

/// Result of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Position of the next line.
    pub next: Position,
    /// Whether all complete lines were read.
    pub is_last: bool,
}

/// Error of a write.
#[derive(Debug)]
pub struct AppendError {
    /// Number of lines, from the first, that are on disk nevertheless.
    pub written: usize,
    /// The error of a system call, or of a lock that another writer holds for too long.
    pub source: io::Error,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for AppendError {}

impl LineFiles {
    /// Returns the files of a folder, of at most `max_bytes` together. Their names are numbers with
    /// this suffix; new ones have this mode.
    pub fn new(folder: PathBuf, suffix: &'static str, max_bytes: u64, mode: u32) -> LineFiles {
        LineFiles { folder, suffix, max_bytes, mode }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends lines, each with its line end, and returns when they are on disk. If a crash left a
    /// part of a line, a line end is added first, also with an empty list of lines.
    ///
    /// # Errors
    /// A system call failed, or another writer holds the lock for too long.
    pub fn append(&self, lines: &[&str]) -> Result<(), AppendError> {
        let mut written = 0;
        loop {
            let rest = &lines[written..];
            // Lines that do not fit into a file of their own go into the next one.
            let mut bytes = 0;
            let fits = |line: &&&str| {
                bytes += line.len() as u64;
                bytes <= self.file_bytes()
            };
            let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let appended = self.append_text(&rest[..count].concat());
            appended.map_err(|source| AppendError { written, source })?;
            written += count;
            if written == lines.len() {
                return Ok(());
            }
        }
    }

    fn file_bytes(&self) -> u64 {
        self.max_bytes / FILES
    }

    /// Appends a text to the last file, or to the next one.
    fn append_text(&self, text: &str) -> io::Result<()> {
        let folder = self.create_folder()?;
        lock(&folder)?;
        let numbers = self.numbers_in(&folder)?;
        let last = numbers.last().copied().unwrap_or(1);
        let bytes = text.len() as u64;
        self.remove_oldest(&folder, &numbers, bytes)?;
        let mut file = self.create(&folder, &self.name(last))?;
        let mut length = file.metadata()?.len();
        if length > 0 && length + bytes > self.file_bytes() {
            let next = last.checked_add(1).ok_or_else(|| io::Error::other("no next number"))?;
            (file, length) = (self.create(&folder, &self.name(next))?, 0);
        }
        let is_torn = length > 0 && {
            let mut octet = [0];
            file.read_exact_at(&mut octet, length - 1)?;
            octet != *b"\n"
        };
        let text = if is_torn { format!("\n{text}") } else { text.to_owned() };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.inspect_err(|_| {
            // Best effort: if it fails, the next writer adds a line end.
            let _ = file.set_len(length);
        })
    }

    /// Opens the folder. If it is missing, it is created for the owner of the folder above.
    fn create_folder(&self) -> io::Result<File> {
        match atomic_file::open_folder(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = Access::of(folder_of(&self.folder))?;
                // Users with read permission for the files get search permission for the folder.
                let mode = 0o700 | self.mode | (self.mode & 0o444) >> 2;
                match atomic_file::create_folder(&self.folder, Access { mode, ..above }) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => atomic_file::open_folder(&self.folder),
                }
            }
            opened => opened,
        }
    }

    /// Opens a file to append, and creates it if it is missing.
    fn create(&self, folder: &File, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND;
        match open_in(folder, name, flags | OFlags::CREATE | OFlags::EXCL, self.mode) {
            Ok(file) => {
                // A command that runs as root must not keep slowpath's user from appending.
                let (owner, about) = (folder.metadata()?, file.metadata()?);
                if (owner.uid(), owner.gid()) != (about.uid(), about.gid()) {
                    fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
                }
                folder.sync_all()?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                open_in(folder, name, flags, self.mode)
            }
            Err(error) => Err(error),
        }
    }

    /// Locks the folder against other processes that call this function too. Dropping the file
    /// releases the lock.
    ///
    /// # Errors
    /// A system call failed: `WouldBlock` if another process holds the lock.
    pub fn claim(&self) -> io::Result<File> {
        let file = self.create(&self.create_folder()?, "lock")?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Removes the oldest files until `bytes` more fit. The last file stays.
    fn remove_oldest(&self, folder: &File, numbers: &[u64], bytes: u64) -> io::Result<()> {
        let size = |number: &u64| {
            let about = statat(folder, self.name(*number), AtFlags::SYMLINK_NOFOLLOW);
            about.map_or(0, |about| about.st_size.cast_unsigned())
        };
        let sizes: Vec<u64> = numbers.iter().map(size).collect();
        let mut total: u64 = sizes.iter().sum::<u64>() + bytes;
        let older = numbers.len().saturating_sub(1);
        for (number, size) in numbers.iter().zip(sizes).take(older) {
            if total <= self.max_bytes {
                break;
            }
            match unlinkat(folder, self.name(*number), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => total -= size,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn name(&self, number: u64) -> String {
        format!("{number:08}{}", self.suffix)
    }

    fn numbers_in(&self, folder: &File) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in Dir::read_from(folder)? {
            numbers.extend(self.number(entry?.file_name()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn number(&self, name: &CStr) -> Option<u64> {
        name.to_str().ok()?.strip_suffix(self.suffix)?.parse().ok()
    }

    /// Returns the numbers of the files in ascending order; none without a folder.
    ///
    /// # Errors
    /// A system call failed.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        match atomic_file::open_folder(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            folder => self.numbers_in(&folder?),
        }
    }

    /// Returns the position after the last complete line.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn end(&self) -> io::Result<Position> {
        let Some(file) = self.numbers()?.last().copied() else { return Ok(Position::default()) };
        Ok(self.read(Position { file, offset: 0 }, None, &mut |_| true)?.next)
    }

    /// Passes the lines from a position on to `take`, without their line ends, until it returns
    /// false. Files that were last written before `since` are skipped. A position in a removed file
    /// is that of the oldest file.
    ///
    /// # Errors
    /// A file cannot be read. A folder that does not exist has no lines.
    pub fn read(
        &self,
        from: Position,
        since: Option<SystemTime>,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<End> {
        let mut next = from;
        let folder = match atomic_file::open_folder(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(End { next, is_last: true });
            }
            folder => folder?,
        };
        let numbers = self.numbers_in(&folder)?;
        for number in numbers.iter().copied().filter(|number| *number >= from.file) {
            let is_last_file = numbers.last() == Some(&number);
            let mut file = match open_in(&folder, &self.name(number), OFlags::RDONLY, 0) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let offset = if number == from.file { from.offset } else { 0 };
            next = Position { file: number, offset };
            let written = file.metadata()?.modified()?;
            if !is_last_file && since.is_some_and(|since| written < since) {
                continue;
            }
            file.seek(SeekFrom::Start(offset))?;
            if !read_file(&mut BufReader::new(file), is_last_file, &mut next.offset, take)? {
                return Ok(End { next, is_last: false });
            }
        }
        Ok(End { next, is_last: true })
    }
}

/// Opens a file in a folder without following links. A FIFO does not block.
fn open_in(folder: &File, name: &str, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::from_raw_mode(mode))?;
    Ok(File::from(file))
}

/// Passes the rest of a file to `take`. Returns false if `take` did. The incomplete last line of
/// the last file is left for later.
fn read_file(
    file: &mut BufReader<File>,
    is_last_file: bool,
    offset: &mut u64,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        let is_whole = line.last() == Some(&b'\n');
        let is_too_long = !is_whole && read == MAX_LINE;
        if read == 0 || (!is_whole && !is_too_long && is_last_file) {
            return Ok(true);
        }
        *offset += read as u64;
        if !take(line.strip_suffix(b"\n").unwrap_or(&line)) {
            return Ok(false);
        }
    }
}

/// Locks a folder, and fails after [`LOCK_TIMEOUT`]. Closing the folder releases the lock.
fn lock(folder: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process has locked the folder for too long"));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("weir-lines-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn files(&self, max_bytes: u64) -> LineFiles {
            LineFiles::new(self.0.join("lines"), ".log", max_bytes, 0o600)
        }

        fn first(&self) -> PathBuf {
            self.0.join("lines/00000001.log")
        }

        /// Returns the size of all files.
        fn size(&self) -> u64 {
            let entries = std::fs::read_dir(self.0.join("lines")).unwrap();
            entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn all(files: &LineFiles) -> Vec<String> {
        let mut found = Vec::new();
        let end = files.read(Position::default(), None, &mut |line| {
            found.push(String::from_utf8_lossy(line).into_owned());
            true
        });
        assert!(end.unwrap().is_last);
        found
    }

    #[test]
    fn lines_are_read_in_parts_and_from_the_end() {
        let folder = Folder::new("parts");
        let files = folder.files(1 << 20);
        assert_eq!(all(&files), [""; 0], "there is no folder yet");
        files.append(&["a\n", "b\n", "c\n"]).unwrap();
        let read = |from: Position, limit: usize| {
            let mut found = Vec::new();
            let take = &mut |line: &[u8]| {
                found.push(String::from_utf8_lossy(line).into_owned());
                found.len() < limit
            };
            let end = files.read(from, None, take).unwrap();
            (found.concat(), end)
        };
        let (lines, end) = read(Position::default(), 2);
        assert_eq!((lines.as_str(), end.is_last), ("ab", false));
        let (lines, end) = read(end.next, 2);
        assert_eq!((lines.as_str(), end.is_last), ("c", true));
        assert_eq!(files.end().unwrap(), end.next);
        files.append(&["d\n"]).unwrap();
        assert_eq!(read(end.next, 9).0, "d");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder.first()), mode(files.folder())), (0o600, 0o700));
    }

    #[test]
    fn rotation_bounds_the_size_and_keeps_the_newest() {
        let folder = Folder::new("rotation");
        let files = folder.files(8 << 10);
        for number in 0..400 {
            files.append(&[&format!("{number:100}\n")]).unwrap();
            assert!(folder.size() <= 8 << 10, "{}", folder.size());
        }
        let kept = all(&files);
        assert!(kept.len() > 20 && kept.len() < 400, "{}", kept.len());
        let expected: Vec<String> = (400 - kept.len()..400).map(|n| format!("{n:100}")).collect();
        assert_eq!(kept, expected, "the newest, without a gap");
        // A reader whose file was removed continues with the oldest.
        let mut first = Vec::new();
        let from = Position { file: 1, offset: 77 };
        files
            .read(from, None, &mut |line| {
                first = line.to_vec();
                false
            })
            .unwrap();
        assert_eq!(first, kept[0].as_bytes());
        // One batch that is larger than all files.
        let batch: Vec<String> = (0..400).map(|number| format!("batch {number:100}\n")).collect();
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        files.append(&batch).unwrap();
        assert!(folder.size() <= 8 << 10, "{}", folder.size());
        let kept = all(&files);
        assert!(kept.len() > 20, "{}", kept.len());
        assert_eq!(kept.last().map(String::as_str), Some(batch[399].trim_end()));
        // A line longer than a file has a file of its own.
        files.append(&[format!("{}\n", "x".repeat(1500)).as_str(); 30]).unwrap();
        assert!(folder.size() <= 8 << 10, "{}", folder.size());
    }

    #[test]
    fn torn_line_is_ended_and_no_other_line_is_lost() {
        let folder = Folder::new("torn");
        let files = folder.files(1 << 20);
        for cut in 1..5 {
            std::fs::create_dir_all(files.folder()).unwrap();
            std::fs::write(folder.first(), format!("first\n{}", &"torn"[..cut])).unwrap();
            assert_eq!(all(&files), ["first"], "{cut}: it may still be written");
            files.append(&[]).unwrap();
            assert_eq!(all(&files), ["first", &"torn"[..cut]], "{cut}");
            files.append(&["next\n"]).unwrap();
            assert_eq!(all(&files), ["first", &"torn"[..cut], "next"], "{cut}");
        }
    }

    #[test]
    fn writers_of_several_handles_do_not_lose_or_mix_lines() {
        let folder = Folder::new("writers");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let files = folder.files(64 << 10);
                scope.spawn(move || {
                    for number in 0..50 {
                        files.append(&[&format!("{writer}-{number:02}\n")]).unwrap();
                    }
                });
            }
        });
        let mut found = all(&folder.files(64 << 10));
        found.sort();
        let expected: Vec<String> =
            (0..4).flat_map(|w| (0..50).map(move |n| format!("{w}-{n:02}"))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_that_another_writer_removes_do_not_lose_a_line() {
        let folder = Folder::new("removed");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                // Each line has a file, so that all writers remove files all the time.
                let files = folder.files(800);
                scope.spawn(move || {
                    for number in 0..50 {
                        files.append(&[&format!("{writer} {number:95}\n")]).unwrap();
                    }
                });
            }
        });
        assert_eq!(all(&folder.files(800)).len(), 8);
    }

    #[test]
    fn lock_that_is_not_released_is_an_error() {
        let folder = Folder::new("locked");
        let files = folder.files(1 << 20);
        files.append(&["a\n"]).unwrap();
        let held = File::open(files.folder()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = files.append(&["b\n"]).unwrap_err();
        assert!(error.to_string().contains("locked"), "{error}");
        drop(held);
        files.append(&["c\n"]).unwrap();
        assert_eq!(all(&files), ["a", "c"]);
    }

    #[test]
    fn lines_before_a_failed_write_are_counted() {
        let folder = Folder::new("failed");
        let files = folder.files(80);
        std::fs::create_dir(files.folder()).unwrap();
        // There is no number for another file.
        std::fs::write(files.folder().join(files.name(u64::MAX)), "").unwrap();
        let error = files.append(&["123456789\n", "a\n"]).unwrap_err();
        assert_eq!((error.written, all(&files)), (1, vec!["123456789".to_owned()]), "{error}");
    }

    #[test]
    fn links_are_not_followed() {
        let folder = Folder::new("links");
        let (files, victim) = (folder.files(1 << 20), folder.0.join("victim"));
        std::fs::write(&victim, "kept\n").unwrap();
        std::fs::create_dir(files.folder()).unwrap();
        std::os::unix::fs::symlink(&victim, folder.first()).unwrap();
        assert!(files.append(&["x\n"]).is_err());
        assert!(files.read(Position::default(), None, &mut |_| true).is_err());
        std::fs::remove_dir_all(files.folder()).unwrap();
        std::fs::create_dir(folder.0.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(folder.0.join("elsewhere"), files.folder()).unwrap();
        assert!(files.append(&["x\n"]).is_err());
        assert_eq!(std::fs::read_dir(folder.0.join("elsewhere")).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept\n");
    }
}
