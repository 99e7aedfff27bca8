//! Replaces several files together: all of them, or none if one cannot be written.
//!
//! ```text
//!   begin    copies the old files to the journal's directory, writes the note, then stages the
//!            new files beside their paths
//!   replace  moves the new files to their paths
//!   commit   removes the note: from here on the new files count
//!   undo     puts the copies back and removes the note
//! ```
//! A process that is killed before the note exists or after it is gone leaves only files that no
//! program reads. In between, the next restore or `weir restore --undo` puts the old files back
//! first. Each step is durable before the next, so that this also holds when the machine crashes.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use config::atomic_file::{self, Access, Staged};
use config::restore_journal::{self, NOTE};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Permissions of the note and of the directory's files.
const PRIVATE: Access = Access { mode: 0o600, owner: None };

/// A new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Path of the file; not a symbolic link.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
    /// Its permissions.
    pub access: Access,
}

/// The note: what is being replaced.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// ID of the process, which is in the names of its temporary files.
    process: u32,
    files: Vec<Entry>,
}

/// A file that is being replaced.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: PathBuf,
    /// Number of the copy of the old file; `None` if there was no file.
    copy: Option<usize>,
}

/// The journal beside a configuration file. While it is open, no other process opens it.
pub struct Journal {
    folder: PathBuf,
    _lock: File,
}

/// Files that are staged, and replaced together.
pub struct Transaction<'j> {
    journal: &'j Journal,
    note: Note,
    staged: Vec<Staged>,
}

impl Journal {
    /// Opens the journal of a configuration file, whose directory must exist.
    ///
    /// # Errors
    /// Describes why it cannot be opened.
    pub fn open(configuration: &Path) -> Result<Journal, String> {
        let folder = restore_journal::folder(configuration);
        let parent = parent(&folder);
        let failed = |e: io::Error| format!("{}: {e}", parent.display());
        let lock = File::open(parent).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => failed(error),
            TryLockError::WouldBlock => {
                format!("{}: another `weir restore` is running; wait for it", parent.display())
            }
        })?;
        Ok(Journal { folder, _lock: lock })
    }

    /// Puts the old files back if a replacement was interrupted, and returns their paths. Returns
    /// `None` if none was.
    ///
    /// # Errors
    /// Describes which file cannot be written; the journal stays then.
    pub fn undo_interrupted(&self) -> Result<Option<Vec<PathBuf>>, String> {
        let path = self.folder.join(NOTE);
        let text = match std::fs::read_to_string(&path) {
            // Copies without a note are left by a process that was killed before or after.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                return self.clear().map(|()| None).map_err(|e| failed(&self.folder, &e));
            }
            text => text.map_err(|e| failed(&path, &e))?,
        };
        let note: Note = serde_json::from_str(&text).map_err(|e| {
            format!("{}: {e}; a version of Weir that knows it has to undo it", path.display())
        })?;
        self.undo(&note)?;
        Ok(Some(note.files.into_iter().map(|entry| entry.path).collect()))
    }

    /// Writes the note and stages the files. After an error nothing has changed.
    ///
    /// # Errors
    /// Describes which file cannot be written.
    pub fn begin(&self, files: &[NewFile]) -> Result<Transaction<'_>, String> {
        let note = match self.note(files) {
            Ok(note) => note,
            Err(error) => {
                // The error to report is the first one; the next run clears what is left.
                let _ = remove(&self.folder.join(NOTE)).and_then(|()| self.clear());
                return Err(error);
            }
        };
        let mut transaction = Transaction { journal: self, note, staged: Vec::new() };
        for file in files {
            match atomic_file::stage(&file.path, file.text.as_bytes(), file.access) {
                Ok(staged) => transaction.staged.push(staged),
                Err(error) => return Err(transaction.undone(failed(&file.path, &error))),
            }
        }
        Ok(transaction)
    }

    /// Copies the old files and writes the note, durably.
    fn note(&self, files: &[NewFile]) -> Result<Note, String> {
        let in_folder = |e: io::Error| failed(&self.folder, &e);
        create_folder(&self.folder).map_err(in_folder)?;
        let mut note = Note { process: std::process::id(), files: Vec::new() };
        for (number, file) in files.iter().enumerate() {
            let copy = self.copy(number, &file.path).map_err(|e| failed(&file.path, &e))?;
            note.files.push(Entry { path: file.path.clone(), copy });
        }
        let path = self.folder.join(NOTE);
        let text = serde_json::to_vec(&note).map_err(|e| in_folder(e.into()))?;
        atomic_file::stage(&path, &text, PRIVATE)
            .and_then(Staged::replace)
            .and_then(|()| Staged::sync_folder(&path))
            .and_then(|()| Staged::sync_folder(&self.folder))
            .map_err(in_folder)?;
        Ok(note)
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

    /// Puts the copies back and removes the note. May be repeated after an interruption.
    fn undo(&self, note: &Note) -> Result<(), String> {
        for Entry { path, copy } in &note.files {
            let undone = match copy {
                Some(number) => self.put_back(*number, path),
                None => remove(path),
            };
            undone.map_err(|e| failed(path, &e))?;
            if let Some(temporary) = atomic_file::temporary(path, note.process) {
                remove(&temporary).map_err(|e| failed(&temporary, &e))?;
            }
        }
        self.end(note).map_err(|e| failed(&self.folder, &e))
    }

    fn put_back(&self, number: usize, path: &Path) -> io::Result<()> {
        let copy = self.folder.join(number.to_string());
        let (contents, access) = (std::fs::read(&copy)?, Access::of(&copy)?);
        // A file that was not replaced yet stays as it is, with its time of change.
        if std::fs::read(path).is_ok_and(|same| same == contents) {
            return Ok(());
        }
        atomic_file::stage(path, &contents, access)?.replace()
    }

    /// Removes the note, after which the files at their paths count, and then the copies.
    fn end(&self, note: &Note) -> io::Result<()> {
        for Entry { path, .. } in &note.files {
            match Staged::sync_folder(path) {
                // Without a directory there is no file in it that could be lost.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                synced => synced?,
            }
        }
        let path = self.folder.join(NOTE);
        remove(&path)?;
        Staged::sync_folder(&path)?;
        self.clear()
    }

    /// Removes the directory with what is in it, but not a note.
    fn clear(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if !path.ends_with(NOTE) {
                std::fs::remove_file(path)?;
            }
        }
        std::fs::remove_dir(&self.folder)
    }
}

