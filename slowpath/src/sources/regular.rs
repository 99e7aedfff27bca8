//! Reads regular files only: a FIFO, a socket or a device is an error and never blocks.

use std::fs::{FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Maximum size of a file in bytes (256 MiB).
const MAX_BYTES: u64 = 256 << 20;

/// Returns the text of a regular file.
///
/// # Errors
/// Fails on I/O errors, and if the file is not regular, too large, or not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    // Checked before the file is opened, because opening a device may have side effects.
    check(path)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    if metadata.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut text = String::new();
    // The file may grow while it is read.
    let length = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_BYTES {
        return Err(too_large());
    }
    Ok(text)
}

/// Returns an error unless there is a regular file at `path`.
///
/// # Errors
/// Fails on I/O errors, and if the file is not regular.
pub fn check(path: &Path) -> io::Result<()> {
    regular(&std::fs::metadata(path)?)
}

/// Returns an error unless the metadata are those of a regular file.
fn regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let message = format!("it is {}, not a regular file", kind(metadata.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn kind(of: FileType) -> &'static str {
    match () {
        () if of.is_dir() => "a directory",
        () if of.is_fifo() => "a FIFO",
        () if of.is_socket() => "a socket",
        () if of.is_char_device() => "a character device",
        () if of.is_block_device() => "a block device",
        () => "something else",
    }
}

fn too_large() -> io::Error {
    let message = format!("it has more than {MAX_BYTES} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}
