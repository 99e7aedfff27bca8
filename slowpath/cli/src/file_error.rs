//! Formats the errors of reading and writing files.

use std::io;
use std::path::Path;

/// Formats an error of the file at `path`.
pub fn text(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Formats an error like [`text`]. If permission was denied, adds the remedies: to run as root, or
/// `alternative`, an instruction that needs no permission for the file.
pub fn text_or(path: &Path, error: &io::Error, alternative: &str) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("; run weir as root, or {alternative}"),
        _ => String::new(),
    };
    text(path, error) + &remedy
}
