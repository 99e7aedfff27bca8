//! Roles of processes that use a region, and the lock byte of each.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Role of a process. Each section has one role as its only writer, except those named at
/// [`Section`](crate::layout::Section).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// The data plane: fastpath, or the loader of the XDP programs. Writes flows, counters, events
    /// and lcore status.
    Fastpath = 0,
    /// Commits table sets.
    Slowpath = 1,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Fastpath => "fastpath",
            Role::Slowpath => "slowpath",
        })
    }
}

/// Returns whether the role's lock is held through another opening of the file, in any process.
pub(super) fn is_locked(file: &File, role: Role) -> bool {
    let mut lock = byte_lock(role, libc::F_WRLCK);
    // SAFETY: an open descriptor and a local `flock` structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    rc == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Lock of a role without a claim in the region's header, for a program that cannot read the header
/// because its format is another one. Ends when this value is dropped.
#[derive(Debug)]
pub(super) struct RoleLock<'f> {
    file: &'f File,
    role: Role,
}

impl<'f> RoleLock<'f> {
    /// Takes the role's lock; `None` if another process holds it.
    pub(super) fn new(file: &'f File, role: Role) -> Option<RoleLock<'f>> {
        set_lock(file, role, libc::F_WRLCK).then_some(RoleLock { file, role })
    }
}

impl Drop for RoleLock<'_> {
    fn drop(&mut self) {
        set_lock(self.file, self.role, libc::F_UNLCK);
    }
}

/// Takes or releases the role's lock; returns false if another opening of the file holds it.
pub(super) fn set_lock(file: &File, role: Role, kind: i32) -> bool {
    let lock = byte_lock(role, kind);
    // SAFETY: an open descriptor and a local `flock` structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    rc == 0
}

/// Returns the argument of `fcntl` for the lock of a role: one byte at the offset of its number.
fn byte_lock(role: Role, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: role as i64,
        l_len: 1,
        l_pid: 0,
    }
}
