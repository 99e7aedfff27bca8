//! Reading a file that must be a regular one: a FIFO, a socket or a device in its place is an
//! error, and never waited for.

use std::fs::{FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of the largest file that is read.
const LARGEST: u64 = 256 << 20;

/// The text of a regular file.
///
/// # Errors
/// What the system says; that it is no regular file; that it is too large or no UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    // Before it is opened: opening a device may have effects of its own.
    check(path)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    regular(&about)?;
    if about.len() > LARGEST {
        return Err(too_large());
    }
    let mut text = String::new();
    // It may grow while it is read.
    let length = file.take(LARGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(too_large());
    }
    Ok(text)
}

/// Whether there is a regular file.
///
/// # Errors
/// What the system says; that it is no regular file.
pub fn check(path: &Path) -> io::Result<()> {
    regular(&std::fs::metadata(path)?)
}

fn regular(about: &Metadata) -> io::Result<()> {
    if about.is_file() {
        return Ok(());
    }
    let wrong = format!("it is {}, not a regular file", kind(about.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
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
    let wrong = format!("it has more than {LARGEST} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, wrong)
}
