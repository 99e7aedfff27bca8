//! Private link objects that are shadowed: an object of the same name from another source takes
//! precedence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use private_link::object::FINALIZER;
use state::name::Precedence;
use state::object::{Change, Condition, ConditionStatus, Kind, Object, Objects};
use state::reflect::{ACCEPTED, Verdict, VerdictChange};

/// Returns the status changes that bring the condition `Accepted` of the objects up to date.
pub(super) fn status_changes(
    objects: &Objects,
    precedence: &Precedence,
    now: SystemTime,
) -> Vec<Change> {
    let preferred = preferred(objects, precedence);
    let changes = objects.of_kind(Kind::PrivateLinkService).filter_map(|object| {
        let other = preferred.get(object.name.as_str());
        let verdict = match other.filter(|other| other.source != object.source) {
            Some(other) => Verdict::Shadowed(other.source.clone()),
            // An object that was never shadowed has other conditions that show its state.
            None if condition(object).is_some() => Verdict::Accepted,
            None => return None,
        };
        let change = VerdictChange { key: object.key(), generation: object.generation, verdict };
        let change = change.into_change(now);
        (!is_recorded(object, &change)).then_some(change)
    });
    changes.collect()
}

fn condition(object: &Object) -> Option<&Condition> {
    let conditions = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().find(|condition| *condition.aspect == *ACCEPTED)
}

fn is_recorded(object: &Object, change: &Change) -> bool {
    let (Change::Status { conditions, .. }, Some(current_condition)) = (change, condition(object))
    else {
        return false;
    };
    let same = |new: &Condition| {
        (new.status, &new.reason, &new.message)
            == (current_condition.status, &current_condition.reason, &current_condition.message)
    };
    // The private link controller writes the observed generation of objects that are not shadowed,
    // so only that of a shadowed object is compared.
    let observed = object.lifecycle().status.as_ref().map(|status| status.observed);
    let current =
        current_condition.status == ConditionStatus::True || observed == Some(object.generation);
    current && conditions.iter().all(same)
}

/// Returns, for each name, the object that takes precedence.
pub(super) fn preferred<'o>(
    objects: &'o Objects,
    precedence: &Precedence,
) -> BTreeMap<&'o str, &'o Arc<Object>> {
    let mut preferred: BTreeMap<&str, &Arc<Object>> = BTreeMap::new();
    // An object with finalizers keeps precedence until its resources are removed.
    let rank = |object: &Object| (!has_finalizer(object), precedence.rank(&object.source));
    for object in objects.of_kind(Kind::PrivateLinkService) {
        let current = preferred.entry(object.name.as_str()).or_insert(object);
        if rank(object) < rank(current) {
            *current = object;
        }
    }
    preferred
}

pub(super) fn has_finalizer(object: &Object) -> bool {
    object.lifecycle().finalizers.iter().any(|name| **name == *FINALIZER)
}
