//! What a handler notes for the audit log about its change. `authorize` (access.rs) passes it to
//! the handler as an extension of the request.

use std::sync::Arc;

use axum::http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use state::object::{Change, Key, Object, Objects};

use super::entry::{Entry, ObjectChange};
use crate::reason::Reason;

/// Maximum size of a value before or after a change, in bytes of JSON.
const MAX_VALUE: usize = 16 << 10;
/// Maximum size of all values of an entry, in bytes of JSON.
const MAX_VALUES: usize = 48 << 10;
/// Maximum number of objects that an entry lists; further ones are only counted.
const MAX_OBJECTS: usize = 200;

/// Notes about one request. Clones share them.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    changes: Vec<ObjectChange>,
    more_objects: u64,
    bytes: usize,
    revision: Option<u64>,
    changes_nothing: bool,
}

impl Notes {
    /// Notes the change of one object, in place of what was noted before.
    pub(crate) fn set(&self, key: &Key, before: Option<&Object>, after: Option<&Object>) {
        let mut noted = self.0.lock();
        *noted = Noted::default();
        noted.push(key, before, after);
    }

    /// Notes the objects that a list of changes puts or deletes, in place of what was noted before;
    /// `objects` is the state before. Objects that stay as they are are left out.
    pub(crate) fn set_all(&self, changes: &[Change], objects: &Objects) {
        let mut noted = self.0.lock();
        *noted = Noted::default();
        for change in changes {
            match change {
                Change::Put { object, .. } => {
                    let key = object.key();
                    let before = objects.get(&key);
                    if before.is_none_or(|before| !before.same_desired_state(object)) {
                        noted.push(&key, before.map(|before| &**before), Some(object));
                    }
                }
                Change::Delete { key, .. } => {
                    noted.push(key, objects.get(key).map(|before| &**before), None);
                }
                Change::Finalizer { .. } | Change::Status { .. } | Change::Progress { .. } => {}
            }
        }
    }

    /// Notes a change of something that is not an object of the store (`drain`), in place of what
    /// was noted before.
    pub fn values(&self, object: &str, before: Option<Value>, after: Option<Value>) {
        let mut noted = self.0.lock();
        *noted = Noted::default();
        noted.changes.push(ObjectChange { object: object.to_owned(), before, after });
    }

    /// Notes that the change is on disk, and the revision of the store after it.
    pub(crate) fn stored(&self, revision: u64) {
        self.0.lock().revision = Some(revision);
    }

    /// Notes that the request changes nothing, as a dry run: it is recorded only if it is rejected.
    pub(crate) fn no_change(&self) {
        self.0.lock().changes_nothing = true;
    }

    /// Adds the notes and the response to an entry. Returns whether to record it.
    pub(crate) fn add_to(
        &self,
        entry: &mut Entry,
        status: StatusCode,
        reason: Option<&Reason>,
    ) -> bool {
        entry.ended(status, reason);
        let noted = std::mem::take(&mut *self.0.lock());
        entry.changes = noted.changes;
        (entry.more_objects, entry.revision) = (noted.more_objects, noted.revision);
        !noted.changes_nothing || entry.is_rejected()
    }
}

impl Noted {
    fn push(&mut self, key: &Key, before: Option<&Object>, after: Option<&Object>) {
        if self.changes.len() == MAX_OBJECTS {
            self.more_objects += 1;
            return;
        }
        let object = format!("{}/{}", key.kind.plural(), key.name);
        let (before, after) = (before.map(|one| self.value(one)), after.map(|one| self.value(one)));
        self.changes.push(ObjectChange { object, before, after });
    }

    /// Returns the desired state of an object, or its size if it is too large. Objects name secrets
    /// and never contain them.
    fn value(&mut self, object: &Object) -> Value {
        let mut json = serde_json::to_value(object).unwrap_or_default();
        if let Some(map) = json.as_object_mut() {
            map.retain(|field, _| ["labels", "annotations", "spec"].contains(&field.as_str()));
        }
        let bytes = json.to_string().len();
        if bytes > MAX_VALUE || self.bytes + bytes > MAX_VALUES {
            return json!({ "omitted_bytes": bytes });
        }
        self.bytes += bytes;
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, annotation: &str) -> Object {
        let annotations = json!({ "note": annotation });
        let json = json!({
            "kind": "Service", "name": name, "annotations": annotations, "spec": { "mss": 1400 },
        });
        Object::from_json(&json).unwrap()
    }

    fn entry(notes: &Notes) -> Entry {
        let mut entry = Entry::offline("test", "");
        notes.add_to(&mut entry, StatusCode::OK, None);
        entry
    }

    #[test]
    fn desired_state_is_noted_before_and_after() {
        let (notes, old, new) = (Notes::default(), service("a/b", "old"), service("a/b", "new"));
        notes.set(&old.key(), Some(&old), Some(&new));
        let change = &entry(&notes).changes[0];
        assert_eq!(change.object, "services/a/b");
        let before = change.before.as_ref().unwrap();
        assert_eq!(before["annotations"], json!({ "note": "old" }));
        assert!(before["spec"]["mss"] == 1400 && before.get("status").is_none(), "{before}");
        assert_eq!(change.after.as_ref().unwrap()["annotations"]["note"], "new");
    }

    #[test]
    fn objects_and_their_sizes_are_bounded() {
        let notes = Notes::default();
        let large = service("large", &"x".repeat(MAX_VALUE));
        notes.set(&large.key(), None, Some(&large));
        let omitted = entry(&notes).changes[0].after.clone().unwrap();
        assert!(omitted["omitted_bytes"].as_u64().unwrap() > MAX_VALUE as u64, "{omitted}");
        let many = (0..MAX_OBJECTS + 3)
            .map(|number| Change::put(service(&format!("s{number}"), &"y".repeat(1000))));
        notes.set_all(&many.collect::<Vec<_>>(), &Objects::default());
        let entry = entry(&notes);
        assert_eq!((entry.changes.len(), entry.more_objects), (MAX_OBJECTS, 3));
        assert!(entry.line().len() < events::line_files::MAX_LINE, "{}", entry.line().len());
        assert!(entry.changes[0].after.as_ref().unwrap()["spec"].is_object());
    }

    #[test]
    fn dry_run_is_recorded_only_if_it_is_rejected() {
        for (status, is_recorded) in [
            (StatusCode::OK, false),
            (StatusCode::UNPROCESSABLE_ENTITY, true),
            (StatusCode::INTERNAL_SERVER_ERROR, false),
        ] {
            let notes = Notes::default();
            notes.no_change();
            let mut entry = Entry::offline("test", "");
            assert_eq!(notes.add_to(&mut entry, status, None), is_recorded, "{status}");
        }
    }

    #[test]
    fn unchanged_objects_are_left_out() {
        let (notes, same, new) = (Notes::default(), service("same", "x"), service("new", "x"));
        let mut objects = Objects::default();
        objects.apply(&Change::put(same.clone()), std::time::SystemTime::UNIX_EPOCH).unwrap();
        notes.set_all(&[Change::put(same.clone()), Change::put(new)], &objects);
        assert_eq!(entry(&notes).changes.len(), 1);
        notes.set_all(&[Change::delete(same.key())], &objects);
        let entry = entry(&notes);
        assert!(entry.changes[0].before.is_some() && entry.changes[0].after.is_none());
    }
}
