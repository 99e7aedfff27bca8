//! Where `weir restore` notes that it is replacing files of the configuration, beside the
//! configuration file.
//!
//! The files change one after the other, so a process that is killed meanwhile leaves some old and
//! some new. The note says so, to every program that reads the configuration.

use std::path::{Path, PathBuf};

/// Directory of the note and of copies of the replaced files.
const FOLDER: &str = ".weir-restore";
/// The note: it exists while files are being replaced, and after an interruption.
pub const NOTE: &str = "journal.json";

/// Returns the directory for a configuration file.
pub fn folder(configuration: &Path) -> PathBuf {
    configuration.with_file_name(FOLDER)
}

/// Returns a warning if the files of this configuration are being replaced, or if that was
/// interrupted.
pub fn warning(configuration: &Path) -> Option<String> {
    let note = folder(configuration).join(NOTE);
    note.exists().then(|| {
        format!(
            "{}: a restore is replacing files of the configuration or was interrupted, so that \
             some may be old and some new; if none runs: `weir restore FILE` repeats it, \
             `weir restore --undo` puts the old files back",
            note.display()
        )
    })
}
