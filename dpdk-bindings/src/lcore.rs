//! Lcores: DPDK's threads, each pinned to a core of its own.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::{Eal, Running};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

/// Why an lcore did not start.
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
