//! The few things that a store does with a disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
}
