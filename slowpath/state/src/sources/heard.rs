//! Condition that shows whether a source's lease is valid, on the source's own object, and the
//! changes of it.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::OnExpiry;

use crate::name::{Name, Source};
use crate::object::{Change, Condition, Key, Kind, Object, Objects, SourceSpec, Spec, Truth};
use crate::store::Batch;

/// Type of the condition that shows whether a source's lease is valid.
pub const HEARD: &str = "Heard";

/// Whether a source's lease is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// The lease is valid, or there is none.
    Yes,
    /// The lease expired, and this was done.
    Not(OnExpiry),
}

impl Heard {
    /// Returns the value for reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Heard::Yes => "yes",
            Heard::Not(done) => word(done),
        }
    }
}

/// Returns the condition's reason.
fn word(done: OnExpiry) -> &'static str {
    match done {
        OnExpiry::Keep => "Kept",
        OnExpiry::Quarantine => "Quarantined",
        OnExpiry::Release => "Released",
    }
}

fn message(done: OnExpiry) -> &'static str {
    match done {
        OnExpiry::Keep => "its lease ran out; what it said last still holds",
        OnExpiry::Quarantine => {
            "its lease ran out; its backends get no new flows until it renews the lease or says \
             everything again"
        }
        OnExpiry::Release => "its lease ran out; what it said is gone until it is said again",
    }
}

/// Returns the key of a source's own object.
pub(super) fn key(source: &Source) -> Option<Key> {
    let name = Name::new(source.as_str()).ok()?;
    Some(Key { kind: Kind::Source, name, source: source.clone() })
}

pub(super) fn own<'o>(source: &Source, objects: &'o Objects) -> Option<&'o Arc<Object>> {
    objects.get(&key(source)?)
}

fn spec<'o>(source: &Source, objects: &'o Objects) -> Option<&'o SourceSpec> {
    match &own(source, objects)?.spec {
        Spec::Source(spec) => Some(spec),
        _ => None,
    }
}

/// Returns the revision that a source committed last; `None` if it has never begun a session.
pub(super) fn revision(source: &Source, objects: &Objects) -> Option<Box<str>> {
    spec(source, objects).map(|spec| spec.revision.clone())
}

/// Returns the state recorded on the source's own object.
pub(super) fn of(source: &Source, objects: &Objects) -> Heard {
    own(source, objects).map_or(Heard::Yes, |object| told(object))
}

fn told(object: &Object) -> Heard {
    let status = object.life().status.iter().flat_map(|status| &status.conditions);
    let found = status.into_iter().find(|told| &*told.aspect == HEARD);
    let Some(told) = found.filter(|told| told.status == Truth::False) else { return Heard::Yes };
    let all = [OnExpiry::Keep, OnExpiry::Quarantine, OnExpiry::Release];
    all.into_iter().find(|done| *told.reason == *word(*done)).map_or(Heard::Yes, Heard::Not)
}

/// Returns whether backends of the source with this own object are quarantined.
pub(crate) fn is_quarantined(object: &Object) -> bool {
    told(object) == Heard::Not(OnExpiry::Quarantine)
}

/// Creates a source's own object.
pub(super) fn object(source: &Source, spec: SourceSpec) -> Option<Object> {
    let name = key(source)?.name;
    Some(Object::new(name, source.clone(), Spec::Source(Arc::new(spec))))
}

/// Returns the change that creates the source's own object or sets its lease, if needed.
pub(super) fn lasting(source: &Source, objects: &Objects, lease_s: u32) -> Batch {
    let known = spec(source, objects).cloned();
    if known.as_ref().is_some_and(|spec| spec.lease_s == lease_s) {
        return Batch::new();
    }
    let spec = SourceSpec { lease_s, ..known.unwrap_or_default() };
    object(source, spec).map(Change::put).into_iter().collect()
}

/// Returns the change that marks the source's lease as valid again, if it had expired.
pub(super) fn now_heard(source: &Source, objects: &Objects, now: SystemTime) -> Option<Change> {
    match of(source, objects) {
        Heard::Yes => None,
        Heard::Not(_) => {
            let message = "it says that it is there";
            status(source, objects, (Truth::True, HEARD, message), now)
        }
    }
}

/// Returns the changes for an expired lease; empty if they were made already.
pub(super) fn no_longer(
    source: &Source,
    objects: &Objects,
    on_expiry: OnExpiry,
    now: SystemTime,
) -> Batch {
    let before = of(source, objects);
    let Some(own) = own(source, objects) else { return Batch::new() };
    // Released objects are not restored by another setting.
    if before == Heard::Not(on_expiry) || before == Heard::Not(OnExpiry::Release) {
        return Batch::new();
    }
    let mut batch = match on_expiry {
        OnExpiry::Release => objects.towards(source, vec![Object::clone(own)]),
        OnExpiry::Keep | OnExpiry::Quarantine => Batch::new(),
    };
    let told = (Truth::False, word(on_expiry), message(on_expiry));
    batch.extend(status(source, objects, told, now));
    batch
}

fn status(
    source: &Source,
    objects: &Objects,
    (status, reason, message): (Truth, &str, &str),
    since: SystemTime,
) -> Option<Change> {
    let (aspect, reason, message) = (HEARD.into(), reason.into(), message.into());
    let condition = Condition { aspect, status, reason, message, since };
    let observed = own(source, objects).map_or(0, |object| object.generation);
    Some(Change::Status { key: key(source)?, observed, conditions: vec![condition] })
}

/// Returns whether a change writes an object; the other changes in these batches are deletions.
pub(super) fn is_put(change: &Change) -> bool {
    matches!(change, Change::Put { .. })
}

/// Returns whether a change concerns a source's own object.
pub(super) fn is_own(change: &Change) -> bool {
    match change {
        Change::Put { object, .. } => object.kind() == Kind::Source,
        Change::Delete { key, .. }
        | Change::Finalizer { key, .. }
        | Change::Status { key, .. }
        | Change::Progress { key, .. } => key.kind == Kind::Source,
    }
}
