//! Files of the audit log: `audit/NUMBER.jsonl` in `control.state`, one entry per line.
//!
//! The file with the highest number is appended to, under a lock, by slowpath and by commands of
//! `weir`; at an eighth of the maximum size the next one is begun, and the oldest ones are removed.
//! A line is written by one call and synced. What a crash or a full disk leaves of a line is ended
//! by the next writer and skipped by readers, so that no other line is lost.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::entry::Entry;

/// Maximum length of a line that is read.
pub(crate) const MAX_LINE: usize = 256 << 10;
/// Number of files at the maximum size.
const FILES: u64 = 8;
/// Maximum time to wait for the lock. A writer holds it for one write and its sync.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of times that another writer may begin the next file meanwhile.
const MAX_ATTEMPTS: usize = 16;

/// The files of an audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditFiles {
    folder: PathBuf,
    max_bytes: u64,
}

/// A position between two lines: the number of a file, and an offset in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// Number of the file.
    pub file: u64,
    /// Offset in bytes.
    pub offset: u64,
}

/// Entries that were read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    /// Entries, oldest first.
    pub entries: Vec<Entry>,
    /// Number of lines that are no entries: what a crash left.
    pub damaged: u64,
    /// Position of the next line.
    pub next: Position,
    /// Whether all complete lines were read.
    pub is_end: bool,
}