impl Transaction<'_> {
    /// Moves the new files to their paths. After an error the old ones are back.
    ///
    /// # Errors
    /// Describes which file cannot be replaced.
    pub fn replace(&mut self) -> Result<(), String> {
        let paths = self.note.files.iter().map(|entry| &entry.path);
        for (staged, path) in std::mem::take(&mut self.staged).into_iter().zip(paths) {
            if let Err(error) = staged.replace() {
                return Err(self.undone(failed(path, &error)));
            }
        }
        Ok(())
    }

    /// Ends the transaction: the new files count.
    ///
    /// # Errors
    /// Describes why the journal cannot be removed; the old files are back then.
    pub fn commit(self) -> Result<(), String> {
        let ended = self.journal.end(&self.note);
        ended.map_err(|e| self.undone(failed(&self.journal.folder, &e)))
    }

    /// Puts the old files back, and returns the error with what came of that.
    pub fn undone(&self, error: String) -> String {
        match self.journal.undo(&self.note) {
            Ok(()) => error,
            Err(why) => format!(
                "{error}; the old files could not be put back ({why}): correct this, and type \
                 `weir restore --undo`"
            ),
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Removes a file that may be missing.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Creates a directory with the owner of the directory around it. Only owner and group may enter
/// it: the group of `/etc/weir` is that of the services, which look for the note.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o750).create(path)?;
    let (user, group) = Access::of(parent(path))?.owner.unzip();
    chown(path, user, group)
}

/// Returns the directory of a file.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
