//! Hint for operations that fail for lack of privileges.

use std::io;

/// Returns what to do if the error is a lack of privileges; empty for other errors.
pub(crate) fn root_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run slowpath as root",
        _ => "",
    }
}
