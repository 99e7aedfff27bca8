//! Tests of the retry decision and of the retry loop, with simulated time.

use std::sync::{Arc, Mutex};

use super::*;

const OPERATION: Operation = Operation::new("elasticloadbalancing", "RegisterTargets");

/// A clock that advances at once when a pause is awaited.
#[derive(Default)]
struct Simulated(Mutex<Vec<Duration>>);

impl Pause for Simulated {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().iter().sum()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.lock().unwrap().push(pause);
        Box::pin(std::future::ready(()))
    }
}

fn failed(kind: Failure) -> AttemptError {
    OPERATION.failed(kind, "Code", "message")
}

/// Returns all pauses until the retry loop gives up.
async fn pauses(policy: Policy, seed: u64, kind: Failure, after: Option<u64>) -> Vec<Duration> {
    let time = Simulated::default();
    let (_sender, cancel) = watch::channel(false);
    let result = with_retries(Retry::new(policy, seed), &time, cancel, || async {
        Err::<(), _>(AttemptError { after: after.map(Duration::from_millis), ..failed(kind) })
    });
    assert_eq!(result.await.unwrap_err().error.kind, kind);
    time.0.into_inner().unwrap()
}

#[tokio::test]
async fn pauses_grow_with_jitter_up_to_the_ceiling_and_end_in_time() {
    for (policy, longest, budget) in [(Policy::API, 30, 120), (Policy::IMDS, 10, 60)] {
        let mut largest = Duration::ZERO;
        for seed in 0..300 {
            let found = pauses(policy, seed, Failure::Throttled, None).await;
            for (n, pause) in found.iter().enumerate() {
                assert!(*pause <= Duration::from_secs((1 << n.min(10)).min(longest)), "{n}");
                largest = largest.max(*pause);
            }
            let sum: Duration = found.iter().sum();
            assert!(sum <= Duration::from_secs(budget) && found.len() >= 4, "{found:?}");
            assert_eq!(found, pauses(policy, seed, Failure::Transient, None).await);
        }
        assert!(largest > Duration::from_secs(longest * 9 / 10), "{largest:?}");
        let one = pauses(policy, 1, Failure::Throttled, None).await;
        assert_ne!(one, pauses(policy, 2, Failure::Throttled, None).await);
    }
}

#[tokio::test]
async fn a_requested_delay_is_honored_up_to_the_longest_pause() {
    let found = pauses(Policy::API, 3, Failure::Throttled, Some(7_000)).await;
    assert!(found.iter().all(|p| *p >= Duration::from_secs(7)), "{found:?}");
    let day = pauses(Policy::API, 3, Failure::Throttled, Some(86_400_000)).await;
    assert_eq!(day, [Duration::from_secs(30); 4]);
}

#[tokio::test]
async fn permanent_errors_are_not_retried_and_policy_once_retries_nothing() {
    for kind in [Failure::Denied, Failure::Absent, Failure::Invalid] {
        assert!(pauses(Policy::API, 1, kind, Some(10)).await.is_empty());
    }
    assert!(pauses(Policy::ONCE, 1, Failure::Throttled, None).await.is_empty());
}

#[tokio::test]
async fn cancellation_ends_an_attempt_and_a_pause() {
    let (stop, cancel) = watch::channel(false);
    let time = Simulated::default();
    let attempting = with_retries(Retry::new(Policy::API, 1), &time, cancel, || async {
        stop.send_replace(true);
        std::future::pending::<Result<(), AttemptError>>().await
    });
    assert_eq!(attempting.await.unwrap_err().error.code, "Canceled");

    let (stop, cancel) = watch::channel(false);
    let clock = Clock::default();
    let waiting = with_retries(Retry::new(Policy::API, 1), &clock, cancel, || async {
        stop.send_replace(true);
        Err::<(), _>(failed(Failure::Transient))
    });
    assert_eq!(waiting.await.unwrap_err().error.code, "Code");
}

#[tokio::test]
async fn a_cutoff_ends_retries_until_it_is_reset() {
    let (_sender, cancel) = watch::channel(false);
    let (time, cutoff) = (Arc::new(Simulated::default()), RetryCutoff::default());
    let pause = cutoff.wrap(Arc::clone(&time) as Arc<dyn Pause>);
    let attempts = |cut_at: Option<usize>| {
        let (cutoff, cancel, pause) = (cutoff.clone(), cancel.clone(), Arc::clone(&pause));
        async move {
            let mut attempts = 0;
            let retry = Retry::new(Policy::API, 1);
            let result = with_retries(retry, &*pause, cancel, || {
                attempts += 1;
                if cut_at == Some(attempts) {
                    cutoff.trigger();
                }
                std::future::ready(Err::<(), _>(failed(Failure::Transient)))
            });
            assert_eq!(result.await.unwrap_err().error.code, "Code");
            attempts
        }
    };
    let usual = attempts(None).await;
    assert!(usual > 4, "{usual}");
    assert_eq!(attempts(Some(2)).await, 2);
    cutoff.reset();
    let (before, again) = (time.now(), attempts(None).await);
    assert_eq!(again, usual);
    assert!(time.now() - before > Duration::from_secs(60), "the pauses are waited for");
}
