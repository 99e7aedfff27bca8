//! Lcores: DPDK's threads, each pinned to a core of its own.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::{Eal, Errno, Running};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

/// Why an lcore did not start, or a thread was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LcoreError {
    /// Not an lcore that waits for work.
    #[error("lcore {lcore} is not one of DPDK's workers: list it in the EAL's -l, after the main")]
    NoWorker {
        /// The lcore asked for.
        lcore: u32,
    },
    /// It runs something.
    #[error("lcore {lcore} is busy: wait for what it runs")]
    Busy {
        /// The lcore asked for.
        lcore: u32,
    },
    /// DPDK has no lcore number left for the thread.
    #[error("this thread cannot become an lcore: {errno}; DPDK numbers {most} at most")]
    NotRegistered {
        /// DPDK's reason.
        errno: Errno,
        /// How many lcores DPDK was built for.
        most: u32,
    },
}

/// The main lcore: the thread that started DPDK.
pub fn main(_: &Eal) -> u32 {
    // SAFETY: reads an integer; the EAL runs.
    unsafe { sys::rte_get_main_lcore() }
}

/// The lcores that wait for [`launch`], in order.
pub fn workers(_: &Eal) -> Vec<u32> {
    let mut found = Vec::new();
    // The search starts before the first lcore, skips the main one and does not wrap.
    let mut at = u32::MAX;
    loop {
        // SAFETY: a search through DPDK's list; the EAL runs.
        at = unsafe { sys::rte_get_next_lcore(at, 1, 0) };
        if at >= sys::RTE_MAX_LCORE {
            return found;
        }
        found.push(at);
    }
}

/// What an lcore was given to run.
#[derive(Debug)]
#[must_use = "wait for it, or nobody learns how it ended"]
pub struct Launched<T> {
    lcore: u32,
    result: Arc<Mutex<Option<thread::Result<T>>>>,
    _eal: Arc<Running>,
}

/// A job on its way to an lcore.
struct Job<T, F> {
    run: F,
    result: Arc<Mutex<Option<thread::Result<T>>>>,
}

/// Runs `run` on a waiting worker lcore.
///
/// # Errors
/// [`LcoreError::NoWorker`], [`LcoreError::Busy`].
pub fn launch<T, F>(eal: &Eal, lcore: u32, run: F) -> Result<Launched<T>, LcoreError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if !workers(eal).contains(&lcore) {
        return Err(LcoreError::NoWorker { lcore });
    }
    let result = Arc::new(Mutex::new(None));
    let job = Box::into_raw(Box::new(Job { run, result: Arc::clone(&result) }));
    // SAFETY: the lcore exists; it gets the job for itself alone, and `enter` knows its type.
    let status =
        unsafe { sys::rte_eal_remote_launch(Some(enter::<T, F>), job.cast::<c_void>(), lcore) };
    if status != 0 {
        // SAFETY: refused, so the job is still ours.
        drop(unsafe { Box::from_raw(job) });
        return Err(LcoreError::Busy { lcore });
    }
    Ok(Launched { lcore, result, _eal: eal.share() })
}

unsafe extern "C" fn enter<T, F: FnOnce() -> T>(job: *mut c_void) -> c_int {
    // SAFETY: `launch` made the job with these types and gave it to us.
    let job = unsafe { Box::from_raw(job.cast::<Job<T, F>>()) };
    // Nothing of the job is looked at after a panic but its payload.
    let outcome = catch_unwind(AssertUnwindSafe(job.run));
    if let Ok(mut place) = job.result.lock() {
        *place = Some(outcome);
    }
    0
}

impl<T> Launched<T> {
    /// The lcore that runs it.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }

    /// True when it has ended.
    pub fn is_finished(&self) -> bool {
        self.result.lock().is_ok_and(|place| place.is_some())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The payload, when it panicked (as [`std::thread::JoinHandle::join`]).
    pub fn wait(self) -> thread::Result<T> {
        // SAFETY: the lcore exists.
        unsafe { sys::rte_eal_wait_lcore(self.lcore) };
        let outcome = self.result.lock().ok().and_then(|mut place| place.take());
        outcome.unwrap_or_else(|| Err(Box::new("the lcore left no result")))
    }
}

/// A thread of our own that DPDK knows: it has an lcore number (and no core), and with that a
/// cache in each pool. Given back when dropped, on the same thread.
#[derive(Debug)]
pub struct Registered {
    _eal: Arc<Running>,
    /// Not to be sent: the registration is the thread's.
    _thread: PhantomData<*const ()>,
}

/// Makes the calling thread known to DPDK, for threads other than lcores that allocate and free
/// mbufs.
///
/// # Errors
/// [`LcoreError::NotRegistered`].
pub fn register_thread(eal: &Eal) -> Result<Registered, LcoreError> {
    // SAFETY: registers the calling thread; the EAL runs.
    if unsafe { sys::rte_thread_register() } < 0 {
        let errno = Errno::last();
        return Err(LcoreError::NotRegistered { errno, most: sys::RTE_MAX_LCORE });
    }
    Ok(Registered { _eal: eal.share(), _thread: PhantomData })
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: on the thread that was registered (not Send).
        unsafe { sys::rte_thread_unregister() };
    }
}
