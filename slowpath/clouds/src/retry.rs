//! Asking again: when, how often, and when to stop. The decision is a pure step; the loop below
//! only carries it out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;

use crate::failure::{Failure, Operation, Setback};

mod hurry;

pub use hurry::Hurry;

/// How patiently to ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The first pause is at most so long, each further one at most twice that.
    pub first: Duration,
    /// No pause of ours is longer.
    pub longest: Duration,
    /// No question is asked later than so long after the first.
    pub whole: Duration,
}

impl Policy {
    /// For the services' own interfaces.
    pub const API: Policy = Policy {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(30),
        whole: Duration::from_secs(120),
    };
    /// For the instance's own metadata.
    pub const IMDS: Policy = Policy {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(10),
        whole: Duration::from_secs(60),
    };
    /// Once, for those who come back by themselves.
    pub const ONCE: Policy =
        Policy { first: Duration::ZERO, longest: Duration::ZERO, whole: Duration::ZERO };

    /// The longest pause after so many earlier failures.
    pub fn ceiling(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(16)).min(self.longest)
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Ask again after so long.
    Wait(Duration),
    /// Tell the caller.
    GiveUp,
}

/// One question on its way through its attempts.
#[derive(Clone, Debug)]
pub struct Retry {
    policy: Policy,
    failures: u32,
    rng: Rng,
}

impl Retry {
    /// Before the first attempt.
    pub fn new(policy: Policy, seed: u64) -> Retry {
        Retry { policy, failures: 0, rng: Rng::with_seed(seed) }
    }

    /// After a failure, `since` the first attempt began. `after` is what the cloud asks for.
    pub fn step(&mut self, since: Duration, kind: Failure, after: Option<Duration>) -> Step {
        if !matches!(kind, Failure::Throttled | Failure::Transient) {
            return Step::GiveUp;
        }
        let ceiling = self.policy.ceiling(self.failures);
        self.failures += 1;
        // Full jitter: instances that were refused at the same moment don't come back at the same.
        let jittered = ceiling.mul_f64(self.rng.f64());
        let pause = jittered.max(after.unwrap_or_default().min(self.policy.longest));
        if self.policy.longest.is_zero() || since.saturating_add(pause) > self.policy.whole {
            return Step::GiveUp;
        }
        Step::Wait(pause)
    }
}

/// How time passes between attempts.
pub trait Pause: Send + Sync {
    /// Since whenever, but always the same.
    fn now(&self) -> Duration;
    /// Resolves so much later.
    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// The same for a task of which so many calls are under way.
    fn idle(&self, pause: Duration, _calls: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.wait(pause)
    }
}

/// Time as tokio keeps it.
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

/// Asks until there is an answer, the policy gives up, or `cancel` says true.
pub async fn persist<T, F: Future<Output = Result<T, Setback>>>(
    mut retry: Retry,
    pause: &dyn Pause,
    mut cancel: watch::Receiver<bool>,
    mut ask: impl FnMut() -> F,
) -> Result<T, Setback> {
    let begun = pause.now();
    let nothing = Operation::new("", "Nothing");
    let stopped = nothing.failed(Failure::Transient, "Cancelled", "we are to stop");
    let mut last = None::<Setback>;
    loop {
        let told = tokio::select! {
            biased;
            () = told_to_stop(&mut cancel) => return Err(last.unwrap_or(stopped)),
            told = ask() => told,
        };
        let setback = match told {
            Ok(answer) => return Ok(answer),
            Err(setback) => setback,
        };
        let since = pause.now().saturating_sub(begun);
        let Step::Wait(next) = retry.step(since, setback.error.kind, setback.after) else {
            return Err(setback);
        };
        tracing::debug!(
            operation = setback.error.operation,
            code = setback.error.code,
            ?next,
            "asks again"
        );
        tokio::select! {
            biased;
            () = told_to_stop(&mut cancel) => return Err(setback),
            () = pause.wait(next) => {}
        }
        last = Some(setback);
    }
}

/// Resolves when somebody says true, and never when all who could have gone.
pub async fn told_to_stop(cancel: &mut watch::Receiver<bool>) {
    if cancel.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
