//! Errors of files, as text.

use std::io;
use std::path::Path;

/// Formats an error of the file at `path`.
pub fn text(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Formats an error like [`text`]. If the permissions are too few, it names what to do:
/// `alternative` is what works without them.
pub fn text_or(path: &Path, error: &io::Error, alternative: &str) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("; run weir as root, or {alternative}"),
        _ => String::new(),
    };
    text(path, error) + &remedy
}
