//! Retries: when, how often, and when to give up. [`Retry::step`] decides and has no side effects;
//! [`with_retries`] makes the attempts and the pauses.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;

use crate::failure::{AttemptError, Failure, Operation};

mod cutoff;

pub use cutoff::RetryCutoff;

/// Limits of the retries of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Maximum of the first pause; the pause itself is a random part of it (jitter). The maximum
    /// doubles with each further pause, up to `max_pause`.
    pub first_pause: Duration,
    /// Upper limit of every pause, also of one that the cloud requests.
    pub max_pause: Duration,
    /// Time since the begin of the first attempt past which no further attempt is started.
    pub max_elapsed: Duration,
}

impl Policy {
    /// Policy for the cloud's APIs.
    pub const API: Policy = Policy {
        first_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(30),
        max_elapsed: Duration::from_secs(120),
    };
    /// Policy for the instance metadata service.
    pub const IMDS: Policy = Policy {
        first_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(10),
        max_elapsed: Duration::from_secs(60),
    };
    /// A single attempt, for callers that repeat the request themselves.
    pub const ONCE: Policy = Policy {
        first_pause: Duration::ZERO,
        max_pause: Duration::ZERO,
        max_elapsed: Duration::ZERO,
    };

    /// Returns the maximum pause after this number of earlier failures.
    pub fn ceiling(self, failures: u32) -> Duration {
        self.first_pause.saturating_mul(1 << failures.min(16)).min(self.max_pause)
    }
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Retry after this pause.
    Wait(Duration),
    /// Return the error to the caller.
    GiveUp,
}

/// The retry state of one request.
#[derive(Clone, Debug)]
pub struct Retry {
    policy: Policy,
    failures: u32,
    rng: Rng,
}

impl Retry {
    /// Returns the state before the first attempt.
    pub fn new(policy: Policy, seed: u64) -> Retry {
        Retry { policy, failures: 0, rng: Rng::with_seed(seed) }
    }

    /// Decides what to do after a failed attempt; only throttled and transient errors are retried.
    /// `since` is the time since the first attempt began, `after` the delay that the cloud
    /// requests.
    pub fn step(&mut self, since: Duration, kind: Failure, after: Option<Duration>) -> Step {
        if !matches!(kind, Failure::Throttled | Failure::Transient) {
            return Step::GiveUp;
        }
        let ceiling = self.policy.ceiling(self.failures);
        self.failures += 1;
        // Full jitter: instances that failed at the same moment do not retry at the same moment.
        let jittered = ceiling.mul_f64(self.rng.f64());
        let pause = jittered.max(after.unwrap_or_default().min(self.policy.max_pause));
        if self.policy.max_pause.is_zero() || since.saturating_add(pause) > self.policy.max_elapsed
        {
            return Step::GiveUp;
        }
        Step::Wait(pause)
    }
}

/// A clock and timer for the time between attempts; tests replace it.
pub trait Pause: Send + Sync {
    /// Returns the time since a fixed, arbitrary origin.
    fn now(&self) -> Duration;
    /// Resolves after `pause`.
    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Like `wait`, for a task that has this number of calls in progress: a simulated clock must
    /// not advance while a call is in progress.
    fn idle(&self, pause: Duration, _calls: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.wait(pause)
    }
}

/// The tokio clock.
pub struct Clock(tokio::time::Instant);

impl Default for Clock {
    fn default() -> Clock {
        Clock(tokio::time::Instant::now())
    }
}

impl Pause for Clock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(pause))
    }
}

/// Repeats a request until it succeeds, fails with an error that is not retried, the policy gives
/// up, or `cancel` becomes true.
pub async fn with_retries<T, F: Future<Output = Result<T, AttemptError>>>(
    mut retry: Retry,
    pause: &dyn Pause,
    mut cancel: watch::Receiver<bool>,
    mut request: impl FnMut() -> F,
) -> Result<T, AttemptError> {
    let started = pause.now();
    let no_operation = Operation::new("", "Request");
    let stopped = no_operation.failed(Failure::Transient, "Canceled", "the process is stopping");
    let mut last = None::<AttemptError>;
    loop {
        let result = tokio::select! {
            biased;
            () = cancelled(&mut cancel) => return Err(last.unwrap_or(stopped)),
            result = request() => result,
        };
        let failed = match result {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let since = pause.now().saturating_sub(started);
        let Step::Wait(next) = retry.step(since, failed.error.kind, failed.after) else {
            return Err(failed);
        };
        tracing::debug!(
            event = "cloud_call_retried",
            operation = failed.error.operation,
            code = failed.error.code,
            pause = ?next,
            "cloud call failed, retrying"
        );
        tokio::select! {
            biased;
            () = cancelled(&mut cancel) => return Err(failed),
            () = pause.wait(next) => {}
        }
        last = Some(failed);
    }
}

/// Resolves when the channel's value becomes true; never resolves if all senders are gone.
pub async fn cancelled(cancel: &mut watch::Receiver<bool>) {
    if cancel.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
