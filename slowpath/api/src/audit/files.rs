//! Files of the audit log: `audit/NUMBER.jsonl` in `control.state`, one entry per line, written by
//! slowpath and by commands of `weir`.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use events::line_files::{AppendError, LineFiles};

pub use events::line_files::Position;

use super::entry::Entry;

/// The files of an audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditFiles(LineFiles);

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
        AuditFiles(LineFiles::new(state.join("audit"), ".jsonl", max_bytes, 0o600))
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Appends lines, each with its line end, and returns when they are on disk.
    ///
    /// # Errors
    /// A system call failed, or another writer holds the lock for too long.
    pub fn append(&self, lines: &[&str]) -> Result<(), AppendError> {
        self.0.append(lines)
    }

    /// Returns the position after the last complete line.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn end(&self) -> io::Result<Position> {
        self.0.end()
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
        let (mut entries, mut damaged) = (Vec::new(), 0);
        let end = self.0.read(from, since, &mut |line| {
            match serde_json::from_slice::<Entry>(line) {
                Ok(entry) if selects(&entry) => entries.push(entry),
                Ok(_) => {}
                Err(_) => damaged += 1,
            }
            entries.len() < limit
        })?;
        Ok(Part { entries, damaged, next: end.next, is_end: end.is_last })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn entries_are_read_in_pages_and_damaged_lines_counted() {
        let state = std::env::temp_dir().join(format!("weir-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        std::fs::create_dir_all(&state).unwrap();
        let files = AuditFiles::new(&state, 1 << 20);
        let lines = ["a", "b", "c"].map(|object| Entry::offline("test", object).line());
        files.append(&[&lines[0], "torn\n", &lines[1], &lines[2]]).unwrap();
        let first = files.read(Position::default(), None, 1, |_| true).unwrap();
        assert_eq!((first.entries[0].object.as_str(), first.is_end), ("a", false));
        let second = files.read(first.next, None, 9, |entry| entry.object != "b").unwrap();
        assert_eq!((second.entries[0].object.as_str(), second.entries.len()), ("c", 1));
        assert_eq!((second.damaged, second.is_end), (1, true));
        assert_eq!(files.end().unwrap(), second.next);
        let mode = |path: &str| std::fs::metadata(state.join(path)).unwrap().mode() & 0o777;
        assert_eq!((mode("audit"), mode("audit/00000001.jsonl")), (0o700, 0o600));
        std::fs::remove_dir_all(&state).unwrap();
    }
}
