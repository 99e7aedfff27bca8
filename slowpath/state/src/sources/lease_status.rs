//! Condition on a source's own object (kind `Source`) that shows whether the source's lease is
//! valid, and the changes that set it.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::OnExpiry;

use crate::name::{Name, Source};
use crate::object::{
    Change, Condition, ConditionStatus, Key, Kind, Object, Objects, SourceSpec, Spec,
};
use crate::store::Batch;

/// Type of the condition that shows whether a source's lease is valid.
pub const LEASE_VALID: &str = "LeaseValid";

/// Whether a source's lease is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseStatus {
    /// The lease is valid, or there is none.
    Valid,
    /// The lease expired, and the source's objects were handled in this way.
    Expired(OnExpiry),
}

impl LeaseStatus {
    /// Returns the value of `lease_status` in [`super::Report`].
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseStatus::Valid => "valid",
            LeaseStatus::Expired(on_expiry) => reason_text(on_expiry),
        }
    }
}

/// Returns the condition's reason after a lease expired and the objects were handled in this way.
fn reason_text(on_expiry: OnExpiry) -> &'static str {
    match on_expiry {
        OnExpiry::Keep => "Persisted",
        OnExpiry::Quarantine => "Quarantined",
        OnExpiry::Release => "Released",
    }
}

fn message(on_expiry: OnExpiry) -> &'static str {
    match on_expiry {
        OnExpiry::Keep => "the lease expired; the last list still applies",
        OnExpiry::Quarantine => {
            "the lease expired; the backends get no new flows until the source renews the lease or \
             sends its complete list again"
        }
        OnExpiry::Release => {
            "the lease expired; the objects are released until the source sends them again"
        }
    }
}

/// Returns the key of a source's own object.
pub(super) fn own_key(source: &Source) -> Option<Key> {
    let name = Name::new(source.as_str()).ok()?;
    Some(Key { kind: Kind::Source, name, source: source.clone() })
}

pub(super) fn own_object<'o>(source: &Source, objects: &'o Objects) -> Option<&'o Arc<Object>> {
    objects.get(&own_key(source)?)
}

fn spec<'o>(source: &Source, objects: &'o Objects) -> Option<&'o SourceSpec> {
    match &own_object(source, objects)?.spec {
        Spec::Source(spec) => Some(spec),
        _ => None,
    }
}

/// Returns the revision that a source committed last, empty before the first commit; `None` if the
/// source has no object of its own.
pub(super) fn revision(source: &Source, objects: &Objects) -> Option<Box<str>> {
    spec(source, objects).map(|spec| spec.revision.clone())
}

/// Returns the lease status recorded on the source's own object.
pub(super) fn recorded(source: &Source, objects: &Objects) -> LeaseStatus {
    own_object(source, objects).map_or(LeaseStatus::Valid, |object| recorded_on(object))
}

fn recorded_on(object: &Object) -> LeaseStatus {
    let status = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    let found = status.into_iter().find(|condition| &*condition.aspect == LEASE_VALID);
    let Some(condition) = found.filter(|condition| condition.status == ConditionStatus::False)
    else {
        return LeaseStatus::Valid;
    };
    let all = [OnExpiry::Keep, OnExpiry::Quarantine, OnExpiry::Release];
    all.into_iter()
        .find(|on_expiry| *condition.reason == *reason_text(*on_expiry))
        .map_or(LeaseStatus::Valid, LeaseStatus::Expired)
}

/// Returns whether a source's own object shows that its backends are quarantined.
pub(crate) fn is_quarantined(object: &Object) -> bool {
    recorded_on(object) == LeaseStatus::Expired(OnExpiry::Quarantine)
}

/// Creates a source's own object.
pub(super) fn new_own_object(source: &Source, spec: SourceSpec) -> Option<Object> {
    let name = own_key(source)?.name;
    Some(Object::new(name, source.clone(), Spec::Source(Arc::new(spec))))
}

/// Returns the change that creates the source's own object or sets its lease; empty if the object
/// has this lease already.
pub(super) fn set_lease(source: &Source, objects: &Objects, lease_s: u32) -> Batch {
    let current = spec(source, objects).cloned();
    if current.as_ref().is_some_and(|spec| spec.lease_s == lease_s) {
        return Batch::new();
    }
    let spec = SourceSpec { lease_s, ..current.unwrap_or_default() };
    new_own_object(source, spec).map(Change::put).into_iter().collect()
}

/// Returns the change that marks the source's lease as valid again, if it had expired.
pub(super) fn mark_valid(source: &Source, objects: &Objects, now: SystemTime) -> Option<Change> {
    match recorded(source, objects) {
        LeaseStatus::Valid => None,
        LeaseStatus::Expired(_) => {
            let message = "the lease is valid";
            condition_change(source, objects, (ConditionStatus::True, LEASE_VALID, message), now)
        }
    }
}

/// Returns the changes that an expired lease requires; empty if they were made already.
pub(super) fn expire(
    source: &Source,
    objects: &Objects,
    on_expiry: OnExpiry,
    now: SystemTime,
) -> Batch {
    let before = recorded(source, objects);
    let Some(own) = own_object(source, objects) else { return Batch::new() };
    // Released objects stay released even if the setting has changed.
    if before == LeaseStatus::Expired(on_expiry)
        || before == LeaseStatus::Expired(OnExpiry::Release)
    {
        return Batch::new();
    }
    let mut batch = match on_expiry {
        OnExpiry::Release => objects.changes_to(source, vec![Object::clone(own)]),
        OnExpiry::Keep | OnExpiry::Quarantine => Batch::new(),
    };
    let condition = (ConditionStatus::False, reason_text(on_expiry), message(on_expiry));
    batch.extend(condition_change(source, objects, condition, now));
    batch
}

/// Returns the change that sets the condition.
fn condition_change(
    source: &Source,
    objects: &Objects,
    (status, reason, message): (ConditionStatus, &str, &str),
    since: SystemTime,
) -> Option<Change> {
    let (aspect, reason, message) = (LEASE_VALID.into(), reason.into(), message.into());
    let condition = Condition { aspect, status, reason, message, since };
    let observed = own_object(source, objects).map_or(0, |object| object.generation);
    Some(Change::Status { key: own_key(source)?, observed, conditions: vec![condition] })
}

/// Returns whether a change writes an object. The other changes of a batch that replaces a list are
/// deletions.
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
