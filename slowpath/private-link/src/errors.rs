//! When to come back after a failure, by what Azure said.

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

/// Why a round goes no further on one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// What it got no further with.
    pub(crate) aspect: Aspect,
    /// Why, for machines.
    pub(crate) reason: Reason,
    /// Why, for people.
    pub(crate) message: String,
    /// When to come back.
    pub(crate) after: Duration,
    /// Azure refused: until then this side asks nothing.
    pub(crate) refused: bool,
}

impl Stop {
    /// Something is not there yet.
    pub(crate) fn wait(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { aspect, reason, message: message.into(), after: SOON, refused: false }
    }

    /// A call came to nothing.
    pub(crate) fn failed(aspect: Aspect, reason: Reason, setback: &Setback) -> Stop {
        let message = setback.error.to_string();
        Stop { aspect, reason, message, after: pause_after(setback), refused: true }
    }

    /// Somebody has to do something; the pause is that of an error which Azure doesn't explain.
    pub(crate) fn mend(aspect: Aspect, reason: Reason, message: impl Into<String>) -> Stop {
        Stop { after: OTHER, ..Stop::wait(aspect, reason, message) }
    }

    /// The next step comes at once, when the status is kept.
    pub(crate) fn at_once(aspect: Aspect, message: impl Into<String>) -> Stop {
        Stop { after: Duration::ZERO, ..Stop::wait(aspect, Reason::UnderWay, message) }
    }
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
    }
}
