//! Error message for a process whose mapped region file is truncated.
//!
//! The kernel signals an access beyond the end of a mapped file with SIGBUS, and only a signal
//! handler can turn that into a message. A regular file cannot be sealed against truncation (seals
//! apply to memfd), so owner and mode (`access`) protect it, and this handler explains the
//! remaining cases.

use std::ffi::c_void;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Exit code: EX_IOERR of sysexits.h.
const CODE: i32 = 74;

/// Bounds of the watched mapping; 0 if no mapping is watched.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Prepared message, because a handler must not allocate. `MESSAGE_BYTES` is its length.
static MESSAGE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static MESSAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Previous action of SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Makes this process exit with a message instead of dying by SIGBUS if the file of this mapping is
/// truncated.
pub(super) fn watch(path: &Path, start: *const u8, bytes: usize) {
    // The old message is leaked, because a handler may be using it.
    let message: &'static mut str = text(path).leak();
    MESSAGE_BYTES.store(0, Ordering::SeqCst);
    MESSAGE.store(message.as_mut_ptr(), Ordering::SeqCst);
    MESSAGE_BYTES.store(message.len(), Ordering::SeqCst);
    START.store(start as usize, Ordering::SeqCst);
    END.store(start as usize + bytes, Ordering::SeqCst);
    BEFORE.get_or_init(install);
}

fn text(path: &Path) -> String {
    format!(
        "weir: {0}: the region's file was truncated while in use, and its flows are lost; find \
         the process that writes to {1}, then type `rm {0}` and start fastpath and slowpath \
         again\n",
        path.display(),
        path.parent().unwrap_or(Path::new("/")).display(),
    )
}

/// Stops watching the mapping at `start`, which is about to be unmapped.
pub(super) fn unwatch(start: *const u8) {
    let start = start as usize;
    if START.compare_exchange(start, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        END.store(0, Ordering::SeqCst);
    }
}

fn install() -> libc::sigaction {
    // SAFETY: both are plain C structures for which zeros are valid (no handler, empty mask); the
    // handler calls async-signal-safe functions only.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        new.sa_sigaction = handle as *const () as usize;
        // The handler runs on the thread's alternate stack, which threads of std have.
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &new, &mut old);
        old
    }
}

extern "C" fn handle(_: libc::c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO, the kernel passes a siginfo with the fault address.
    #[expect(unsafe_code, reason = "the signal handler's arguments")]
    let at = unsafe { (*about).si_addr() } as usize;
    if (START.load(Ordering::SeqCst)..END.load(Ordering::SeqCst)).contains(&at) {
        let (message, bytes) =
            (MESSAGE.load(Ordering::SeqCst), MESSAGE_BYTES.load(Ordering::SeqCst));
        // SAFETY: the message is never freed and has this length; both calls are async-signal-safe.
        // No destructor runs: acknowledged writes are on disk already.
        #[expect(unsafe_code, reason = "async-signal-safe system calls")]
        unsafe {
            libc::write(libc::STDERR_FILENO, message.cast(), bytes);
            libc::_exit(CODE);
        }
    }
    // Another fault: it recurs after this returns, and the previous handler is called.
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action that the kernel returned as the previous one.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        unsafe {
            libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
        }
    }
}
