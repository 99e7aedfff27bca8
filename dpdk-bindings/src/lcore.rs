//! Lcores: DPDK's threads, each pinned to a CPU.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::{Eal, EalGuard, Errno};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

/// The reason for which an lcore did not start or a thread was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LcoreError {
    /// The lcore is not a worker lcore.
    #[error("lcore {lcore} is not a DPDK worker: list it in the EAL's -l, after the main lcore")]
    NoWorker {
        /// Requested lcore.
        lcore: u32,
    },
    /// The lcore already runs a function.
    #[error("lcore {lcore} is busy: wait for its function to end")]
    Busy {
        /// Requested lcore.
        lcore: u32,
    },
    /// DPDK has no lcore number left for the thread.
    #[error("cannot register this thread as an lcore: {errno}; DPDK supports {max} lcores at most")]
    NotRegistered {
        /// The error from DPDK.
        errno: Errno,
        /// The maximum number of lcores that DPDK was built for.
        max: u32,
    },
}

/// Returns the number of the main lcore, which is the thread that started DPDK.
pub fn main(_: &Eal) -> u32 {
    // SAFETY: reads an integer; the EAL runs.
    unsafe { sys::rte_get_main_lcore() }
}

/// Returns the numbers of the worker lcores, all lcores but the main one, in ascending order.
pub fn workers(_: &Eal) -> Vec<u32> {
    let mut found = Vec::new();
    // The search starts before the first lcore, skips the main one and does not wrap.
    let mut lcore = u32::MAX;
    loop {
        // SAFETY: a search through DPDK's list; the EAL runs.
        lcore = unsafe { sys::rte_get_next_lcore(lcore, 1, 0) };
        if lcore >= sys::RTE_MAX_LCORE {
            return found;
        }
        found.push(lcore);
    }
}

/// A handle of a function that runs on an lcore.
#[derive(Debug)]
#[must_use = "wait for it, or its result is lost"]
pub struct LcoreHandle<T> {
    lcore: u32,
    result: Arc<Mutex<Option<thread::Result<T>>>>,
    _eal: Arc<EalGuard>,
}

/// The function and the destination of its result, passed to the lcore.
struct Job<T, F> {
    run: F,
    result: Arc<Mutex<Option<thread::Result<T>>>>,
}

/// Runs `run` on a worker lcore that is not running a function.
///
/// # Errors
/// Returns [`LcoreError::NoWorker`] or [`LcoreError::Busy`].
pub fn launch<T, F>(eal: &Eal, lcore: u32, run: F) -> Result<LcoreHandle<T>, LcoreError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if !workers(eal).contains(&lcore) {
        return Err(LcoreError::NoWorker { lcore });
    }
    let result = Arc::new(Mutex::new(None));
    let job = Box::into_raw(Box::new(Job { run, result: Arc::clone(&result) }));
    // SAFETY: the lcore exists; it gets exclusive ownership of the job, and `enter` has its type.
    let status =
        unsafe { sys::rte_eal_remote_launch(Some(enter::<T, F>), job.cast::<c_void>(), lcore) };
    if status != 0 {
        // SAFETY: the launch failed, so ownership of the job was not transferred.
        drop(unsafe { Box::from_raw(job) });
        return Err(LcoreError::Busy { lcore });
    }
    Ok(LcoreHandle { lcore, result, _eal: eal.share() })
}

/// Runs a [`Job`] on the lcore, and stores its result or the payload of its panic.
unsafe extern "C" fn enter<T, F: FnOnce() -> T>(job: *mut c_void) -> c_int {
    // SAFETY: `launch` created the job with these types and transferred its ownership.
    let job = unsafe { Box::from_raw(job.cast::<Job<T, F>>()) };
    // After a panic, nothing that the function captured is accessed any more.
    let outcome = catch_unwind(AssertUnwindSafe(job.run));
    if let Ok(mut slot) = job.result.lock() {
        *slot = Some(outcome);
    }
    0
}

impl<T> LcoreHandle<T> {
    /// Returns the lcore that runs the function.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }

    /// Returns true if the function has ended.
    pub fn is_finished(&self) -> bool {
        self.result.lock().is_ok_and(|slot| slot.is_some())
    }

    /// Waits for the function to end and returns its result.
    ///
    /// # Errors
    /// Returns the payload of a panic, like [`std::thread::JoinHandle::join`].
    pub fn wait(self) -> thread::Result<T> {
        // SAFETY: the lcore exists.
        unsafe { sys::rte_eal_wait_lcore(self.lcore) };
        let outcome = self.result.lock().ok().and_then(|mut slot| slot.take());
        outcome.unwrap_or_else(|| Err(Box::new("the lcore returned no result")))
    }
}

/// The registration of a thread, which gives it an lcore number (without a CPU) and so a cache in
/// each pool. Dropping this value unregisters the thread.
#[derive(Debug)]
pub struct ThreadRegistration {
    _eal: Arc<EalGuard>,
    /// Not `Send`: the registration belongs to the thread.
    _thread: PhantomData<*const ()>,
}

/// Registers the calling thread with DPDK. For threads other than lcores that allocate and free
/// mbufs.
///
/// # Errors
/// Returns [`LcoreError::NotRegistered`] if no lcore number is left.
pub fn register_thread(eal: &Eal) -> Result<ThreadRegistration, LcoreError> {
    // SAFETY: registers the calling thread; the EAL runs.
    if unsafe { sys::rte_thread_register() } < 0 {
        let errno = Errno::last();
        return Err(LcoreError::NotRegistered { errno, max: sys::RTE_MAX_LCORE });
    }
    Ok(ThreadRegistration { _eal: eal.share(), _thread: PhantomData })
}

impl Drop for ThreadRegistration {
    fn drop(&mut self) {
        // SAFETY: on the thread that was registered (not Send).
        unsafe { sys::rte_thread_unregister() };
    }
}
