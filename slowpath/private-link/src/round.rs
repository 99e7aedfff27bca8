//! State of a running round: its object, and its results so far.

use std::time::Duration;

use crate::context::RoundContext;
use crate::object::{Object, Status};

/// Interval at which resources in their desired state are checked for changes by others.
pub(crate) const DRIFT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// An event of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// True if the operator may have to act.
    pub warning: bool,
    /// Reason in one word, for programs.
    pub reason: &'static str,
    /// Message in one sentence, for the operator.
    pub message: String,
}

impl Event {
    pub(crate) fn note(reason: &'static str, message: impl Into<String>) -> Event {
        Event { warning: false, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Event {
        Event { warning: true, ..Event::note(reason, message) }
    }
}

/// State of a running round.
pub(crate) struct RoundState<'a> {
    pub(crate) context: &'a RoundContext<'a>,
    pub(crate) object: &'a Object,
    pub(crate) status: Status,
    pub(crate) events: Vec<Event>,
}
