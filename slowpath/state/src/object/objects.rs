//! Snapshots of all objects, changes of objects, and the history of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Change, ChangeError, Condition, ErrorClass, Key, Kind, Lifecycle, Object, Status};
use crate::name::{Name, Source};
use crate::shared_btree::SharedBTree;

/// Objects by kind, name and source. A clone shares the objects, is cheap, and is a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    revision: u64,
    all: SharedBTree<Key, Arc<Object>>,
}

/// Effect of one change on one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Revision of the change. No two changes have the same revision.
    pub revision: u64,
    /// Object before the change; `None` if it was created.
    pub before: Option<Arc<Object>>,
    /// Object after the change; `None` if it was removed.
    pub after: Option<Arc<Object>>,
}

impl Event {
    /// Returns the object after the change, or before it if it was removed.
    pub fn object(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

impl Objects {
    /// Returns the revision; each change increments it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the object with a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.all.get(key)
    }

    /// Returns all objects, sorted by kind, name and source.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.all.iter().map(|(_, object)| object)
    }

    /// Returns the desired state of all sources, sorted by kind, name and source: the objects of
    /// kinds that operators and controllers write, except those in deletion, without lifecycle
    /// data.
    pub fn desired(&self) -> impl Iterator<Item = Object> {
        let desired = self.all().filter(|object| {
            object.kind().is_desired_state() && object.lifecycle().deletion.is_none()
        });
        desired.map(|object| Object::clone(object).with_lifecycle(Lifecycle::default()))
    }

