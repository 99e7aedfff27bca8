//! Requests to a cloud API: retried by a policy, bounded in time, and counted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::failure::{AttemptError, Operation};
use crate::retry::{Clock, Pause, Policy, Retry, with_retries};

/// Number of attempts by operation and outcome: `ok`, or the metrics name of a
/// [`Failure`](crate::failure::Failure).
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

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

    /// Returns the number of attempts so far, by operation and outcome.
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
        let result = operation.with_timeout(timeout, request).await;
        let outcome = result.as_ref().map_or_else(|failed| failed.error.kind.as_str(), |_| "ok");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((operation.name, outcome)).or_default() += 1;
        result
    }
}
