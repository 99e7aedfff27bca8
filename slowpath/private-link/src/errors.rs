//! When to come back after a failure, by what Azure said.

use std::ops::ControlFlow;
use std::time::Duration;

use clouds::failure::{Failure, Setback};

use crate::object::{Aspect, Reason};

/// After a throttled question, where Azure names no time.
const THROTTLED: Duration = Duration::from_secs(5 * 60);
/// No longer than that, whatever Azure names.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Somebody has to give a permission.
const DENIED: Duration = Duration::from_secs(10 * 60);
/// Somebody else is writing.
const CONFLICT: Duration = Duration::from_secs(30);
/// Anything else.
const OTHER: Duration = Duration::from_secs(2 * 60);
/// Something is not there yet.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// When to come back.
pub fn pause_after(setback: &Setback) -> Duration {
    match setback.error.kind {
        Failure::Throttled => setback.after.unwrap_or(THROTTLED).min(LONGEST),
        Failure::Denied => DENIED,
        Failure::Conflict => CONFLICT,
        Failure::Transient | Failure::Absent | Failure::Invalid => OTHER,
    }
}

/// The outcome of one step of a round on one side. `Continue` holds what the next step needs;
/// `Break` ends the round on this side, which is a failure only where [`Stop::cause`] says so.
pub(crate) type Outcome<T> = ControlFlow<Stop, T>;

/// Why a round goes no further on one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// What it got no further with.
    pub(crate) aspect: Aspect,
    /// Whether something failed.
    pub(crate) cause: Cause,
    /// Why, for machines.
    pub(crate) reason: Reason,
    /// Why, for people.
    pub(crate) message: String,
    /// When to come back.
    pub(crate) after: Duration,
}

/// What ended a round on one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Azure took a change; its effect is looked at by a later round.
    Taken,
    /// Something is not there yet, or an operation goes on.
    Waiting,
    /// A person has to change the object or something at Azure.
    Blocked,
    /// Azure refused a call, or did not answer it. Until [`Stop::after`] this side asks nothing.
    Failed,
}

impl Stop {
    /// Something is not there yet.
    pub(crate) fn wait(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { aspect, cause: Cause::Waiting, reason, message: message.into(), after: SOON }
    }

    /// A call came to nothing.
    pub(crate) fn failed(aspect: Aspect, reason: Reason, setback: &Setback) -> Stop {
        let message = setback.error.to_string();
        Stop { aspect, cause: Cause::Failed, reason, message, after: pause_after(setback) }
    }

    /// Somebody has to do something; the pause is that of an error which Azure doesn't explain.
    pub(crate) fn mend(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { cause: Cause::Blocked, after: OTHER, ..Stop::wait(aspect, reason, message) }
    }

    /// The change was taken, and its effect shows after a pause.
    pub(crate) fn taken(aspect: Aspect, message: impl Into<String>) -> Stop {
        Stop { cause: Cause::Taken, ..Stop::wait(aspect, Reason::UnderWay, message) }
    }

    /// The change was taken, and the next step comes at once, when the status is kept.
    pub(crate) fn at_once(aspect: Aspect, message: impl Into<String>) -> Stop {
        Stop { after: Duration::ZERO, ..Stop::taken(aspect, message) }
    }
}

/// Ends the round on this side where a call failed, or a value is not there.
pub(crate) trait OrStop {
    /// What the next step needs.
    type Value;
    /// Why there is none.
    type Error;

    /// The value, else the stop that `stop` makes of the error.
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

/// A link that can't be because the network has another one.
pub(crate) fn overlaps(setback: &Setback) -> bool {
    let sort = matches!(setback.error.kind, Failure::Conflict | Failure::Invalid);
    let message = setback.error.message.to_ascii_lowercase();
    sort && (message.contains("overlapping namespace") || message.contains("already linked"))
}

#[cfg(test)]
mod tests {
    use clouds::failure::Operation;

    use super::*;

    #[test]
    fn each_class_of_error_has_its_pause() {
        let setback = |kind, after: Option<u64>| {
            let failed =
                Operation::new("", "PrivateLinkServices_Get").failed(kind, "Code", "words");
            Setback { after: after.map(Duration::from_secs), ..failed }
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
            let found = pause_after(&setback(kind, after));
            assert_eq!(found, Duration::from_secs(pause), "{kind:?}");
        }
        let stop =
            Stop::failed(Aspect::Service, Reason::AzureError, &setback(Failure::Denied, None));
        assert!(stop.message.contains("PrivateLinkServices_Get") && stop.message.contains("words"));
        assert_eq!(stop.cause, Cause::Failed);
    }

    #[test]
    fn what_azure_took_is_no_failure() {
        let stop = Stop::at_once(Aspect::Service, "the change was taken");
        assert_eq!((stop.cause, stop.after), (Cause::Taken, Duration::ZERO));
        assert_eq!(Stop::mend(Aspect::Service, Reason::NotOurs, "").cause, Cause::Blocked);
    }
}
