//! Mounts the kernel's description of its tracepoints, which this machine may not have mounted.

use std::ffi::{CStr, CString};
use std::io::Error;
use std::path::Path;

/// Mounts a file system where the kernel's tracepoints are described, for this thread and its child
/// processes: `tracefs`, or an empty one (`tmpfs`).
#[track_caller]
pub fn mount(kind: &CStr) {
    // SAFETY: no pointers are passed; this thread and its child processes get a new namespace.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(rc, 0, "{}", Error::last_os_error());
    call(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE);
    for path in ["/sys/kernel/tracing", "/sys/kernel/debug"] {
        if Path::new(path).exists() {
            call(kind, &CString::new(path).unwrap_or_default(), kind, 0);
        }
    }
}

#[track_caller]
fn call(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) {
    // SAFETY: the strings end with zero, and no data is passed.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null())
    };
    assert_eq!(rc, 0, "mount {kind:?} at {target:?}: {}", Error::last_os_error());
}
