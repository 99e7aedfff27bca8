//! Waits of tests on the real clock: a condition is polled until it holds. A wait that times out
//! reports the condition, the duration and the last result. [`ports`] allocates free ports.
//!
//! ```
//! use patience::{check, eventually};
//! let mut polls = 0;
//! eventually("the third poll", || {
//!     polls += 1;
//!     check(polls == 3, || format!("poll {polls}"))
//! });
//! ```

#![forbid(unsafe_code)]

pub mod ports;

use std::fmt;
use std::time::{Duration, Instant};

/// The default time limit: the machine may be busy with other tests.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds of the pause between two polls, which is a hundredth of the elapsed wait. The moment at
/// which a condition becomes true is thus known to 5 ms in waits of up to half a second, to 1 % in
/// waits of up to ten seconds, and to 100 ms in longer ones, which use little CPU time.
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// A condition that did not hold in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutError {
    /// The condition.
    pub what: String,
    /// The duration of the wait.
    pub waited: Duration,
    /// The result of the last poll.
    pub found: String,
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimeoutError { what, waited, found } = self;
        write!(f, "waited {waited:.1?} for {what}; last found: {found}")
    }
}

impl std::error::Error for TimeoutError {}

/// Converts a condition without a value into the result of one poll: `Ok` if it holds, otherwise
/// the description of what was found instead.
pub fn check(holds: bool, found: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(found()) }
}

/// Calls `poll_once` at least once, until it returns a value, and returns that value. An error of
/// `poll_once` describes what was found; after `timeout` the last one is in the [`TimeoutError`].
pub fn poll<T>(
    what: &str,
    timeout: Duration,
    mut poll_once: impl FnMut() -> Result<T, String>,
) -> Result<T, TimeoutError> {
    let wait = Wait { what, timeout, begun: Instant::now() };
    loop {
        match poll_once() {
            Ok(value) => return Ok(value),
            Err(found) => std::thread::sleep(wait.pause(found)?),
        }
    }
}

/// Polls until `poll_once` returns a value, and returns it; panics after [`DEFAULT_TIMEOUT`].
#[track_caller]
pub fn eventually<T>(what: &str, poll_once: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(DEFAULT_TIMEOUT, what, poll_once)
}

/// Polls until `poll_once` returns a value, and returns it; panics after `timeout`.
#[track_caller]
#[expect(clippy::panic, reason = "a timeout fails the test")]
pub fn eventually_within<T>(
    timeout: Duration,
    what: &str,
    poll_once: impl FnMut() -> Result<T, String>,
) -> T {
    match poll(what, timeout, poll_once) {
        Ok(value) => value,
        Err(late) => panic!("{late}"),
    }
}

/// Polls in a task until `poll_once` returns a value, and returns it; panics after
/// [`DEFAULT_TIMEOUT`]. Other tasks run in the pauses.
#[expect(clippy::panic, reason = "a timeout fails the test")]
pub async fn eventually_async<T>(
    what: &str,
    mut poll_once: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let wait = Wait { what, timeout: DEFAULT_TIMEOUT, begun: Instant::now() };
    loop {
        let found = match poll_once().await {
            Ok(value) => return value,
            Err(found) => found,
        };
        match wait.pause(found) {
            Ok(pause) => tokio::time::sleep(pause).await,
            Err(late) => panic!("{late}"),
        }
    }
}

struct Wait<'a> {
    what: &'a str,
    timeout: Duration,
    begun: Instant,
}

impl Wait<'_> {
    /// Returns the pause after an unsuccessful poll, or an error if the time limit has passed.
    fn pause(&self, found: String) -> Result<Duration, TimeoutError> {
        let waited = self.begun.elapsed();
        if waited <= self.timeout {
            return Ok((waited / 100).clamp(MIN_PAUSE, MAX_PAUSE));
        }
        Err(TimeoutError { what: self.what.to_owned(), waited, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_ends_the_wait_and_is_returned() {
        let mut polls = 0;
        let third = poll("the third poll", DEFAULT_TIMEOUT, || {
            polls += 1;
            if polls == 3 { Ok(polls) } else { Err(polls.to_string()) }
        });
        assert_eq!(third, Ok(3));
    }

    #[test]
    fn a_timeout_reports_the_condition_and_the_last_value() {
        let mut polls = 0;
        let late = poll("an answer", MAX_PAUSE, || -> Result<(), String> {
            polls += 1;
            Err(format!("poll {polls}"))
        });
        let late = late.unwrap_err();
        assert_eq!((late.what.as_str(), late.found), ("an answer", format!("poll {polls}")));
        assert!(polls > 1 && late.waited > MAX_PAUSE);
    }

    #[tokio::test]
    async fn an_async_wait_lets_other_tasks_run() {
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move { sender.send(7) });
        let seven = eventually_async("a message", async || {
            receiver.try_recv().map_err(|error| error.to_string())
        });
        assert_eq!(seven.await, 7);
        task.await.unwrap().unwrap();
    }
}
