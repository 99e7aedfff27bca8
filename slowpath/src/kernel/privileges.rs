//! What to do where the kernel refuses for want of rights.

use std::io;

/// What to type where the kernel refused for want of rights.
pub(crate) fn root_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run slowpath as root",
        _ => "",
    }
}
