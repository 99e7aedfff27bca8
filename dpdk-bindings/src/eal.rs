//! The Environment Abstraction Layer: DPDK's start and its end.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// DPDK can start once in the life of a process, whatever became of the first start.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Pools made since the start; see [`Running`]'s drop.
static POOLS: Mutex<Vec<PoolAddress>> = Mutex::new(Vec::new());

/// An error number of DPDK (positive), with DPDK's own words for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The calling thread's `rte_errno`.
    pub(crate) fn last() -> Errno {
        // SAFETY: reads a thread-local integer.
        Errno(unsafe { sys::weir_errno() })
    }

    /// What a call that returns 0 or a negative errno says.
    pub(crate) fn check(status: c_int) -> Result<(), Errno> {
        if status < 0 { Err(Errno(-status)) } else { Ok(()) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: rte_strerror returns a terminated string, constant or of this thread, which
        // nobody overwrites before we have printed it.
        let text = unsafe { CStr::from_ptr(sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}

/// Why DPDK did not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EalError {
    /// A second start in one process.
    #[error("DPDK was started before in this process, and it can start only once: start anew")]
    AlreadyStarted,
    /// An argument that cannot be handed to C.
    #[error("EAL argument {0:?} holds a zero byte: remove it from the `eal` list")]
    ZeroByte(String),
    /// `rte_eal_init` refused.
    #[error("DPDK did not start with `{arguments}`: {errno}; {advice}")]
    Refused {
        /// The arguments as DPDK saw them.
        arguments: String,
        /// DPDK's reason.
        errno: Errno,
        /// What to look at or to type.
        advice: &'static str,
    },
}

/// DPDK, started. Cleaned up when this and everything made from it is dropped.
#[derive(Clone, Debug)]
pub struct Eal {
    running: Arc<Running>,
}

/// What keeps DPDK running; ports, pools and queues hold it too.
#[derive(Debug)]
pub(crate) struct Running(());

#[derive(Clone, Copy)]
struct PoolAddress(*mut sys::rte_mempool);

// SAFETY: a pool may be asked for its count from any thread.
unsafe impl Send for PoolAddress {}

impl Eal {
    /// Starts DPDK with the arguments of its command line (without a program name), for example
    /// `["-l", "0,1", "--in-memory", "-m", "256", "--no-pci", "--vdev=net_null0"]`.
    ///
    /// The calling thread becomes the main lcore and is pinned to it; the other lcores get threads
    /// that wait for [`crate::lcore::launch`]. DPDK prints its complaints on stderr.
    ///
    /// # Errors
    /// [`EalError`] when DPDK refuses, or was started before.
    pub fn start(args: &[String]) -> Result<Eal, EalError> {
        let mut argv = vec![c"weir".as_ptr().cast_mut()];
        for argument in args {
            let text = CString::new(argument.as_str())
                .map_err(|_| EalError::ZeroByte(argument.clone()))?;
            // Given away for good: DPDK keeps pointers into some of its arguments.
            argv.push(text.into_raw());
        }
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }
        let count = argv.len() as c_int;
        argv.push(std::ptr::null_mut());
        let argv: &'static mut [*mut c_char] = argv.leak();
        // SAFETY: argv holds `count` terminated strings that live for ever, and a null; DPDK is
        // initialised at most once (STARTED).
        let used = unsafe { sys::rte_eal_init(count, argv.as_mut_ptr()) };
        if used < 0 {
            let errno = Errno::last();
            let advice = advice(errno);
            return Err(EalError::Refused { arguments: args.join(" "), errno, advice });
        }
        Ok(Eal { running: Arc::new(Running(())) })
    }

    /// DPDK's version, as in "DPDK 22.11.11".
    pub fn version() -> String {
        // SAFETY: returns a constant, terminated string; needs no started EAL.
        let text = unsafe { CStr::from_ptr(sys::weir_version()) };
        text.to_string_lossy().into_owned()
    }

    /// A share of what keeps DPDK running.
    pub(crate) fn share(&self) -> Arc<Running> {
        Arc::clone(&self.running)
    }
}

impl Running {
    /// Remembers a pool, so that the memory under its mbufs is not given back too early.
    pub(crate) fn note_pool(&self, pool: *mut sys::rte_mempool) {
        if let Ok(mut pools) = POOLS.lock() {
            pools.push(PoolAddress(pool));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ports are closed by now, so an mbuf that is out is one that somebody holds and may
        // still read. Then the process's end has to clean up, which costs nothing but the page
        // files of a run without --in-memory.
        let home = POOLS.lock().is_ok_and(|pools| pools.iter().all(PoolAddress::is_full));
        if home {
            // SAFETY: started once, cleaned up once (the last share); no port, pool handle, queue
            // or mbuf is left that could be used after it.
            unsafe { sys::rte_eal_cleanup() };
        }
    }
}

impl PoolAddress {
    /// True when every mbuf is back.
    fn is_full(&self) -> bool {
        // SAFETY: pools are never freed before clean-up.
        unsafe { sys::weir_pool_size(self.0) == sys::rte_mempool_avail_count(self.0) }
    }
}

/// What each refusal of `rte_eal_init` most often comes from.
fn advice(errno: Errno) -> &'static str {
    match errno.0 {
        libc_errno::EACCES | libc_errno::EPERM => "run as root",
        libc_errno::ENOMEM | libc_errno::ENOTSUP => {
            "are there enough free hugepages (`grep Huge /proc/meminfo`)? Reserve more, give \
             DPDK less (-m), or do without (--no-huge)"
        }
        libc_errno::EINVAL => "an EAL argument is wrong: DPDK names it on stderr",
        libc_errno::ENODEV | libc_errno::ENOEXEC => {
            "a device could not be made ready: DPDK names it on stderr"
        }
        _ => "DPDK says more on stderr",
    }
}

/// The error numbers that `rte_eal_init` documents.
mod libc_errno {
    pub const EPERM: i32 = 1;
    pub const ENOEXEC: i32 = 8;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOTSUP: i32 = 95;
}
