//! Requests to a cloud API: retried by a policy, bounded in time, and counted.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::failure::{AttemptError, Operation};
use crate::retry::{Clock, Pause, Policy, Retry, with_retries};

/// Upper bounds in seconds of the buckets of [`AttemptStats`]; the last bucket has none.
pub const BOUNDS_S: [f64; 9] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0];

/// Durations of the attempts of an operation with the same outcome.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct AttemptStats {
    /// Sum of the durations in seconds.
    pub seconds: f64,
    /// Number of attempts by duration: bucket `i` counts those of at most `BOUNDS_S[i]` seconds
    /// that exceed the bound before, the last bucket all longer ones.
    pub buckets: [u64; BOUNDS_S.len() + 1],
}

impl AttemptStats {
    /// Adds an attempt.
    pub fn record(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.seconds += seconds;
        self.buckets[BOUNDS_S.partition_point(|bound| *bound < seconds)] += 1;
    }

    /// Returns the number of attempts.
    pub fn times(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound of each bucket in seconds, with the number of attempts in it.
    pub fn bounded(&self) -> Vec<(f64, u64)> {
        BOUNDS_S.into_iter().chain([f64::INFINITY]).zip(self.buckets).collect()
    }
}

impl AddAssign for AttemptStats {
    fn add_assign(&mut self, other: AttemptStats) {
        self.seconds += other.seconds;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
    }
}

/// Attempts by operation and outcome: `ok`, or the metrics name of a
/// [`Failure`](crate::failure::Failure).
pub type Counts = BTreeMap<(&'static str, &'static str), AttemptStats>;

/// Callback after each attempt: operation and outcome as in [`Counts`], then start and duration.
pub type Observer = Box<dyn Fn((&'static str, &'static str), (Instant, Duration)) + Send + Sync>;

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Sets the callback after each attempt of this process, which must not block. Only the first call
/// has an effect.
pub fn set_observer(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Settings and counters of a client's requests. Clones share the counters and the sequence of
/// jitter seeds.
#[derive(Clone)]
pub struct Requests {
    policy: Policy,
    pause: Arc<dyn Pause>,
    cancel: watch::Receiver<bool>,
    seed: Arc<AtomicU64>,
    counts: Arc<Mutex<Counts>>,
}

impl Requests {
    /// Returns settings with this retry policy and jitter seed, and counters at 0. All requests end
    /// when `cancel` becomes true.
    pub fn new(policy: Policy, seed: u64, cancel: watch::Receiver<bool>) -> Requests {
        let (pause, seed) = (Arc::new(Clock::default()), Arc::new(AtomicU64::new(seed)));
        Requests { policy, pause, cancel, seed, counts: Arc::default() }
    }

    /// Returns a clone that follows another policy.
    pub fn with_policy(&self, policy: Policy) -> Requests {
        Requests { policy, ..self.clone() }
    }

    /// Returns a clone with another clock for the time between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Requests {
        Requests { pause, ..self.clone() }
    }

    /// Returns the attempts so far, by operation and outcome.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Repeats a request until it succeeds or the policy gives up.
    pub async fn with_retries<T, F: Future<Output = Result<T, AttemptError>>>(
        &self,
        request: impl FnMut() -> F,
    ) -> Result<T, AttemptError> {
        let retry = Retry::new(self.policy, self.seed.fetch_add(1, Ordering::Relaxed));
        with_retries(retry, self.pause.as_ref(), self.cancel.clone(), request).await
    }

    /// Makes one attempt, limited to `timeout`, and counts its outcome.
    pub async fn attempt<T>(
        &self,
        operation: Operation,
        timeout: Duration,
        request: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let began = Instant::now();
        let result = operation.with_timeout(timeout, request).await;
        let outcome = result.as_ref().map_or_else(|failed| failed.error.kind.as_str(), |_| "ok");
        let (attempt, took) = ((operation.name, outcome), began.elapsed());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.entry(attempt).or_default().record(took);
        drop(counts);
        if let Some(observer) = OBSERVER.get() {
            observer(attempt, (began, took));
        }
        result
    }
}
