//! Condition on objects of Kubernetes services of which a part, such as an unknown annotation, is
//! ignored.

use std::time::SystemTime;

use crate::kubernetes::IGNORED;
use crate::object::{Change, Condition, ConditionStatus, Event, Object, Spec};

/// Type of the condition that is false while a part of a Kubernetes service is ignored.
pub const COMPLETE: &str = "Complete";

/// Returns the changes that set the condition on services that the events wrote, if a part of them
/// is or was ignored.
pub fn completeness(events: &[Event], now: SystemTime) -> Vec<Change> {
    let after = events.iter().filter_map(|event| event.after.as_deref());
    after.filter_map(|object| condition_change(object, now)).collect()
}

/// Returns the change that sets the condition on one object; `None` if none is needed, or if the
/// object is not a service.
fn condition_change(object: &Object, now: SystemTime) -> Option<Change> {
    let Spec::Service(spec) = &object.spec else { return None };
    let ignored = spec.properties.as_ref().and_then(|all| all.get(IGNORED));
    let conditions = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    let before = conditions.into_iter().find(|condition| *condition.aspect == *COMPLETE);
    let (status, reason) = match (ignored, before) {
        (None, None) => return None,
        (None, Some(_)) => (ConditionStatus::True, "Complete"),
        (Some(_), _) => (ConditionStatus::False, "PartiallyApplied"),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::name::{Name, Source};
    use crate::object::{Lifecycle, ServiceSpec, Status};

    fn service(ignored: Option<&str>, conditions: Vec<Condition>) -> Object {
        let properties =
            ignored.map(|text| Arc::new(BTreeMap::from([(IGNORED.into(), text.into())])));
        let spec = ServiceSpec { properties, ..ServiceSpec::default() };
        let name = Name::new("shop/web").unwrap();
        let source = Source::new("kubernetes-file");
        let object = Object::new(name, source, Spec::Service(Arc::new(spec)));
        let status = Status { observed: 0, conditions };
        object.with_lifecycle(Lifecycle { status: Some(status), ..Lifecycle::default() })
    }

    /// Returns the condition that is set on the object, at a later time than earlier conditions.
    fn written(object: Object) -> Option<Condition> {
        let event = Event { revision: 1, before: None, after: Some(Arc::new(object)) };
        let changes = completeness(&[event], UNIX_EPOCH + Duration::from_secs(9));
        let change = changes.into_iter().next()?;
        let Change::Status { conditions, .. } = change else { panic!("{change:?}") };
        conditions.into_iter().next()
    }

    #[test]
    fn condition_is_false_while_a_part_is_ignored_and_set_once() {
        assert_eq!(written(service(None, vec![])), None, "a complete service gets no condition");
        let first = written(service(Some("annotation weir.dev/x"), vec![])).unwrap();
        assert_eq!((&*first.aspect, first.status), (COMPLETE, ConditionStatus::False));
        assert_eq!(
            (&*first.reason, &*first.message),
            ("PartiallyApplied", "annotation weir.dev/x")
        );
        let earlier = Condition { since: UNIX_EPOCH, ..first };
        assert_eq!(written(service(Some("annotation weir.dev/x"), vec![earlier.clone()])), None);
        let other = written(service(Some("annotation weir.dev/y"), vec![earlier.clone()])).unwrap();
        assert_eq!(&*other.message, "annotation weir.dev/y");
        let cleared = written(service(None, vec![earlier])).unwrap();
        assert_eq!((cleared.status, &*cleared.message), (ConditionStatus::True, ""));
        assert_eq!(written(service(None, vec![cleared])), None);
    }
}
