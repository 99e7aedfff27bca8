//! A round on its way: what it works on, and what it has found so far.

use std::time::Duration;

use crate::object::{Object, Status};
use crate::turn::Turn;

/// What is as it should be is looked at again after so long: others may change it.
pub(crate) const DRIFT: Duration = Duration::from_secs(5 * 60);

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Somebody may have to do something.
    pub warning: bool,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
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

/// A round on its way.
pub(crate) struct Course<'a> {
    pub(crate) turn: &'a Turn<'a>,
    pub(crate) object: &'a Object,
    pub(crate) status: Status,
    pub(crate) events: Vec<Event>,
}
