//! Disk operations that a store needs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::rfc3339;

/// File name of the log, which has one record for each group of batches.
pub(super) const LOG: &str = "log";

/// File name of the snapshot, which has a record for each object and an end record.
pub(super) const SNAPSHOT: &str = "snapshot";

/// File name of a snapshot that is being written; renamed to [`SNAPSHOT`] when it is complete.
pub(super) const UNFINISHED: &str = "snapshot.new";

/// Maximum number of copies of one file with the same label; older ones are removed.
const COPIES_MAX: usize = 5;

/// Directory with the files of a store. A write is durable only after the next sync; until then, a
/// crash may lose any part of it.
pub trait Disk {
    /// Returns the contents of a file; `None` if it does not exist.
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>>;

    /// Appends to a file, creating it if needed. After an error any part may have been written.
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;

    /// Truncates a file, creating it if needed.
    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()>;

    /// Makes earlier writes and truncations of a file durable.
    fn sync(&mut self, file: &str) -> io::Result<()>;

    /// Replaces the file `to` by `from`, atomically. After a crash before [`Disk::sync_folder`],
    /// the files may have their old names.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Makes creations and renames of files durable.
    fn sync_folder(&mut self) -> io::Result<()>;

    /// Copies a file within the directory, durably, and returns the copy's name, which contains
    /// `label`. Older copies of the file with the same label may be removed.
    fn copy(&mut self, file: &str, label: &str) -> io::Result<String> {
        let bytes = self.read(file)?.unwrap_or_default();
        let name = format!("{file}.{label}");
        self.truncate(&name, 0)?;
        self.append(&name, &bytes)?;
        self.sync(&name)?;
        self.sync_folder()?;
        Ok(name)
    }

    /// Returns the path of a file, for messages.
    fn path(&self, file: &str) -> String {
        file.to_owned()
    }
}

/// Disk that is chosen at run time.
pub type AnyDisk = Box<dyn Disk + Send>;

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        (**self).read(file)
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        (**self).append(file, bytes)
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        (**self).truncate(file, len)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        (**self).sync(file)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        (**self).rename(from, to)
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        (**self).sync_folder()
    }

    fn copy(&mut self, file: &str, label: &str) -> io::Result<String> {
        (**self).copy(file, label)
    }

    fn path(&self, file: &str) -> String {
        (**self).path(file)
    }
}

/// Disk that stores nothing: writes succeed, and no file exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDisk;

impl Disk for NullDisk {
    fn read(&mut self, _: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn append(&mut self, _: &str, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Directory in a file system, locked by one process at a time.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The open directory, for its lock and for syncing its entries.
    folder: File,
}

impl Folder {
    /// Creates the directory if needed, and locks it.
    ///
    /// # Errors
    /// Returns the error of the system, or one of kind `WouldBlock` if another process holds the
    /// lock.
    pub fn open(path: &Path) -> io::Result<Folder> {
        std::fs::create_dir_all(path)?;
        Folder::lock(path, File::try_lock)
    }

    /// Opens the directory for reading only. Its shared lock excludes processes that write.
    ///
    /// # Errors
    /// Returns the errors of [`Folder::open`], and `NotFound` if there is no directory.
    pub(super) fn open_to_read(path: &Path) -> io::Result<Folder> {
        Folder::lock(path, File::try_lock_shared)
    }

    fn lock(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> io::Result<Folder> {
        let folder = File::open(path)?;
        lock(&folder).map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is in use by another process; stop it first", path.display()),
            ),
        })?;
        Ok(Folder { path: path.to_owned(), folder })
    }

    /// Opens a file, creating it if needed. `access` is [`OpenOptions::append`] or
    /// [`OpenOptions::write`].
    fn open_file(
        &self,
        name: &str,
        access: fn(&mut OpenOptions, bool) -> &mut OpenOptions,
    ) -> io::Result<File> {
        // Only the owner may read the file, because objects may contain secrets.
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600);
        access(&mut options, true);
        options.open(self.path.join(name))
    }

    /// Removes all but [`COPIES_MAX`] copies whose names begin with `prefix`: the one with the name
    /// `new`, which has just been written, and the newest of the others. The names sort by the time
    /// in them, which is that of the copied file: a file restored from a backup may be old.
    fn remove_old_copies(&self, prefix: &str, new: &str) -> io::Result<()> {
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != new && name.to_string_lossy().starts_with(prefix) {
                copies.push(entry.path());
            }
        }
        copies.sort();
        let surplus = copies.len().saturating_sub(COPIES_MAX - 1);
        copies.iter().take(surplus).try_for_each(std::fs::remove_file)
    }
}

impl Disk for Folder {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(file)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.open_file(file, OpenOptions::append)?.write_all(bytes)
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        self.open_file(file, OpenOptions::write)?.set_len(len)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.open_file(file, OpenOptions::append)?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.folder.sync_all()
    }

    /// Names the copy after the file's modification time (UTC), and writes none if a copy with this
    /// time and the same contents exists. A damaged file, which is not modified, thus has one copy
    /// however often slowpath is restarted.
    fn copy(&mut self, file: &str, label: &str) -> io::Result<String> {
        let from = self.path.join(file);
        let changed =
            rfc3339::format(std::fs::metadata(&from)?.modified()?).replace([':', '-'], "");
        let bytes = std::fs::read(from)?;
        let first = format!("{file}.{label}-{changed}");
        let others = (1..).map(|number| format!("{first}-{number}"));
        for name in std::iter::once(first.clone()).chain(others) {
            let path = self.path.join(&name);
            match std::fs::read(&path) {
                Ok(same) if same == bytes => return Ok(name),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            if let Err(error) = self.append(&name, &bytes).and_then(|()| self.sync(&name)) {
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
            self.sync_folder()?;
            self.remove_old_copies(&format!("{file}.{label}-"), &name)?;
            return Ok(name);
        }
        Ok(first)
    }

    fn path(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }
}
