//! Small files that are read, replaced and removed as a whole.

use std::fs;
use std::io;
use std::path::Path;

pub(crate) use config::atomic_file::{read, replace};

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
