//! The few things that a store does with a disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::rfc3339;

/// Changes, one record a group of batches.
pub(super) const LOG: &str = "log";

/// All objects, one record each, and one that says that they are all.
pub(super) const SNAPSHOT: &str = "snapshot";

/// A snapshot that is being written.
pub(super) const UNFINISHED: &str = "snapshot.new";
/// Copies of one file with one label that are kept.
const COPIES: usize = 5;

/// A folder with a few files. What is written is kept for sure only after the sync that follows;
/// before, any part of it may be lost.
pub trait Disk {
    /// The whole file; none where there is none.
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes at its end; makes it where there is none. On an error any part may be there.
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;

    /// Cuts it; makes it where there is none.
    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()>;

    /// What was written and cut is kept from now on.
    fn sync(&mut self, file: &str) -> io::Result<()>;

    /// Puts a file in the place of another, at once or, killed before [`Disk::sync_folder`], not.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Names are kept from now on.
    fn sync_folder(&mut self) -> io::Result<()>;

    /// Copies a file beside itself, on disk before this returns, and returns the copy's name. Older
    /// copies with the same label go.
    fn copy(&mut self, file: &str, label: &str) -> io::Result<String> {
        let bytes = self.read(file)?.unwrap_or_default();
        let name = format!("{file}.{label}");
        self.truncate(&name, 0)?;
        self.append(&name, &bytes)?;
        self.sync(&name)?;
        self.sync_folder()?;
        Ok(name)
    }

    /// The file's path, for people.
    fn path(&self, file: &str) -> String {
        file.to_owned()
    }
}

/// A disk that is chosen at run time.
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

/// For whoever wants nothing kept: it takes everything and has nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Disk for Nowhere {
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

/// A real folder, held by one process at a time.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder itself: its lock, and its names' sync.
    folder: File,
}

impl Folder {
    /// Makes the folder where there is none, and takes it.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where another process has it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        std::fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        folder.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("another process has {}: stop it first", path.display()),
            ),
        })?;
        Ok(Folder { path: path.to_owned(), folder })
    }

    fn file(&self, name: &str, append: bool) -> io::Result<File> {
        // Objects may carry what is nobody else's to read.
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600);
        if append {
            options.append(true)
        } else {
            options.write(true)
        };
        options.open(self.path.join(name))
    }

    /// Removes all but the newest copies, whose names sort by time.
    fn forget_copies(&self, prefix: &str) -> io::Result<()> {
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                copies.push(entry.path());
            }
        }
        copies.sort();
        let surplus = copies.len().saturating_sub(COPIES);
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
        self.file(file, true)?.write_all(bytes)
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        self.file(file, false)?.set_len(len)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.file(file, true)?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.folder.sync_all()
    }

    /// Named after the time of the file's last change, so that a file that is copied at each of
    /// several starts is copied once.
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
            self.forget_copies(&format!("{file}.{label}-"))?;
            return Ok(name);
        }
        Ok(first)
    }

    fn path(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }
}
