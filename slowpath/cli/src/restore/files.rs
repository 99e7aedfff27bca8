//! Replaces several files together: all of them, or none if one cannot be written.
//!
//! ```text
//!   begin    copies the old files to the journal's directory, writes the note, creates
//!            directories, then stages the new files beside their paths
//!   replace  moves the new files to their paths
//!   commit   removes the note, after which the new files are never undone
//!   undo     puts the copies back and removes the note
//! ```
//! The note is a file of the journal, which lists the files that are being replaced. A process that
//! is killed before the note exists or after it is gone leaves only files that no program reads. In
//! between, the next restore or `weir restore --undo` puts the old files back first. Each step is
//! durable before the next, so that this also holds when the machine crashes.
//!
//! The note has a checksum of each new file. A file that is neither the old nor the new one was
//! changed by another program since, and is overwritten only with `--force`.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use config::atomic_file::{self, Access, Staged, create_folder, folder_of, sync_folder};
use config::restore_journal::{self, JOURNAL};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::archive::checksum;
use crate::file_error::text as failed;

#[cfg(test)]
mod tests;

/// Permissions of the note.
const PRIVATE: Access = Access { mode: 0o600, owner: None };
/// Mode of the journal's directory. Only owner and group may enter it: the group of `/etc/weir` is
/// that of the services, which look for the note.
const FOLDER_MODE: u32 = 0o750;

/// State of the files after an undo that failed, and what to do.
const MIXED: &str = "some files of the configuration may be new and some old: correct the cause, \
                     then put the old files back with `weir restore --undo`, or repeat the restore";

/// A new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Path of the file; not a symbolic link.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
    /// Its permissions.
    pub access: Access,
    /// Whether a file that exists is an error, instead of being replaced.
    pub is_created: bool,
}

/// A directory to create, in a directory that exists or is created before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFolder {
    /// Path of the directory. Its owner is that of the directory around it.
    pub path: PathBuf,
    /// Its mode.
    pub mode: u32,
}

/// The note: what is being replaced.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// ID of the process, which is in the names of its temporary files.
    process: u32,
    files: Vec<Entry>,
    /// Directories that did not exist before, in the order of their creation.
    folders: Vec<PathBuf>,
}

/// A file that is being replaced.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Absolute path of the file.
    path: PathBuf,
    /// Number of the copy of the old file; `None` if there was no file.
    copy: Option<usize>,
    /// SHA-256 of the new contents.
    sha256: String,
    /// Whether the file is created only if there is none. A file with other contents was then
    /// created by another program, and an undo keeps it.
    is_created: bool,
}

/// The journal beside a configuration file. While it is open, no other process opens it.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    _lock: File,
}

/// What was undone.
#[derive(PartialEq, Eq, Debug)]
pub struct Undone {
    /// The files that are as before; `None` if no replacement was interrupted.
    pub files: Option<Vec<PathBuf>>,
    /// Warning that the journal's directory could not be removed.
    pub warning: Option<String>,
}

/// Files that are staged, and replaced together.
pub struct Transaction<'j> {
    journal: &'j Journal,
    note: Note,
    staged: Vec<(Staged, bool)>,
}

