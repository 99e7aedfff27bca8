//! A file of a test's own.

use std::path::PathBuf;

/// A path for a file that is removed in the end.
pub struct File(pub PathBuf);

impl File {
    /// One that differs by the process and a name, which each test of a process has for itself.
    pub fn new(name: &str) -> File {
        let name = format!("weir-simulation-{}-{name}.json", std::process::id());
        File(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
