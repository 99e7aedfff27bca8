//! Why a round (one pass over an object) stops on one side (service or endpoint), and the delay
//! after each class of error.

use std::ops::ControlFlow;
use std::time::Duration;

use clouds::failure::{AttemptError, Failure};

use crate::object::{Aspect, Reason};

/// Delay after throttling, if Azure requests none.
const THROTTLED_DELAY: Duration = Duration::from_secs(5 * 60);
/// Maximum delay after throttling, even if Azure requests a longer one.
const MAX_THROTTLED_DELAY: Duration = Duration::from_secs(60 * 60);
/// Delay after a call that Azure denied: the operator has to grant a permission.
const DENIED_DELAY: Duration = Duration::from_secs(10 * 60);
/// Delay after a conflict with another writer.
const CONFLICT_DELAY: Duration = Duration::from_secs(30);
/// Delay after all other errors.
const OTHER_DELAY: Duration = Duration::from_secs(2 * 60);
/// Delay while the round waits for something: a resource, an operation or a decision.
pub(crate) const SHORT_DELAY: Duration = Duration::from_secs(30);

/// Returns the delay after an error.
pub fn delay_after(failed: &AttemptError) -> Duration {
    match failed.error.kind {
        Failure::Throttled => failed.after.unwrap_or(THROTTLED_DELAY).min(MAX_THROTTLED_DELAY),
        Failure::Denied => DENIED_DELAY,
        Failure::Conflict => CONFLICT_DELAY,
        Failure::Transient | Failure::Absent | Failure::Invalid => OTHER_DELAY,
    }
}

/// The outcome of one step of a round on one side. `Continue` holds what the next step needs;
/// `Break` ends the round on this side, which is a failure only if the cause is [`Cause::Failed`].
pub(crate) type Outcome<T> = ControlFlow<Stop, T>;

/// Why a round stops on one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// The aspect that stopped.
    pub(crate) aspect: Aspect,
    /// The cause.
    pub(crate) cause: Cause,
    /// Reason in one word, for programs.
    pub(crate) reason: Reason,
    /// Message in one sentence, for the operator.
    pub(crate) message: String,
    /// Delay until the next round.
    pub(crate) after: Duration,
}

/// Cause of a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Azure accepted a change; a later round checks its effect.
    Accepted,
    /// Something does not exist yet, or an operation is in progress.
    Waiting,
    /// The operator has to change the object or something at Azure.
    Blocked,
    /// A call failed. Until [`Stop::after`] has passed, this side makes no calls.
    Failed,
}

impl Stop {
    /// Returns a stop because something does not exist yet, or an operation is in progress.
    pub(crate) fn wait(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { aspect, cause: Cause::Waiting, reason, message: message.into(), after: SHORT_DELAY }
    }

    /// Returns a stop because a call failed.
    pub(crate) fn failed(aspect: Aspect, reason: Reason, failed: &AttemptError) -> Stop {
        let message = failed.error.to_string();
        Stop { aspect, cause: Cause::Failed, reason, message, after: delay_after(failed) }
    }

    /// Returns a stop because the operator has to act, with [`OTHER_DELAY`].
    pub(crate) fn blocked(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { cause: Cause::Blocked, after: OTHER_DELAY, ..Stop::wait(aspect, reason, message) }
    }

    /// Returns a stop because Azure accepted a change; the next round, after [`SHORT_DELAY`],
    /// checks its effect.
    pub(crate) fn accepted(aspect: Aspect, message: impl Into<String>) -> Stop {
        Stop { cause: Cause::Accepted, ..Stop::wait(aspect, Reason::InProgress, message) }
    }

    /// Returns a stop because Azure accepted a change; the next round, which checks its effect,
    /// starts at once.
    pub(crate) fn accepted_check_now(aspect: Aspect, message: impl Into<String>) -> Stop {
        Stop { after: Duration::ZERO, ..Stop::accepted(aspect, message) }
    }
}

/// Ends the round on one side if a call failed or a value is missing.
pub(crate) trait OrStop {
    /// The value that the next step needs.
    type Value;
    /// The error if there is no value.
    type Error;

    /// Returns the value, or the stop that `stop` derives from the error.
    fn or_stop(self, stop: impl FnOnce(Self::Error) -> Stop) -> Outcome<Self::Value>;
}

impl<T, E> OrStop for Result<T, E> {
    type Value = T;
    type Error = E;

    fn or_stop(self, stop: impl FnOnce(E) -> Stop) -> Outcome<T> {
        match self {
            Ok(value) => ControlFlow::Continue(value),
            Err(error) => ControlFlow::Break(stop(error)),
        }
    }
}

impl<T> OrStop for Option<T> {
    type Value = T;
    type Error = ();

    fn or_stop(self, stop: impl FnOnce(()) -> Stop) -> Outcome<T> {
        self.ok_or(()).or_stop(stop)
    }
}

/// Returns true if the creation of a zone's link failed because the network is linked to another
/// zone of that name.
pub(crate) fn is_link_conflict(failed: &AttemptError) -> bool {
    let is_kind = matches!(failed.error.kind, Failure::Conflict | Failure::Invalid);
    let message = failed.error.message.to_ascii_lowercase();
    is_kind && (message.contains("overlapping namespace") || message.contains("already linked"))
}

#[cfg(test)]
mod tests {
    use clouds::failure::Operation;

    use super::*;

    #[test]
    fn each_error_class_has_its_delay() {
        let failed = |kind, after: Option<u64>| {
            let failed =
                Operation::new("", "PrivateLinkServices_Get").failed(kind, "Code", "words");
            AttemptError { after: after.map(Duration::from_secs), ..failed }
        };
        for (kind, after, pause) in [
            (Failure::Throttled, Some(17), 17),
            (Failure::Throttled, None, 300),
            (Failure::Throttled, Some(1_000_000), 3_600),
            (Failure::Denied, None, 600),
            (Failure::Conflict, None, 30),
            (Failure::Transient, None, 120),
            (Failure::Invalid, None, 120),
            (Failure::Absent, None, 120),
        ] {
            let found = delay_after(&failed(kind, after));
            assert_eq!(found, Duration::from_secs(pause), "{kind:?}");
        }
        let stop =
            Stop::failed(Aspect::Service, Reason::AzureError, &failed(Failure::Denied, None));
        assert!(stop.message.contains("PrivateLinkServices_Get") && stop.message.contains("words"));
        assert_eq!(stop.cause, Cause::Failed);
    }

    #[test]
    fn accepted_change_is_not_a_failure() {
        let stop = Stop::accepted_check_now(Aspect::Service, "the change was accepted");
        assert_eq!((stop.cause, stop.after), (Cause::Accepted, Duration::ZERO));
        assert_eq!(Stop::blocked(Aspect::Service, Reason::NotOurs, "").cause, Cause::Blocked);
    }
}
