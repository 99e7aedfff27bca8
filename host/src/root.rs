//! The directory below which files of the machine are read and written: `/`, or in tests a
//! directory with files like those in `/sys`, `/proc`, `/etc` and `/run`.

use std::path::{Path, PathBuf};

/// The directory below which `/sys`, `/proc`, `/etc` and the other files of a machine are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// Returns the root at this path; for the machine itself, use [`Root::default`].
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Returns the path of a file, given without a leading slash: `sys/class/net`.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Returns the trimmed contents of a file, or `None` if it is missing, empty or cannot be read:
    /// the kernel returns an error for attributes without a value, such as the speed of an
    /// interface that is down.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Returns the last part of a symbolic link's target, or `None` if there is no such link.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.join(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Returns the sorted names in a directory; empty if it is missing.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns whether a file or directory exists.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.join(path).exists()
    }
}
