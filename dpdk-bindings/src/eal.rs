//! The Environment Abstraction Layer (EAL): starts and cleans up DPDK.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Whether DPDK was started. It can start only once in a process, even if the first start failed.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The pools created since the start, which [`EalGuard`] checks when it is dropped.
static POOLS: Mutex<Vec<PoolAddress>> = Mutex::new(Vec::new());

/// An error number of DPDK (positive). It displays as DPDK's own description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the calling thread's `rte_errno`.
    pub(crate) fn last() -> Errno {
        // SAFETY: reads a thread-local integer.
        Errno(unsafe { sys::weir_errno() })
    }

    /// Converts the status of a call that returns a negative errno on failure.
    pub(crate) fn check(status: c_int) -> Result<(), Errno> {
        if status < 0 { Err(Errno(-status)) } else { Ok(()) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: rte_strerror returns a terminated string, constant or thread-local; it is not
        // overwritten before it is printed.
        let text = unsafe { CStr::from_ptr(sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}

/// The reason for which DPDK did not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EalError {
    /// DPDK was already started in this process.
    #[error("DPDK already ran in this process and can start only once: restart the process")]
    AlreadyStarted,
    /// An argument cannot be passed to C.
    #[error("EAL argument {0:?} contains a zero byte: remove it from the `eal` list")]
    ZeroByte(String),
    /// `rte_eal_init` failed.
    #[error("DPDK did not start with `{arguments}`: {errno}; {advice}")]
    Failed {
        /// The arguments passed to DPDK.
        arguments: String,
        /// The error from DPDK.
        errno: Errno,
        /// What to check or which command to run.
        advice: &'static str,
    },
}

/// A handle of the running DPDK. DPDK is cleaned up when the last handle, and the last port, pool
/// and lcore created from one, is dropped, unless packets are still allocated then.
#[derive(Clone, Debug)]
pub struct Eal {
    running: Arc<EalGuard>,
}

/// Keeps DPDK running; held by [`Eal`] and by everything created from it.
#[derive(Debug)]
pub(crate) struct EalGuard(());

#[derive(Clone, Copy)]
struct PoolAddress(*mut sys::rte_mempool);

// SAFETY: a pool's count may be read from any thread.
unsafe impl Send for PoolAddress {}

impl Eal {
    /// Starts DPDK with its command line arguments (without a program name), for example
    /// `["-l", "0,1", "--in-memory", "-m", "256", "--no-pci", "--vdev=net_null0"]`.
    ///
    /// The calling thread becomes the main lcore and is pinned to it. The other lcores get threads
    /// that wait for [`crate::lcore::launch`]. DPDK prints its messages on stderr.
    ///
    /// # Errors
    /// Returns an [`EalError`] if an argument contains a zero byte, or DPDK fails to start or was
    /// started before.
    pub fn start(args: &[String]) -> Result<Eal, EalError> {
        let mut argv = vec![c"weir".as_ptr().cast_mut()];
        for argument in args {
            let text = CString::new(argument.as_str())
                .map_err(|_| EalError::ZeroByte(argument.clone()))?;
            // Leaked on purpose: DPDK keeps pointers into some of its arguments.
            argv.push(text.into_raw());
        }
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }
        let count = argv.len() as c_int;
        argv.push(std::ptr::null_mut());
        let argv: &'static mut [*mut c_char] = argv.leak();
        // SAFETY: argv holds `count` terminated strings with static lifetime, and a null; DPDK is
        // initialized at most once (STARTED).
        let used = unsafe { sys::rte_eal_init(count, argv.as_mut_ptr()) };
        if used < 0 {
            let errno = Errno::last();
            let advice = advice(errno);
            return Err(EalError::Failed { arguments: args.join(" "), errno, advice });
        }
        Ok(Eal { running: Arc::new(EalGuard(())) })
    }

    /// Returns DPDK's version, for example "DPDK 22.11.11".
    pub fn version() -> String {
        // SAFETY: returns a constant, terminated string; needs no started EAL.
        let text = unsafe { CStr::from_ptr(sys::weir_version()) };
        text.to_string_lossy().into_owned()
    }

    /// Returns a reference that keeps DPDK running.
    pub(crate) fn share(&self) -> Arc<EalGuard> {
        Arc::clone(&self.running)
    }
}

impl EalGuard {
    /// Records a pool, so that DPDK is not cleaned up while an mbuf of the pool is in use.
    pub(crate) fn note_pool(&self, pool: *mut sys::rte_mempool) {
        if let Ok(mut pools) = POOLS.lock() {
            pools.push(PoolAddress(pool));
        }
    }
}

impl Drop for EalGuard {
    fn drop(&mut self) {
        // All ports are closed by now, so an outstanding mbuf has an owner that may still read it.
        // In that case DPDK is not cleaned up: the end of the process frees everything except the
        // files on hugetlbfs of a run without --in-memory.
        let all_free = POOLS.lock().is_ok_and(|pools| pools.iter().all(PoolAddress::is_full));
        if all_free {
            // SAFETY: started once, cleaned up once (the last share); no port, pool handle, queue
            // or mbuf is left that could be used after it.
            unsafe { sys::rte_eal_cleanup() };
        }
    }
}

impl PoolAddress {
    /// Returns true if every mbuf is free.
    fn is_full(&self) -> bool {
        // SAFETY: pools are never freed before the cleanup.
        unsafe { sys::weir_pool_size(self.0) == sys::rte_mempool_avail_count(self.0) }
    }
}

/// Returns the most frequent remedy for each error of `rte_eal_init`. EACCES also means that no
/// hugepage size is usable, and ENOTSUP that a driver failed to open its device.
fn advice(errno: Errno) -> &'static str {
    match errno.0 {
        libc_errno::EPERM => "run as root",
        libc_errno::EACCES => {
            "run as root, and check the hugepages (`grep Huge /proc/meminfo`): reserve some, or \
             use none (--no-huge)"
        }
        libc_errno::ENOMEM => {
            "check the free hugepages (`grep Huge /proc/meminfo`): reserve more, give DPDK less \
             (-m), or use none (--no-huge)"
        }
        libc_errno::EINVAL => "an EAL argument is invalid: DPDK names it on stderr",
        libc_errno::ENODEV | libc_errno::ENOEXEC | libc_errno::ENOTSUP => {
            "a device or the memory could not be initialized: DPDK names the cause on stderr"
        }
        _ => "see DPDK's output on stderr",
    }
}

/// The error numbers of `rte_eal_init` for which [`advice`] has a remedy.
mod libc_errno {
    pub const EPERM: i32 = 1;
    pub const ENOEXEC: i32 = 8;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOTSUP: i32 = 95;
}