impl AuditFiles {
    /// Returns the files in the directory `state`, of at most `max_bytes` together.
    pub fn new(state: &Path, max_bytes: u64) -> AuditFiles {
        AuditFiles { folder: state.join("audit"), max_bytes }
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends lines, each with its line end, and returns when they are on disk.
    ///
    /// # Errors
    /// A system call failed, or another writer holds the lock for too long. Nothing was appended,
    /// or a part that readers skip.
    pub fn append(&self, lines: &[&str]) -> io::Result<()> {
        let mut rest = lines;
        let mut attempts = 0;
        while !rest.is_empty() {
            // Lines that do not fit into a file of their own go into the next one.
            let mut bytes = 0;
            let fits = |line: &&&str| {
                bytes += line.len() as u64;
                bytes <= self.file_bytes()
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            if self.try_append(&now.concat())? {
                (rest, attempts) = (later, 0);
                continue;
            }
            attempts += 1;
            if attempts == MAX_ATTEMPTS {
                return Err(io::Error::other("other writers are too busy"));
            }
        }
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        self.max_bytes / FILES
    }

    /// Appends a text to the last file. Returns false if there is a newer file by now.
    fn try_append(&self, text: &str) -> io::Result<bool> {
        let numbers = self.numbers()?;
        let last = numbers.last().copied().unwrap_or(1);
        let file = self.open(last)?;
        lock(&file)?;
        if self.numbers()?.last() != Some(&last) {
            return Ok(false);
        }
        let length = file.metadata()?.len();
        if length > 0 && length + text.len() as u64 > self.file_bytes() {
            self.remove_oldest(&numbers, text.len() as u64)?;
            self.open(last + 1)?;
            return Ok(false);
        }
        self.remove_oldest(&numbers, text.len() as u64)?;
        let is_torn = length > 0 && {
            let mut octet = [0];
            file.read_exact_at(&mut octet, length - 1)?;
            octet != *b"\n"
        };
        let text = if is_torn { format!("\n{text}") } else { text.to_owned() };
        let written = (&file).write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if written.is_err() {
            // Best effort: the next writer ends what stays.
            let _ = file.set_len(length);
        }
        written.map(|()| true)
    }

    /// Opens a file to append, and creates it if it is missing.
    fn open(&self, number: u64) -> io::Result<File> {
        self.create_folder()?;
        let path = self.path(number);
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        match options.clone().create_new(true).open(&path) {
            Ok(file) => {
                // A command that runs as root must not keep slowpath's user from appending.
                let owner = std::fs::metadata(&self.folder)?;
                let about = file.metadata()?;
                if (owner.uid(), owner.gid()) != (about.uid(), about.gid()) {
                    fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
                }
                File::open(&self.folder)?.sync_all()?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(&path),
            Err(error) => Err(error),
        }
    }

    /// Creates the directory if it is missing, for the owner of the directory above.
    fn create_folder(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => {
                let above = self.folder.parent().unwrap_or(Path::new("/"));
                let (owner, about) = (std::fs::metadata(above)?, std::fs::metadata(&self.folder)?);
                if (owner.uid(), owner.gid()) != (about.uid(), about.gid()) {
                    chown(&self.folder, Some(owner.uid()), Some(owner.gid()))?;
                }
                File::open(above)?.sync_all()
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the oldest files until `bytes` more fit. The last file stays.
    fn remove_oldest(&self, numbers: &[u64], bytes: u64) -> io::Result<()> {
        let size = |number: &u64| std::fs::metadata(self.path(*number)).map_or(0, |a| a.len());
        let sizes: Vec<u64> = numbers.iter().map(size).collect();
        let mut total: u64 = sizes.iter().sum::<u64>() + bytes;
        let older = numbers.len().saturating_sub(1);
        for (number, size) in numbers.iter().zip(sizes).take(older) {
            if total <= self.max_bytes {
                break;
            }
            std::fs::remove_file(self.path(*number))?;
            total -= size;
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:08}.jsonl"))
    }

    /// Returns the numbers of the files in ascending order; none without a directory.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the position after the last complete line.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn end(&self) -> io::Result<Position> {
        let Some(file) = self.numbers()?.last().copied() else { return Ok(Position::default()) };
        let mut next = Position { file, offset: 0 };
        loop {
            let part = self.read(next, None, usize::MAX, |_| false)?;
            next = part.next;
            if part.is_end {
                return Ok(next);
            }
        }
    }

    /// Reads entries from a position on, at most `limit` that `selects` accepts. Files that were
    /// last written before `since` are skipped. A position in a removed file is that of the oldest
    /// file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(
        &self,
        from: Position,
        since: Option<SystemTime>,
        limit: usize,
        selects: impl Fn(&Entry) -> bool,
    ) -> io::Result<Part> {
        let numbers = self.numbers()?;
        let mut part = Part { next: from, ..Part::default() };
        for number in numbers.iter().copied().filter(|number| *number >= from.file) {
            let is_last = numbers.last() == Some(&number);
            let mut file = match File::open(self.path(number)) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let start = if number == from.file { from.offset } else { 0 };
            part.next = Position { file: number, offset: start };
            let written = file.metadata()?.modified()?;
            if !is_last && since.is_some_and(|since| written < since) {
                continue;
            }
            file.seek(SeekFrom::Start(start))?;
            if !part.read_file(&mut BufReader::new(file), (limit, is_last), &selects)? {
                return Ok(part);
            }
        }
        part.is_end = true;
        Ok(part)
    }
}

impl Part {
    /// Reads the rest of a file. Returns false if `limit` is reached. The incomplete last line of
    /// the last file is left for later.
    fn read_file(
        &mut self,
        file: &mut BufReader<File>,
        (limit, is_last): (usize, bool),
        selects: impl Fn(&Entry) -> bool,
    ) -> io::Result<bool> {
        let mut line = Vec::new();
        loop {
            if self.entries.len() >= limit {
                return Ok(false);
            }
            line.clear();
            let read = file.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
            let is_whole = line.last() == Some(&b'\n');
            let is_too_long = !is_whole && read == MAX_LINE;
            if read == 0 || (!is_whole && !is_too_long && is_last) {
                return Ok(true);
            }
            self.next.offset += read as u64;
            match serde_json::from_slice::<Entry>(&line) {
                Ok(entry) if selects(&entry) => self.entries.push(entry),
                Ok(_) => {}
                Err(_) => self.damaged += 1,
            }
        }
    }
}

/// Locks a file, and fails if that takes too long. Closing the file releases the lock.
fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process has locked the file for too long"));
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
            let name = format!("weir-audit-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn files(&self, max_bytes: u64) -> AuditFiles {
            AuditFiles::new(&self.0, max_bytes)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn line(object: &str) -> String {
        Entry::offline("test", object).line()
    }

    fn objects(files: &AuditFiles) -> Vec<String> {
        let part = files.read(Position::default(), None, usize::MAX, |_| true).unwrap();
        assert!(part.is_end);
        part.entries.into_iter().map(|entry| entry.object).collect()
    }

    #[test]
    fn entries_are_read_in_pages_and_from_the_end() {
        let folder = Folder::new("pages");
        let files = folder.files(1 << 20);
        assert_eq!(objects(&files), [""; 0]);
        let lines = ["a", "b", "c"].map(line);
        files.append(&lines.each_ref().map(String::as_str)).unwrap();
        assert_eq!(objects(&files), ["a", "b", "c"]);
        let first = files.read(Position::default(), None, 2, |_| true).unwrap();
        assert_eq!((first.entries.len(), first.is_end), (2, false));
        let second = files.read(first.next, None, 2, |entry| entry.object != "b").unwrap();
        assert_eq!((second.entries[0].object.as_str(), second.is_end), ("c", true));
        let end = files.end().unwrap();
        assert_eq!(end, second.next);
        files.append(&[&line("d")]).unwrap();
        assert_eq!(files.read(end, None, 9, |_| true).unwrap().entries[0].object, "d");
        let mode = std::fs::metadata(folder.0.join("audit/00000001.jsonl")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::metadata(folder.0.join("audit")).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn rotation_bounds_the_size_and_keeps_the_newest() {
        let folder = Folder::new("rotation");
        let files = folder.files(8 << 10);
        let total = || {
            let entries = std::fs::read_dir(folder.0.join("audit")).unwrap();
            entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>()
        };
        let mut numbers = (0..400).map(|number| number.to_string());
        for number in numbers.by_ref() {
            files.append(&[&line(&number)]).unwrap();
            assert!(total() <= 8 << 10, "{}", total());
        }
        let kept = objects(&files);
        assert!(kept.len() > 20 && kept.len() < 400, "{}", kept.len());
        let expected: Vec<String> = (400 - kept.len()..400).map(|n| n.to_string()).collect();
        assert_eq!(kept, expected, "the newest, without a gap");
        // A reader whose file was removed goes on with the oldest.
        let part = files.read(Position { file: 1, offset: 77 }, None, 1, |_| true).unwrap();
        assert_eq!(part.entries[0].object, kept[0]);
        // A line longer than a file has a file of its own.
        let long = line(&"x".repeat(500)).replace("\"reason\"", "\"r\"");
        let many: Vec<&str> = std::iter::repeat_n(long.as_str(), 30).collect();
        files.append(&many).unwrap();
        assert!(total() <= 8 << 10, "{}", total());
    }

    #[test]
    fn torn_line_is_skipped_and_no_other_line_is_lost() {
        let folder = Folder::new("torn");
        let files = folder.files(1 << 20);
        files.append(&[&line("a")]).unwrap();
        let path = folder.0.join("audit/00000001.jsonl");
        let whole = std::fs::read(&path).unwrap();
        let torn = line("b");
        for cut in 1..torn.len() {
            let mut octets = whole.clone();
            octets.extend(&torn.as_bytes()[..cut]);
            std::fs::write(&path, octets).unwrap();
            assert_eq!(objects(&files), ["a"], "{cut}: it may still be written");
            files.append(&[&line("c")]).unwrap();
            let part = files.read(Position::default(), None, 9, |_| true).unwrap();
            let objects: Vec<&str> = part.entries.iter().map(|e| e.object.as_str()).collect();
            // Without its line end, the line is complete.
            let (expected, damaged): (&[&str], u64) = match cut == torn.len() - 1 {
                true => (&["a", "b", "c"], 0),
                false => (&["a", "c"], 1),
            };
            assert_eq!((objects.as_slice(), part.damaged), (expected, damaged), "{cut}");
        }
    }

    #[test]
    fn writers_of_two_handles_do_not_lose_or_mix_lines() {
        let folder = Folder::new("writers");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let files = folder.files(64 << 10);
                scope.spawn(move || {
                    for number in 0..50 {
                        files.append(&[&line(&format!("{writer}-{number}"))]).unwrap();
                    }
                });
            }
        });
        let mut all = objects(&folder.files(64 << 10));
        all.sort();
        let mut expected: Vec<String> =
            (0..4).flat_map(|w| (0..50).map(move |n| format!("{w}-{n}"))).collect();
        expected.sort();
        assert_eq!(all, expected);
    }

    #[test]
    fn lock_that_is_not_released_is_an_error() {
        let folder = Folder::new("locked");
        let files = folder.files(1 << 20);
        files.append(&[&line("a")]).unwrap();
        let held = File::open(folder.0.join("audit/00000001.jsonl")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = files.append(&[&line("b")]).unwrap_err();
        assert!(error.to_string().contains("locked"), "{error}");
        drop(held);
        files.append(&[&line("c")]).unwrap();
        assert_eq!(objects(&files), ["a", "c"]);
    }
}
