//! A temporary file of a test.

use std::path::PathBuf;

/// Path of a file that is removed on drop.
pub struct File(pub PathBuf);

impl File {
    /// Returns a path that contains the process id and a name, which must be unique in the process.
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
