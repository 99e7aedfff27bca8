//! Immutable snapshot of all objects, its changes, and the history of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Change, Condition, Key, Kind, Life, Object, Refusal, Status, Why};
use crate::name::{Name, Source};
use crate::sorted::Sorted;

/// Objects by kind, name and source. Cheap to clone; a clone is a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    revision: u64,
    all: Sorted<Key, Arc<Object>>,
}

/// Effect of one change on one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Revision of the change; each change has its own.
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

    /// Returns the object of a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.all.get(key)
    }

    /// Returns all objects, sorted by kind, name and source.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.all.iter().map(|(_, object)| object)
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

    /// Returns the objects of all sources with a name, sorted by source.
    pub fn named(&self, kind: Kind, name: &Name) -> impl Iterator<Item = &Arc<Object>> {
        let from = self.all.from(|key| (key.kind, &key.name) < (kind, name));
        let same = move |object: &&Arc<Object>| object.kind() == kind && object.name == *name;
        from.map(|(_, object)| object).take_while(same)
    }

    /// Returns an event for each object, as if it had just been created.
    pub fn as_events(&self) -> Vec<Event> {
        let event = |object: &Arc<Object>| Event {
            revision: object.revision,
            before: None,
            after: Some(object.clone()),
        };
        self.all().map(event).collect()
    }

    /// Returns the events from an earlier snapshot to this one, at most one for each object, for
    /// readers so far behind that a [`History`] has forgotten their revision.
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

    /// Applies a change and returns its event; `None` if nothing changes. After an error nothing is
    /// changed.
    pub fn apply(&mut self, change: &Change, now: SystemTime) -> Result<Option<Event>, Refusal> {
        match change {
            Change::Put { object, expected } => self.put(object, *expected),
            Change::Delete { key, expected } => self.delete(key, *expected, now),
            Change::Finalizer { key, name, held } => self.finalize(key, name, *held),
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

    /// Restores the deletion of an object.
    pub(crate) fn restore_gone(&mut self, key: &Key, revision: u64) {
        self.restore_revision(revision);
        self.all.remove(key);
    }

    /// Restores the revision, so that none is assigned twice, even those of removed objects.
    pub(crate) fn restore_revision(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Returns the changes from the current objects of a source to exactly `wanted`, deletions
    /// first, so that what they release is free for the following changes. Objects of read-only
    /// kinds are never deleted: the source's own object, and the appliance.
    pub fn towards(&self, source: &Source, wanted: Vec<Object>) -> Vec<Change> {
        let named: std::collections::HashSet<Key> = wanted.iter().map(Object::key).collect();
        let old = self.all.iter().filter(|(key, _)| key.source == *source);
        let stays = |key: &Key| !key.kind.is_wanted() || named.contains(key);
        let gone = old.filter(|(key, o)| !stays(key) && o.life().deletion.is_none());
        let mut changes: Vec<Change> = gone.map(|(key, _)| Change::delete(key.clone())).collect();
        let news = |o: &Object| self.get(&o.key()).is_none_or(|old| !old.wants_as(o));
        changes.extend(wanted.into_iter().filter(news).map(Change::put));
        changes
    }

    fn put(&mut self, new: &Object, expected: Option<u64>) -> Result<Option<Event>, Refusal> {
        let key = new.key();
        let old = self.all.get(&key);
        seen(&key, old.map_or(0, |old| old.revision), expected)?;
        let mut next = match old {
            Some(old) if old.wants_as(new) => return Ok(None),
            Some(old) if old.life().deletion.is_some() => {
                let who = old.life().finalizers.join(", ");
                let wrong = "it is being deleted";
                let allowed = format!("wait until it is gone: {who} has to clean up");
                return Err(Refusal::new("", wrong, allowed).because(Why::Leaving).of(&key));
            }
            Some(old) => Object {
                labels: new.labels.clone(),
                annotations: new.annotations.clone(),
                spec: new.spec.clone(),
                ..Object::clone(old)
            },
            None => new.clone().with_life(Life::default()),
        };
        new.spec.check().map_err(|refusal| refusal.of(&key))?;
        next.generation = self.revision + 1;
        Ok(Some(self.write(key, Some(next))))
    }

    fn delete(
        &mut self,
        key: &Key,
        expected: Option<u64>,
        now: SystemTime,
    ) -> Result<Option<Event>, Refusal> {
        let old = self.existing(key)?;
        seen(key, old.revision, expected)?;
        let life = old.life();
        if life.finalizers.is_empty() {
            return Ok(Some(self.write(key.clone(), None)));
        }
        if life.deletion.is_some() {
            return Ok(None);
        }
        let life = Life { deletion: Some(now), ..life.clone() };
        let next = Object::clone(old).with_life(life);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn finalize(&mut self, key: &Key, name: &str, held: bool) -> Result<Option<Event>, Refusal> {
        let old = self.existing(key)?;
        let mut life = old.life().clone();
        if life.finalizers.iter().any(|finalizer| **finalizer == *name) == held {
            return Ok(None);
        }
        if held && life.deletion.is_some() {
            let allowed = "clean-up is asked for before the deletion is";
            let refusal = Refusal::new("finalizers", "it is being deleted", allowed);
            return Err(refusal.because(Why::Leaving).of(key));
        }
        life.finalizers.retain(|finalizer| **finalizer != *name);
        if held {
            life.finalizers.push(name.into());
        }
        let gone = life.deletion.is_some() && life.finalizers.is_empty();
        let next = Object::clone(old).with_life(life);
        Ok(Some(self.write(key.clone(), (!gone).then_some(next))))
    }

    fn set_status(
        &mut self,
        key: &Key,
        observed: u64,
        told: &[Condition],
    ) -> Result<Option<Event>, Refusal> {
        let old = self.existing(key)?;
        let mut status = old.life().status.clone().unwrap_or_default();
        status.observed = observed;
        for new in told {
            match status.conditions.iter_mut().find(|old| old.aspect == new.aspect) {
                Some(old) => {
                    let since = if old.status == new.status { old.since } else { new.since };
                    *old = Condition { since, ..new.clone() };
                }
                None => status.conditions.push(new.clone()),
            }
        }
        if old.life().status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let life = Life { status: Some(status), ..old.life().clone() };
        let next = Object::clone(old).with_life(life);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn set_progress(
        &mut self,
        key: &Key,
        status: &Status,
        progress: &Arc<serde_json::Value>,
    ) -> Result<Option<Event>, Refusal> {
        let old = self.existing(key)?;
        let (status, progress) = (Some(status.clone()), Some(Arc::clone(progress)));
        let life = Life { status, progress, ..old.life().clone() };
        if *old.life() == life {
            return Ok(None);
        }
        let next = Object::clone(old).with_life(life);
        Ok(Some(self.write(key.clone(), Some(next))))
    }

    fn existing(&self, key: &Key) -> Result<&Arc<Object>, Refusal> {
        self.all.get(key).ok_or_else(|| {
            let allowed = format!("name one that is there (`weir get {}`)", key.kind.many());
            Refusal::new("name", "there is no such object", allowed).because(Why::Absent).of(key)
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
fn seen(key: &Key, revision: u64, expected: Option<u64>) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != revision => {
            let wrong = match (expected, revision) {
                (0, _) => format!("it exists already, at revision {revision}"),
                (_, 0) => "it doesn't exist any more".to_owned(),
                _ => format!("revision {expected} was expected, but it is at {revision}"),
            };
            let allowed = "read it again, and change what is there now";
            Err(Refusal::new("revision", wrong, allowed).because(Why::Changed).of(key))
        }
        _ => Ok(()),
    }
}

/// Newest events, up to a maximum number.
#[derive(Debug)]
pub struct History {
    events: VecDeque<Event>,
    most: usize,
    /// Revision up to which events are forgotten.
    forgotten: u64,
}

/// Error: the events since a revision are forgotten, and all objects have to be read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what changed up to revision {forgotten} is forgotten: read all objects anew")]
pub struct TooOld {
    /// Last revision whose events are forgotten.
    pub forgotten: u64,
}

impl History {
    /// Creates a history that begins after a revision and keeps at most `most` events.
    pub fn new(revision: u64, most: usize) -> History {
        History { events: VecDeque::new(), most, forgotten: revision }
    }

    /// Appends events, in order.
    pub fn note(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.events.push_back(event);
            if self.events.len() > self.most
                && let Some(oldest) = self.events.pop_front()
            {
                self.forgotten = oldest.revision;
            }
        }
    }

    /// Returns the events after a revision, oldest first.
    pub fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Event>, TooOld> {
        if revision < self.forgotten {
            return Err(TooOld { forgotten: self.forgotten });
        }
        let from = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(from..))
    }
}
