//! A temporary file of a test.

use std::path::PathBuf;

/// The path of a file that is removed on drop.
pub struct TemporaryFile(pub PathBuf);

impl TemporaryFile {
    /// Returns a path for a file; the file is not created. `name` must be unique in the process.
    pub fn new(name: &str) -> TemporaryFile {
        let name = format!("weir-simulation-{}-{name}.json", std::process::id());
        TemporaryFile(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
