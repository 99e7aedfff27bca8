//! Private link objects that are shadowed by another source's object of the same name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use private_link::object::FINALIZER;
use state::name::Precedence;
use state::object::{Change, Condition, Kind, Object, Objects, Truth};
use state::reflect::{ACCEPTED, Told, Verdict};

/// Returns the status changes that bring the objects' conditions up to date.
pub(super) fn news(objects: &Objects, precedence: &Precedence, now: SystemTime) -> Vec<Change> {
    let heard = heard(objects, precedence);
    let told = objects.of_kind(Kind::PrivateLinkService).filter_map(|object| {
        let by = heard.get(object.name.as_str()).filter(|by| by.source != object.source);
        let verdict = match by {
            Some(by) => Verdict::Shadowed(by.source.clone()),
            // An object that was never shadowed has other conditions that show its state.
            None if condition(object).is_some() => Verdict::Accepted,
            None => return None,
        };
        let told = Told { key: object.key(), generation: object.generation, verdict };
        let change = told.into_change(now);
        (!is_noted(object, &change)).then_some(change)
    });
    told.collect()
}

fn condition(object: &Object) -> Option<&Condition> {
    let told = object.life().status.iter().flat_map(|status| &status.conditions);
    told.into_iter().find(|told| *told.aspect == *ACCEPTED)
}

fn is_noted(object: &Object, change: &Change) -> bool {
    let (Change::Status { conditions, .. }, Some(there)) = (change, condition(object)) else {
        return false;
    };
    let same = |new: &Condition| {
        (new.status, &new.reason, &new.message) == (there.status, &there.reason, &there.message)
    };
    // The reconciler writes the observed generation of an object that is not shadowed.
    let observed = object.life().status.as_ref().map(|status| status.observed);
    let current = there.status == Truth::True || observed == Some(object.generation);
    current && conditions.iter().all(same)
}

/// Returns, for each name, the object that takes precedence.
pub(super) fn heard<'o>(
    objects: &'o Objects,
    precedence: &Precedence,
) -> BTreeMap<&'o str, &'o Arc<Object>> {
    let mut heard: BTreeMap<&str, &Arc<Object>> = BTreeMap::new();
    // An object with finalizers keeps precedence until its resources are removed.
    let rank = |object: &Object| (!is_held(object), precedence.of(&object.source));
    for object in objects.of_kind(Kind::PrivateLinkService) {
        let there = heard.entry(object.name.as_str()).or_insert(object);
        if rank(object) < rank(there) {
            *there = object;
        }
    }
    heard
}

pub(super) fn is_held(object: &Object) -> bool {
    object.life().finalizers.iter().any(|name| **name == *FINALIZER)
}
