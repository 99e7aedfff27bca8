//! Rule for complete lists: a list that would remove too much is held until it is confirmed.
//!
//! A complete list replaces the previous list of a source: a services file or folder, or the commit
//! of a session. Input that is empty, truncated or missing is a list as well, and would remove
//! every service. A list therefore changes nothing while it would remove
//! - all objects or all services of its source, however many there are;
//! - more than [`RemovalLimit::percent`] of its objects, if there are [`REMOVAL_FLOOR`] or more.
//!
//! The rule compares the list with the stored objects, so a restart does not change the result. A
//! held removal is recorded on the source's own object, with the condition [`APPLIED`] and a digest
//! of the removed objects. [`confirm`] permits exactly that removal. The rule does not apply to
//! deletions of single objects and to expired leases.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::lease_status;
use crate::name::Source;
use crate::object::{
    Change, ChangeError, Condition, ConditionStatus, ErrorClass, Key, Kind, Object, Objects,
    SourceSpec, Status,
};
use crate::store::Batch;

/// Type of the condition that shows whether a source's complete list is applied.
pub const APPLIED: &str = "Applied";
/// Number of objects of a source from which [`RemovalLimit::percent`] applies: of fewer objects,
/// one is a large part.
pub const REMOVAL_FLOOR: usize = 10;
/// Maximum number of objects that a message names.
const NAMED_MAX: usize = 3;

/// Limit on what a complete list may remove without confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovalLimit {
    /// Maximum percentage of the source's objects (`control.max_removal_percent`).
    pub percent: u8,
}

impl Default for RemovalLimit {
    fn default() -> RemovalLimit {
        RemovalLimit { percent: 50 }
    }
}

/// Removals that a complete list may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// Any removal: the list has `allow_removal`, or it restores the list before a failed commit.
    Any,
    /// Only removals that the rule allows with this limit, or that were confirmed.
    Within(RemovalLimit),
}

/// Removal because of which a list is held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// Number of objects that the list would remove.
    pub removed: usize,
    /// Number of objects that the source has, including those to be removed.
    pub of: usize,
    /// Hash of the keys of the objects that the list would remove.
    pub digest: Box<str>,
    /// Whether an operator has confirmed the removal.
    pub confirmed: bool,
}

/// Error: a complete list is held, and nothing of it is applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the list of source `{source_of}` is held, and nothing of it is applied: it would remove \
     {description}; complete the list, or confirm the removal with `weir source confirm \
     {source_of}` or `allow_removal` (in a services file, or in the commit of a session)"
)]
pub struct Held {
    /// Source of the list.
    pub source_of: Source,
    /// Removal that the list would make.
    pub removal: Removal,
    /// Description of the removal for messages.
    description: String,
}

/// Applies the rule to the batch that replaces a source's list by a complete list. Returns further
/// changes for the batch, which clear the record of an earlier held list.
///
/// # Errors
/// Fails if the list is held. The caller records that with [`Held::record`].
pub fn admit(
    source: &Source,
    objects: &Objects,
    batch: &[Change],
    permit: Permit,
    now: SystemTime,
) -> Result<Batch, Held> {
    let recorded = recorded(source, objects);
    if let Permit::Within(limit) = permit
        && let Some(held) = check_limit(source, objects, batch, limit)
        && !recorded
            .as_ref()
            .is_some_and(|current| current.confirmed && current.is_same(&held.removal))
    {
        return Err(held);
    }
    if recorded.is_none() {
        return Ok(Batch::new());
    }
    let applied = (ConditionStatus::True, APPLIED, "the list is applied".to_owned());
    Ok(record_change(source, objects, None, applied, now).into_iter().collect())
}

/// Confirms the removal because of which a source's list is held. A later list of the source is
/// applied if it removes exactly the same objects. Returns the removal and the changes that record
/// the confirmation, which are empty if the removal is confirmed already; `None` if no list is
/// held.
pub fn confirm(source: &Source, objects: &Objects, now: SystemTime) -> Option<(Removal, Batch)> {
    let current = recorded(source, objects)?;
    if current.confirmed {
        return Some((current, Batch::new()));
    }
    let removal = Removal { confirmed: true, ..current };
    let Removal { removed, of, .. } = &removal;
    let message = format!("the removal of {removed} of {of} objects is confirmed");
    let condition = (ConditionStatus::False, "RemovalConfirmed", message);
    let change = record_change(source, objects, Some(&removal), condition, now);
    Some((removal, change.into_iter().collect()))
}

/// Returns whether the list of a source is held and its removal is confirmed. The caller then reads
/// the list again to apply it.
pub fn is_confirmed(source: &Source, objects: &Objects) -> bool {
    recorded(source, objects).is_some_and(|removal| removal.confirmed)
}

/// Returns the sources whose list is held, with the reason, sorted by name.
pub fn held(objects: &Objects) -> impl Iterator<Item = (&Source, &str)> {
    let held = |object: &Arc<Object>| removal_of(object).is_some();
    let sources = objects.of_kind(Kind::Source).filter(move |object| held(object));
    sources.map(|object| {
        let status = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
        let condition = status.into_iter().find(|one| &*one.aspect == APPLIED);
        (&object.source, condition.map_or("", |condition| &*condition.message))
    })
}

