//! The directory with the playground's files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tests::lab::{LabError, Result};

/// The directory: the process id of the lab, the commands to try, programs in `bin`, the clients'
/// results in `traffic`.
pub struct Home(PathBuf);

impl Home {
    /// Returns the directory at `path` without creating it. The path is made absolute, because the
    /// scripts in `bin` refer to it.
    pub fn new(path: PathBuf) -> Result<Home> {
        std::path::absolute(&path)
            .map(Home)
            .map_err(LabError::io(format!("the directory {}", path.display())))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of the lab's log. The log is beside the directory, so that it survives a
    /// failed start.
    pub fn log(&self) -> PathBuf {
        self.0.with_extension("log")
    }

    /// Creates the directory.
    pub fn create(&self) -> Result<()> {
        std::fs::create_dir_all(self.file("bin")).map_err(self.error("creating"))
    }

    /// Removes the directory, if it exists.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(self.error("removing")(e)),
            _ => Ok(()),
        }
    }

    /// Returns the content of a file in the directory.
    pub fn read(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        std::fs::read_to_string(&path).map_err(LabError::io(format!("reading {}", path.display())))
    }

    /// Writes a file atomically.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(LabError::io(format!("writing {}", path.display())))
    }

    /// Writes a shell script to `bin`.
    pub fn script(&self, name: &str, text: &str) -> Result<()> {
        self.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}\n"))?;
        let path = self.file("bin").join(name);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))
            .map_err(LabError::io(format!("permissions of {}", path.display())))
    }

    fn error(&self, what: &str) -> impl FnOnce(std::io::Error) -> LabError {
        LabError::io(format!("{what} {}", self.0.display()))
    }
}
