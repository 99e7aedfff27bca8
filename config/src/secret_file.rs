//! Reads secret and certificate files: regular files only, of bounded size, without blocking.
//!
//! slowpath runs as root, and some paths come from objects that API clients and Kubernetes write.
//! Such a path is resolved below a folder that the operator configures ([`read_below`]); symbolic
//! links work as long as they stay in it, as the `..data` links of Kubernetes' and systemd's mounts
//! do. A path from the configuration file may be anywhere ([`read`]).
//!
//! The error names the cause and belongs in the log. A client that chose the path gets one and the
//! same answer for every cause: otherwise it could probe which files exist.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// What a file holds, which limits its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretKind {
    /// A TCP-MD5 key: 80 bytes, the most that the kernel takes, without the line end.
    Md5Key,
    /// A bearer token: 4 KiB.
    Token,
    /// PEM: 1 MiB.
    Pem,
}

impl SecretKind {
    /// Bytes that a file of this kind holds at most, not counting a final line end.
    pub fn limit(self) -> usize {
        match self {
            SecretKind::Md5Key => 80,
            SecretKind::Token => 4 << 10,
            SecretKind::Pem => 1 << 20,
        }
    }
}

/// Why a file is not read, for the operator's log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
pub struct SecretError {
    /// The file as it was named.
    pub path: PathBuf,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// An absolute path outside the folder, or one that leaves it by `..` or by a link.
    #[error("is not in {}; move it there, and let links lead to files in it only", .0.display())]
    Outside(PathBuf),
    /// The system refuses to open or read it.
    #[error("{0}")]
    System(String),
    /// A folder, device, FIFO or socket.
    #[error("is not a regular file; write the secret into one")]
    NotRegular,
    /// Longer than its kind allows.
    #[error("is longer than {0} bytes, the most that is read")]
    TooLong(usize),
}

/// Times that openat2 is tried again when a rename disturbs it (EAGAIN, openat2(2)).
const RENAMES: usize = 16;
const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Returns the content of a file that the operator names in the configuration.
///
/// # Errors
/// It is not a regular file, is too long, or can't be read.
pub fn read(path: &Path, kind: SecretKind) -> Result<Vec<u8>, SecretError> {
    let opened = openat(CWD, path, OPEN, Mode::empty());
    content(opened, kind).map_err(|cause| SecretError { path: path.to_owned(), cause })
}

/// Returns the content of a file that an object names: `path` is relative to `folder`, or absolute
/// and in it.
///
/// # Errors
/// As of [`read`], or the path leads out of the folder.
pub fn read_below(folder: &Path, path: &Path, kind: SecretKind) -> Result<Vec<u8>, SecretError> {
    let outside = || Cause::Outside(folder.to_owned());
    let below = match path.is_absolute() {
        true => path.strip_prefix(folder).map_err(|_| outside()),
        false => Ok(path),
    };
    let found = below.and_then(|below| match open_below(folder, below) {
        Err(Errno::XDEV) => Err(outside()),
        opened => content(opened, kind),
    });
    let path = folder.join(path);
    found.map_err(|cause| SecretError { path, cause })
}

fn open_below(folder: &Path, path: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(&folder, path, OPEN, Mode::empty(), resolve);
    let mut opened = open();
    for _ in 0..RENAMES {
        match opened {
            Err(Errno::AGAIN) => opened = open(),
            _ => break,
        }
    }
    opened
}

fn content(
    opened: Result<std::os::fd::OwnedFd, Errno>,
    kind: SecretKind,
) -> Result<Vec<u8>, Cause> {
    let system = |error: io::Error| Cause::System(error.to_string());
    let file = File::from(opened.map_err(|errno| system(errno.into()))?);
    if !file.metadata().map_err(system)?.is_file() {
        return Err(Cause::NotRegular);
    }
    let limit = kind.limit();
    // A line end of two bytes is not part of the secret, and one byte more shows what is too long.
    let most = limit as u64 + 3;
    let mut octets = Vec::new();
    file.take(most).read_to_end(&mut octets).map_err(system)?;
    match octets.trim_ascii_end().len() > limit || octets.len() as u64 == most {
        true => Err(Cause::TooLong(limit)),
        false => Ok(octets),
    }
}

#[cfg(test)]
mod tests;