    /// Returns all objects of a kind, sorted by name and source.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let from = self.all.from(|key| key.kind < kind);
        from.map(|(_, object)| object).take_while(move |object| object.kind() == kind)
    }

    /// Returns the objects of a kind after a key, sorted by name and source; all of them for
    /// `None`.
    pub fn after(&self, kind: Kind, after: Option<&Key>) -> impl Iterator<Item = &Arc<Object>> {
        let before = |key: &Key| key.kind < kind || after.is_some_and(|after| key <= after);
        let from = self.all.from(before);
        from.map(|(_, object)| object).take_while(move |object| object.kind() == kind)
    }

    /// Returns the objects of a kind and name of all sources, sorted by source.
    pub fn named(&self, kind: Kind, name: &Name) -> impl Iterator<Item = &Arc<Object>> {
        let from = self.all.from(|key| (key.kind, &key.name) < (kind, name));
        let same = move |object: &&Arc<Object>| object.kind() == kind && object.name == *name;
        from.map(|(_, object)| object).take_while(same)
    }

    /// Returns an event for each object, as if it had been created with its current revision.
    pub fn as_events(&self) -> Vec<Event> {
        let event = |object: &Arc<Object>| Event {
            revision: object.revision,
            before: None,
            after: Some(object.clone()),
        };
        self.all().map(event).collect()
    }

    /// Returns the events from an earlier snapshot to this one, at most one for each object: first
    /// the removals, all with the revision of this snapshot, then the other changes, sorted by key.
    /// Used for readers so far behind that a [`History`] lacks events after their revision.
    pub fn events_since(&self, before: &Objects) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, old) in before.all.iter() {
            if self.all.get(key).is_none() {
                let (revision, before) = (self.revision, Some(old.clone()));
                events.push(Event { revision, before, after: None });
            }
        }
        for (key, new) in self.all.iter() {
            let old = before.all.get(key);
            if old.is_none_or(|old| !Arc::ptr_eq(old, new)) {
                let (before, after) = (old.cloned(), Some(new.clone()));
                events.push(Event { revision: new.revision, before, after });
            }
        }
        events
    }

    /// Applies a change and returns its event; `None` if nothing changes. An error changes nothing.
    pub fn apply(
        &mut self,
        change: &Change,
        now: SystemTime,
    ) -> Result<Option<Event>, ChangeError> {
        match change {
            Change::Put { object, expected } => self.put(object, *expected),
            Change::Delete { key, expected } => self.delete(key, *expected, now),
            Change::Finalizer { key, name, present } => self.set_finalizer(key, name, *present),
            Change::Status { key, observed, conditions } => {
                self.set_status(key, *observed, conditions)
            }
            Change::Progress { key, status, progress } => self.set_progress(key, status, progress),
        }
    }

    /// Restores an object that an earlier process wrote, with its revision.
    pub(crate) fn restore(&mut self, object: Arc<Object>) {
        self.restore_revision(object.revision);
        self.all.insert(object.key(), object);
    }

    /// Restores the removal of an object, with its revision.
    pub(crate) fn restore_removal(&mut self, key: &Key, revision: u64) {
        self.restore_revision(revision);
        self.all.remove(key);
    }

    /// Raises the revision to at least this one, so that no revision is assigned twice, not even
    /// that of a removed object.
    pub(crate) fn restore_revision(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Returns the changes from the current objects of a source to exactly `desired`. Deletions are
    /// first, so that later changes can use the addresses that the deletions release. Objects of
    /// read-only kinds (the source's own object, and the appliance) are never deleted, and objects
    /// in deletion are not deleted again.
    pub fn changes_to(&self, source: &Source, desired: Vec<Object>) -> Vec<Change> {
        let named: std::collections::HashSet<Key> = desired.iter().map(Object::key).collect();
        let old = self.all.iter().filter(|(key, _)| key.source == *source);
        let stays = |key: &Key| !key.kind.is_desired_state() || named.contains(key);
        let obsolete = old.filter(|(key, o)| !stays(key) && o.lifecycle().deletion.is_none());
        let mut changes: Vec<Change> =
            obsolete.map(|(key, _)| Change::delete(key.clone())).collect();
        let differs = |o: &Object| self.get(&o.key()).is_none_or(|old| !old.same_desired_state(o));
        changes.extend(desired.into_iter().filter(differs).map(Change::put));
        changes
    }

    fn put(&mut self, new: &Object, expected: Option<u64>) -> Result<Option<Event>, ChangeError> {
        let key = new.key();
        let old = self.all.get(&key);
        check_revision(&key, old.map_or(0, |old| old.revision), expected)?;
        let mut next = match old {
            Some(old) if old.same_desired_state(new) => return Ok(None),
            Some(old) if old.lifecycle().deletion.is_some() => {
                let finalizers = old.lifecycle().finalizers.join(", ");
                let wrong = "the object is being deleted";
                let allowed = format!("wait until it is removed: {finalizers} must clean up first");
                return Err(ChangeError::new("", wrong, allowed)
                    .with_class(ErrorClass::Deleting)
                    .with_object(&key));
            }
            Some(old) => Object {
                labels: new.labels.clone(),
                annotations: new.annotations.clone(),
                spec: new.spec.clone(),
                ..Object::clone(old)
            },
            None => new.clone().with_lifecycle(Lifecycle::default()),
        };
        new.spec.check().map_err(|error| error.with_object(&key))?;
        next.generation = self.revision + 1;
        Ok(Some(self.write(key, Some(next))))
    }

    fn delete(
        &mut self,
        key: &Key,
        expected: Option<u64>,
        now: SystemTime,
    ) -> Result<Option<Event>, ChangeError> {
        let old = self.existing(key)?;
        check_revision(key, old.revision, expected)?;
        let lifecycle = old.lifecycle();
        if lifecycle.finalizers.is_empty() {
            return Ok(Some(self.write(key.clone(), None)));
        }
        if lifecycle.deletion.is_some() {
            return Ok(None);
        }
        let lifecycle = Lifecycle { deletion: Some(now), ..lifecycle.clone() };
        let next = Object::clone(old).with_lifecycle(lifecycle);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn set_finalizer(
        &mut self,
        key: &Key,
        name: &str,
        present: bool,
    ) -> Result<Option<Event>, ChangeError> {
        let old = self.existing(key)?;
        let mut lifecycle = old.lifecycle().clone();
        if lifecycle.finalizers.iter().any(|finalizer| **finalizer == *name) == present {
            return Ok(None);
        }
        if present && lifecycle.deletion.is_some() {
            let allowed = "add finalizers before requesting the deletion";
            let error = ChangeError::new("finalizers", "the object is being deleted", allowed);
            return Err(error.with_class(ErrorClass::Deleting).with_object(key));
        }
        lifecycle.finalizers.retain(|finalizer| **finalizer != *name);
        if present {
            lifecycle.finalizers.push(name.into());
        }
        let is_removed = lifecycle.deletion.is_some() && lifecycle.finalizers.is_empty();
        let next = Object::clone(old).with_lifecycle(lifecycle);
        Ok(Some(self.write(key.clone(), (!is_removed).then_some(next))))
    }

    fn set_status(
        &mut self,
        key: &Key,
        observed: u64,
        conditions: &[Condition],
    ) -> Result<Option<Event>, ChangeError> {
        let old = self.existing(key)?;
        let mut status = old.lifecycle().status.clone().unwrap_or_default();
        status.observed = observed;
        for new in conditions {
            match status.conditions.iter_mut().find(|old| old.aspect == new.aspect) {
                Some(old) => {
                    let since = if old.status == new.status { old.since } else { new.since };
                    *old = Condition { since, ..new.clone() };
                }
                None => status.conditions.push(new.clone()),
            }
        }
        if old.lifecycle().status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let lifecycle = Lifecycle { status: Some(status), ..old.lifecycle().clone() };
        let next = Object::clone(old).with_lifecycle(lifecycle);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn set_progress(
        &mut self,
        key: &Key,
        status: &Status,
        progress: &Arc<serde_json::Value>,
    ) -> Result<Option<Event>, ChangeError> {
        let old = self.existing(key)?;
        let (status, progress) = (Some(status.clone()), Some(Arc::clone(progress)));
        let lifecycle = Lifecycle { status, progress, ..old.lifecycle().clone() };
        if *old.lifecycle() == lifecycle {
            return Ok(None);
        }
        let next = Object::clone(old).with_lifecycle(lifecycle);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn existing(&self, key: &Key) -> Result<&Arc<Object>, ChangeError> {
        self.all.get(key).ok_or_else(|| {
            let allowed = format!("use an existing name (`weir get {}`)", key.kind.plural());
            ChangeError::new("name", "there is no such object", allowed)
                .with_class(ErrorClass::NotFound)
                .with_object(key)
        })
    }

    fn write(&mut self, key: Key, next: Option<Object>) -> Event {
        self.revision += 1;
        let revision = self.revision;
        let after = next.map(|next| Arc::new(Object { revision, ..next }));
        let before = match &after {
            Some(after) => self.all.insert(key, after.clone()),
            None => self.all.remove(&key),
        };
        Event { revision, before, after }
    }
}

/// Rejects a change if the object's revision is not the expected one.
fn check_revision(key: &Key, revision: u64, expected: Option<u64>) -> Result<(), ChangeError> {
    match expected {
        Some(expected) if expected != revision => {
            let wrong = match (expected, revision) {
                (0, _) => format!("the object exists already, at revision {revision}"),
                (_, 0) => "the object no longer exists".to_owned(),
                _ => format!("revision {expected} was expected, but the object is at {revision}"),
            };
            let allowed = "read the object again, and repeat the change";
            Err(ChangeError::new("revision", wrong, allowed)
                .with_class(ErrorClass::Conflict)
                .with_object(key))
        }
        _ => Ok(()),
    }
}

/// The newest events, up to a fixed number.
#[derive(Debug)]
pub struct History {
    events: VecDeque<Event>,
    /// Maximum number of events.
    capacity: usize,
    /// Revision of the last event that was dropped.
    dropped: u64,
}

/// Error: some events after a revision were dropped, and all objects have to be read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("changes up to revision {dropped} are no longer available; read all objects again")]
pub struct TooOld {
    /// Revision of the last event that was dropped.
    pub dropped: u64,
}

impl History {
    /// Creates a history that begins after a revision and keeps at most `capacity` events.
    pub fn new(revision: u64, capacity: usize) -> History {
        History { events: VecDeque::new(), capacity, dropped: revision }
    }

    /// Appends events, in order, and drops the oldest ones over the capacity.
    pub fn append(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.events.push_back(event);
            if self.events.len() > self.capacity
                && let Some(oldest) = self.events.pop_front()
            {
                self.dropped = oldest.revision;
            }
        }
    }

    /// Returns the events after a revision, oldest first; an error if some of them were dropped.
    pub fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Event>, TooOld> {
        if revision < self.dropped {
            return Err(TooOld { dropped: self.dropped });
        }
        let from = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(from..))
    }
}
