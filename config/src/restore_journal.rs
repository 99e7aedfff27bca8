//! Location of the journal that `weir restore` writes, beside the configuration file, while it
//! replaces files of the configuration.
//!
//! The files are replaced one after the other, so a process that is killed meanwhile leaves some
//! old and some new. As long as the journal exists, every program that reads the configuration
//! warns about that.

use std::path::{Path, PathBuf};

/// Directory of the journal and of copies of the replaced files.
const FOLDER: &str = ".weir-restore";
/// File name of the journal, which exists while files are being replaced, and after an
/// interruption.
pub const JOURNAL: &str = "journal.json";

/// Returns the directory for a configuration file.
pub fn folder(configuration: &Path) -> PathBuf {
    configuration.with_file_name(FOLDER)
}

/// Returns a warning if the files of this configuration are being replaced, or if that was
/// interrupted.
pub fn warning(configuration: &Path) -> Option<String> {
    let journal = folder(configuration).join(JOURNAL);
    journal.exists().then(|| {
        format!(
            "{}: a restore is replacing files of the configuration or was interrupted, so that \
             some may be old and some new; if none runs: `weir restore FILE` repeats it, \
             `weir restore --undo` puts the old files back",
            journal.display()
        )
    })
}
