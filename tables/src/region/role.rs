//! Roles of processes that use a region, and the lock byte of each.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Role of a process. Each section has one role as its only writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// Forwards packets; writes flows, counters, events and lcore status.
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

/// Returns whether another open file holds the role's lock.
pub(super) fn is_locked(file: &File, role: Role) -> bool {
    let mut lock = byte_lock(role, libc::F_WRLCK);
    // SAFETY: an open descriptor and a local `flock` structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    rc == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

pub(super) fn byte_lock(role: Role, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: role as i64,
        l_len: 1,
        l_pid: 0,
    }
}
