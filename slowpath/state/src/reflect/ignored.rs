//! Services of which something is ignored, and how their objects show it.

use std::time::SystemTime;

use crate::kubernetes::IGNORED;
use crate::object::{Change, Condition, Event, Object, Spec, Truth};

/// The type of the condition that is false while something of a service is ignored.
pub const COMPLETE: &str = "Complete";

/// The conditions of changed services of which something is ignored, or was.
pub fn completeness(events: &[Event], now: SystemTime) -> Vec<Change> {
    let after = events.iter().filter_map(|event| event.after.as_deref());
    after.filter_map(|object| of(object, now)).collect()
}

/// The change that notes the condition on a service; none where its status has it.
fn of(object: &Object, now: SystemTime) -> Option<Change> {
    let Spec::Service(spec) = &object.spec else { return None };
    let ignored = spec.properties.as_ref().and_then(|all| all.get(IGNORED));
    let noted = object.life().status.iter().flat_map(|status| &status.conditions);
    let before = noted.into_iter().find(|condition| *condition.aspect == *COMPLETE);
    let (status, reason) = match (ignored, before) {
        (None, None) => return None,
        (None, Some(_)) => (Truth::True, "Complete"),
        (Some(_), _) => (Truth::False, "PartlyIgnored"),
    };
    let condition = Condition {
        aspect: COMPLETE.into(),
        status,
        reason: reason.into(),
        message: ignored.cloned().unwrap_or_default(),
        since: now,
    };
    if before
        .is_some_and(|before| *before == Condition { since: before.since, ..condition.clone() })
    {
        return None;
    }
    let (key, observed) = (object.key(), object.generation);
    Some(Change::Status { key, observed, conditions: vec![condition] })
}
