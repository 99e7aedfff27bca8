//! Reads secret and certificate files: regular files only, of bounded size, without blocking.
//!
//! slowpath may read files that API clients may not, and some paths come from objects written by
//! API clients and Kubernetes. Such a path is resolved below a directory that the operator
//! configures ([`read_below`]); symbolic links are followed if they stay in it, as the `..data`
//! links of Kubernetes' and systemd's mounts do. A path from the configuration file may be anywhere
//! ([`read`]).
//!
//! The error names the cause and is meant for the log. Responses to a client that chose the path
//! must not depend on the cause: otherwise the client could probe which files exist.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Kind of content, which limits the size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretKind {
    /// TCP-MD5 key, or another short secret: 80 bytes, the kernel's maximum for TCP-MD5 keys, not
    /// counting the line end.
    Md5Key,
    /// Bearer token: 4 KiB.
    Token,
    /// List of hashes of tokens: 1 MiB.
    Tokens,
    /// PEM file: 1 MiB.
    Pem,
}

impl SecretKind {
    /// Returns the maximum size in bytes, without a final line end.
    pub fn limit(self) -> usize {
        match self {
            SecretKind::Md5Key => 80,
            SecretKind::Token => 4 << 10,
            SecretKind::Tokens | SecretKind::Pem => 1 << 20,
        }
    }
}

/// Error of reading a secret file, for the operator's log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
pub struct SecretError {
    /// Path of the file as given.
    pub path: PathBuf,
    /// Cause of the error.
    pub cause: Cause,
}

/// Cause of an error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// The path is absolute and outside the directory, or leaves it by `..` or a link.
    #[error("is not in {}; move it there, and link only to files in it", .0.display())]
    Outside(PathBuf),
    /// The operating system failed to open or read the file.
    #[error("{0}")]
    System(String),
    /// The path is a directory, device, FIFO or socket.
    #[error("is not a regular file; write the secret into one")]
    NotRegular,
    /// The file is longer than its kind allows.
    #[error("is longer than the maximum of {0} bytes")]
    TooLong(usize),
}

/// Maximum number of retries of openat2 after a concurrent rename (EAGAIN, openat2(2)).
const MAX_RETRIES: usize = 16;
/// Flags with which secrets are opened. `NONBLOCK`: the path may be a FIFO without a writer.
const OPEN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Reads a file that the configuration names. The result includes the final line end, if there is
/// one.
///
/// # Errors
/// Returns an error if the file is not a regular file, is too long, or cannot be read.
pub fn read(path: &Path, kind: SecretKind) -> Result<Vec<u8>, SecretError> {
    let opened = openat(CWD, path, OPEN_FLAGS, Mode::empty());
    read_content(opened, kind).map_err(|cause| SecretError { path: path.to_owned(), cause })
}

/// Reads a file that an object names, like [`read`]. `path` is relative to `folder`, or absolute
/// and below it.
///
/// # Errors
/// Returns the errors of [`read`], or an error if the path leaves the directory.
pub fn read_below(folder: &Path, path: &Path, kind: SecretKind) -> Result<Vec<u8>, SecretError> {
    let outside = || Cause::Outside(folder.to_owned());
    let below = match path.is_absolute() {
        true => path.strip_prefix(folder).map_err(|_| outside()),
        false => Ok(path),
    };
    let found = below.and_then(|below| match open_below(folder, below) {
        Err(Errno::XDEV) => Err(outside()),
        opened => read_content(opened, kind),
    });
    let path = folder.join(path);
    found.map_err(|cause| SecretError { path, cause })
}

fn open_below(folder: &Path, path: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(&folder, path, OPEN_FLAGS, Mode::empty(), resolve);
    let mut opened = open();
    for _ in 0..MAX_RETRIES {
        match opened {
            Err(Errno::AGAIN) => opened = open(),
            _ => break,
        }
    }
    opened
}

fn read_content(
    opened: Result<std::os::fd::OwnedFd, Errno>,
    kind: SecretKind,
) -> Result<Vec<u8>, Cause> {
    let system = |error: io::Error| Cause::System(error.to_string());
    let file = File::from(opened.map_err(|errno| system(errno.into()))?);
    if !file.metadata().map_err(system)?.is_file() {
        return Err(Cause::NotRegular);
    }
    let limit = kind.limit();
    // The limit does not include a line end of up to two bytes. One more byte shows that the file
    // is too long.
    let read_limit = limit as u64 + 3;
    let mut octets = Vec::new();
    file.take(read_limit).read_to_end(&mut octets).map_err(system)?;
    match octets.trim_ascii_end().len() > limit || octets.len() as u64 == read_limit {
        true => Err(Cause::TooLong(limit)),
        false => Ok(octets),
    }
}

#[cfg(test)]
mod tests;