impl Journal {
    /// Opens the journal of a configuration file, whose directory must exist.
    ///
    /// # Errors
    /// Describes why it cannot be opened.
    pub fn open(configuration: &Path) -> Result<Journal, String> {
        let configuration = absolute(configuration)?;
        let folder = restore_journal::folder(&configuration);
        let parent = folder_of(&folder);
        let lock = File::open(parent).map_err(|e| failed(parent, &e))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => failed(parent, &error),
            TryLockError::WouldBlock => {
                format!("{}: another `weir restore` is running; wait for it", parent.display())
            }
        })?;
        Ok(Journal { folder, _lock: lock })
    }

    /// Puts the old files back if a replacement was interrupted. With `force` also those that were
    /// changed since.
    ///
    /// # Errors
    /// Describes which file was changed, or cannot be written; the journal stays then.
    pub fn undo_interrupted(&self, force: bool) -> Result<Undone, String> {
        let path = self.folder.join(JOURNAL);
        let text = match std::fs::read_to_string(&path) {
            // Copies without a note are those of a process that was killed before it wrote the note
            // or after it removed it.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                return Ok(Undone {
                    files: None,
                    warning: self.clear().err().map(|e| self.left(&e)),
                });
            }
            text => text.map_err(|e| failed(&path, &e))?,
        };
        let note: Note = serde_json::from_str(&text).map_err(|e| {
            format!("{}: {e}; undo it with the version of Weir that wrote it", path.display())
        })?;
        if !force {
            self.check_unchanged(&note)?;
        }
        let warning = self.undo(&note).map_err(|e| format!("{e}; {MIXED}"))?;
        let files = note.files.into_iter().map(|entry| entry.path).collect();
        Ok(Undone { files: Some(files), warning })
    }

    /// Writes the note, creates the directories and stages the files. After an error nothing has
    /// changed, unless it is [`Failure::Incomplete`].
    ///
    /// # Errors
    /// Describes which file cannot be written.
    pub fn begin(
        &self,
        folders: &[NewFolder],
        files: &[NewFile],
    ) -> Result<Transaction<'_>, Failure> {
        let note = match self.note(folders, files) {
            Ok(note) => note,
            Err(error) => {
                // The error to report is the first one; the next run clears what is left.
                let _ = remove(&self.folder.join(JOURNAL)).and_then(|()| self.clear());
                return Err(Failure::Failed(error));
            }
        };
        let mut transaction = Transaction { journal: self, note, staged: Vec::new() };
        match transaction.stage(folders, files) {
            Ok(()) => Ok(transaction),
            Err(error) => Err(transaction.undone(error)),
        }
    }

    /// Copies the old files and writes the note, durably.
    fn note(&self, folders: &[NewFolder], files: &[NewFile]) -> Result<Note, String> {
        let in_folder = |e: io::Error| failed(&self.folder, &e);
        self.create_folder().map_err(in_folder)?;
        let folders = folders.iter().map(|folder| absolute(&folder.path));
        let folders = folders.collect::<Result<_, _>>()?;
        let mut note = Note { process: std::process::id(), files: Vec::new(), folders };
        for (number, file) in files.iter().enumerate() {
            let copy = self.copy(number, &file.path).map_err(|e| failed(&file.path, &e))?;
            let sha256 = checksum(file.text.as_bytes());
            let (path, is_created) = (absolute(&file.path)?, file.is_created);
            note.files.push(Entry { path, copy, sha256, is_created });
        }
        let path = self.folder.join(JOURNAL);
        let text = serde_json::to_vec(&note).map_err(|e| in_folder(e.into()))?;
        atomic_file::stage(&path, &text, PRIVATE)
            .and_then(Staged::replace)
            .and_then(|()| sync_folder(&path))
            .map_err(in_folder)?;
        Ok(note)
    }

    /// Creates the journal's directory. One that could not be removed before is used again.
    fn create_folder(&self) -> io::Result<()> {
        let access = Access { mode: FOLDER_MODE, ..Access::of(folder_of(&self.folder))? };
        match create_folder(&self.folder, access) {
            Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {
                match self.folder.symlink_metadata()?.is_dir() {
                    true => atomic_file::set_folder_access(&self.folder, access),
                    false => Err(exists),
                }
            }
            created => created,
        }
    }

    /// Copies a file with its permissions, and returns the number of the copy if there is a file.
    fn copy(&self, number: usize, path: &Path) -> io::Result<Option<usize>> {
        let contents = match std::fs::read(path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
            contents => contents?,
        };
        let copy = self.folder.join(number.to_string());
        atomic_file::stage(&copy, &contents, Access::of(path)?)?.replace()?;
        Ok(Some(number))
    }

    /// Returns an error if an undo would discard changes that others made since.
    fn check_unchanged(&self, note: &Note) -> Result<(), String> {
        let mut changed = Vec::new();
        for entry in &note.files {
            let is_changed = self.is_changed(entry).map_err(|e| failed(&entry.path, &e))?;
            if is_changed && !entry.is_created {
                changed.push(entry.path.display().to_string());
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{}: changed since the interrupted restore, so that nothing was put back; keep a copy \
             of the changes you need, then discard them with `weir restore --undo --force`",
            changed.join(", ")
        ))
    }

    /// Puts the copies back and removes the note. May be repeated after an interruption. Returns a
    /// warning if the journal's directory could not be removed.
    fn undo(&self, note: &Note) -> Result<Option<String>, String> {
        for entry in &note.files {
            let path = &entry.path;
            self.undo_one(entry).map_err(|e| failed(path, &e))?;
            if let Some(temporary) = atomic_file::temporary(path, note.process) {
                remove(&temporary).map_err(|e| failed(&temporary, &e))?;
            }
        }
        for folder in note.folders.iter().rev() {
            match std::fs::remove_dir(folder) {
                // Another program has created files in it.
                Err(used) if used.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => missing_is_fine(removed).map_err(|e| failed(folder, &e))?,
            }
        }
        sync(note)?;
        self.end()
    }

    /// Returns whether a file is neither the old nor the new one.
    fn is_changed(&self, entry: &Entry) -> io::Result<bool> {
        let contents = match std::fs::read(&entry.path) {
            // No contents are lost if the old file is put back. The path may have become a
            // directory, which the undo reports.
            Err(gone) if is_missing(&gone) => return Ok(false),
            contents => contents?,
        };
        let old = entry.copy.map(|number| std::fs::read(self.copy_path(number))).transpose()?;
        Ok(checksum(&contents) != entry.sha256 && old.is_none_or(|old| old != contents))
    }

    fn undo_one(&self, entry: &Entry) -> io::Result<()> {
        match entry.copy {
            Some(number) => self.put_back(number, &entry.path),
            None if entry.is_created && self.is_changed(entry)? => Ok(()),
            None => remove(&entry.path),
        }
    }

    fn put_back(&self, number: usize, path: &Path) -> io::Result<()> {
        let copy = self.copy_path(number);
        let (contents, access) = (std::fs::read(&copy)?, Access::of(&copy)?);
        // A file that was not replaced yet stays as it is, with its time of change.
        if std::fs::read(path).is_ok_and(|same| same == contents) {
            return Ok(());
        }
        atomic_file::stage(path, &contents, access)?.replace()
    }

    fn copy_path(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Removes the note, after which the files at their paths are final, and then the copies.
    /// Returns a warning if only the latter fails.
    fn end(&self) -> Result<Option<String>, String> {
        let path = self.folder.join(JOURNAL);
        remove(&path).map_err(|e| failed(&path, &e))?;
        // Without the copies, a note that is back after a power failure could not be undone.
        let cleared = sync_folder(&path).and_then(|()| self.clear());
        Ok(cleared.err().map(|e| self.left(&e)))
    }

    fn left(&self, error: &io::Error) -> String {
        format!(
            "{}: {error}; the directory is no longer needed and could not be removed; the next \
             restore tries again",
            self.folder.display()
        )
    }

    /// Removes the journal's directory with its files. Fails if there is a note.
    fn clear(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if !path.ends_with(JOURNAL) {
                std::fs::remove_file(path)?;
            }
        }
        std::fs::remove_dir(&self.folder)
    }
}

