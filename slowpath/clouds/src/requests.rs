//! Requests of a client to a cloud: retried by a policy, bounded in time, and counted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::failure::{Operation, Setback};
use crate::retry::{Clock, Pause, Policy, Retry, persist};

/// Attempts by operation and outcome: `ok`, or a [`Failure`](crate::failure::Failure) as metrics
/// name it.
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// How a client's requests are made. Clones share their counts and the source of their jitter.
#[derive(Clone)]
pub struct Requests {
    policy: Policy,
    pause: Arc<dyn Pause>,
    cancel: watch::Receiver<bool>,
    seed: Arc<AtomicU64>,
    counts: Arc<Mutex<Counts>>,
}

impl Requests {
    /// Requests by a policy, with a seed of jitter. `cancel` ends all of them when it says true.
    pub fn new(policy: Policy, seed: u64, cancel: watch::Receiver<bool>) -> Requests {
        let (pause, seed) = (Arc::new(Clock::default()), Arc::new(AtomicU64::new(seed)));
        Requests { policy, pause, cancel, seed, counts: Arc::default() }
    }

    /// The same by another policy.
    pub fn with_policy(&self, policy: Policy) -> Requests {
        Requests { policy, ..self.clone() }
    }

    /// The same with time that passes otherwise between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Requests {
        Requests { pause, ..self.clone() }
    }

    /// The attempts so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a request until it is answered, or the policy gives up.
    pub async fn persist<T, F: Future<Output = Result<T, Setback>>>(
        &self,
        ask: impl FnMut() -> F,
    ) -> Result<T, Setback> {
        let retry = Retry::new(self.policy, self.seed.fetch_add(1, Ordering::Relaxed));
        persist(retry, self.pause.as_ref(), self.cancel.clone(), ask).await
    }

    /// Makes one attempt within a bound, and counts it.
    pub async fn attempt<T>(
        &self,
        operation: Operation,
        bound: Duration,
        asked: impl Future<Output = Result<T, Setback>>,
    ) -> Result<T, Setback> {
        let told = operation.within(bound, asked).await;
        let outcome = told.as_ref().map_or_else(|setback| setback.error.kind.as_str(), |_| "ok");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((operation.name, outcome)).or_default() += 1;
        told
    }
}