/// Returns all sources that have their own object (kind `Source`), and whether the list of each is
/// held, sorted by name.
pub fn sources(objects: &Objects) -> impl Iterator<Item = (&str, bool)> {
    let is_held = |object: &Arc<Object>| removal_of(object).is_some();
    objects.of_kind(Kind::Source).map(move |object| (object.source.as_str(), is_held(object)))
}

/// Returns the reason why the list of a source is held, if it is.
pub(super) fn held_reason(source: &Source, objects: &Objects) -> Option<Box<str>> {
    held(objects).find(|(of, _)| *of == source).map(|(_, message)| message.into())
}

impl Removal {
    fn is_same(&self, other: &Removal) -> bool {
        self.digest == other.digest && (self.removed, self.of) == (other.removed, other.of)
    }
}

impl Held {
    /// Returns the changes that record the removal on the source's own object; empty if it is
    /// recorded already.
    pub fn record(&self, objects: &Objects, now: SystemTime) -> Batch {
        let Held { source_of, removal, .. } = self;
        if recorded(source_of, objects).as_ref() == Some(removal) {
            return Batch::new();
        }
        let mut batch = Batch::new();
        if lease_status::own_object(source_of, objects).is_none() {
            batch.extend(
                lease_status::new_own_object(source_of, SourceSpec::default()).map(Change::put),
            );
        }
        let condition = (ConditionStatus::False, "RemovalHeld", self.to_string());
        batch.extend(record_change(source_of, objects, Some(removal), condition, now));
        batch
    }
}

impl From<Held> for ChangeError {
    fn from(held: Held) -> ChangeError {
        ChangeError::new("", held.to_string(), "").with_class(ErrorClass::Held)
    }
}

/// Returns the held list if the batch removes more than the rule permits.
fn check_limit(
    source: &Source,
    objects: &Objects,
    batch: &[Change],
    limit: RemovalLimit,
) -> Option<Held> {
    let removed_key = |change: &Change| match change {
        Change::Delete { key, .. } if key.source == *source => Some(key.clone()),
        _ => None,
    };
    let removed_keys: Vec<Key> = batch.iter().filter_map(removed_key).collect();
    let is_current = |object: &&Arc<Object>| {
        object.source == *source
            && object.kind().is_desired_state()
            && object.lifecycle().deletion.is_none()
    };
    let (of, removed) = (objects.all().filter(is_current).count(), removed_keys.len());
    let services = objects.of_kind(Kind::Service).filter(is_current).count();
    let is_service = |key: &&Key| key.kind == Kind::Service;
    let removed_services = removed_keys.iter().filter(is_service).count();
    let percent = usize::from(limit.percent);
    let description = match () {
        () if removed == 0 => return None,
        () if removed == of => all(of, "object"),
        () if removed_services > 0 && removed_services == services => all(services, "service"),
        () if of >= REMOVAL_FLOOR && removed * 100 > percent * of => format!(
            "{removed} of {of} objects, more than the {percent} % of control.max_removal_percent"
        ),
        () => return None,
    };
    let named: Vec<String> = removed_keys
        .iter()
        .take(NAMED_MAX)
        .map(|key| format!("{} {}", key.kind, key.name))
        .collect();
    let more = match removed.saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let description = format!("{description} ({}{more})", named.join(", "));
    let mut hasher = DefaultHasher::new();
    removed_keys.hash(&mut hasher);
    let digest = format!("{:016x}", hasher.finish()).into();
    let removal = Removal { removed, of, digest, confirmed: false };
    Some(Held { source_of: source.clone(), removal, description })
}

fn all(count: usize, noun: &str) -> String {
    match count {
        1 => format!("the only {noun} of the source"),
        count => format!("all {count} {noun}s of the source"),
    }
}

/// Returns the removal recorded on the source's own object.
fn recorded(source: &Source, objects: &Objects) -> Option<Removal> {
    removal_of(lease_status::own_object(source, objects)?)
}

fn removal_of(object: &Object) -> Option<Removal> {
    let held = object.lifecycle().progress.as_ref()?.get("held")?;
    Removal::deserialize(held).ok()
}

/// Returns the change that records a removal, or clears the record for `None`, and sets the
/// condition [`APPLIED`].
fn record_change(
    source: &Source,
    objects: &Objects,
    removal: Option<&Removal>,
    (status, reason, message): (ConditionStatus, &str, String),
    now: SystemTime,
) -> Option<Change> {
    let own = lease_status::own_object(source, objects);
    let mut all = own.and_then(|own| own.lifecycle().status.clone()).unwrap_or_default();
    let before = all.conditions.iter().find(|one| &*one.aspect == APPLIED);
    let since = before.filter(|before| before.status == status).map_or(now, |before| before.since);
    let (aspect, reason, message) = (APPLIED.into(), reason.into(), message.into());
    let condition = Condition { aspect, status, reason, message, since };
    all.conditions.retain(|one| &*one.aspect != APPLIED);
    all.conditions.push(condition);
    let observed = own.map_or(0, |own| own.generation);
    let progress = removal.map_or_else(|| json!({}), |removal| json!({ "held": removal }));
    let status = Status { observed, ..all };
    Some(Change::Progress {
        key: lease_status::own_key(source)?,
        status,
        progress: Arc::new(progress),
    })
}