impl Transaction<'_> {
    fn stage(&mut self, folders: &[NewFolder], files: &[NewFile]) -> Result<(), String> {
        for folder in folders {
            let in_folder = |e: io::Error| failed(&folder.path, &e);
            let owner = Access::of(folder_of(&folder.path)).map_err(in_folder)?.owner;
            match create_folder(&folder.path, Access { mode: folder.mode, owner }) {
                // Another program has created it meanwhile.
                Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {}
                created => created.map_err(in_folder)?,
            }
        }
        for file in files {
            let staged = atomic_file::stage(&file.path, file.text.as_bytes(), file.access);
            self.staged.push((staged.map_err(|e| failed(&file.path, &e))?, file.is_created));
        }
        Ok(())
    }

    /// Moves the new files to their paths, durably. After an error the old ones are back, unless it
    /// is [`Failure::Incomplete`].
    ///
    /// # Errors
    /// Describes which file cannot be replaced.
    pub fn replace(&mut self) -> Result<(), Failure> {
        let paths = self.note.files.iter().map(|entry| &entry.path);
        for ((staged, is_created), path) in std::mem::take(&mut self.staged).into_iter().zip(paths)
        {
            let moved = if is_created { staged.create() } else { staged.replace() };
            if let Err(error) = moved {
                let exists = is_created && error.kind() == io::ErrorKind::AlreadyExists;
                let remedy =
                    if exists { "; another program created it: repeat the restore" } else { "" };
                return Err(self.undone(failed(path, &error) + remedy));
            }
        }
        sync(&self.note).map_err(|error| self.undone(error))
    }

    /// Ends the transaction: the new files are final. Returns a warning if the journal's directory
    /// could not be removed.
    ///
    /// # Errors
    /// Describes why the note cannot be removed; the old files are back then, unless it is
    /// [`Failure::Incomplete`].
    pub fn commit(self) -> Result<Option<String>, Failure> {
        self.journal.end().map_err(|error| self.undone(error))
    }

    /// Puts the old files back after an error. Returns [`Failure::Failed`], or
    /// [`Failure::Incomplete`] if that fails, too.
    pub fn undone(&self, error: String) -> Failure {
        let undone = self.journal.check_unchanged(&self.note);
        match undone.and_then(|()| self.journal.undo(&self.note)) {
            Ok(_) => Failure::Failed(error),
            Err(why) => Failure::Incomplete(format!(
                "{error}; then the old files could not be put back: {why}; {MIXED}"
            )),
        }
    }
}

/// Makes the moves of all files durable.
fn sync(note: &Note) -> Result<(), String> {
    let folders: BTreeSet<&Path> = note.files.iter().map(|entry| folder_of(&entry.path)).collect();
    for folder in folders {
        // A directory that was removed has no file whose move could be lost.
        let synced = missing_is_fine(File::open(folder).and_then(|folder| folder.sync_all()));
        synced.map_err(|e| failed(folder, &e))?;
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| failed(path, &e))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
    )
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a file that may be missing.
fn remove(path: &Path) -> io::Result<()> {
    missing_is_fine(std::fs::remove_file(path))
}
