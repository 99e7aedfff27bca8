//! Endpoints of backup and restore: all objects at one revision, and a list of objects that is
//! stored as a whole or not at all.
//!
//! ```text
//!   GET  /v1/backup    the desired state of all sources
//!   POST /v1/restore   creates and replaces objects of the API, in one transaction
//! ```
//! A restore deletes nothing: an object of the API that the list does not contain is reported as
//! left. An object of another source in the list is an error: only that source may write it.

use std::collections::HashSet;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use state::name::{Name, Source};
use state::object::{API, Change, ChangeError, ErrorClass, Kind, Object, Objects};
use state::store::WriteRequest;

use crate::access::Access;
use crate::audit::Notes;
use crate::body::{Body, Content};
use crate::control::{Api, wait_until_in_force};
use crate::problem::Problem;
use crate::query::{NoQuery, QueryParams, WriteQuery};
use crate::role::Role;
use crate::route::{Operation, Page, Routes, Stored, get, post};
use crate::sources::parse_objects;
use crate::store_write;
use crate::wait::WrittenObject;

/// Maximum size in bytes of the list of a restore (64 MiB). A list of 100,000 objects fits.
pub const MAX_RESTORE_BYTES: usize = 64 << 20;

pub(crate) fn routes() -> Routes<Api> {
    let about = "Reads the desired state of all sources, at one revision.";
    let backup = get(backup, Access::Read(Role::Read), "backup", about).with(|operation| {
        let items = desired_object(operation);
        let page = Page::of(operation, items);
        let about = "All objects, without status, and without those that are being deleted.";
        operation.content(200, about, page);
    });
    let about = "Creates and replaces objects of the API, all of them or none.";
    let detail = "Existing objects are overwritten, whatever their revision. Objects of the API \
                  that the list does not contain are left as they are.";
    let problems = ["foreign", "deleting", "not-in-force", "store-timeout"];
    let mut restore = post(restore, Access::Change(Role::Admin), "restore", about);
    restore = restore.detail(detail).fails(&problems);
    restore = restore.good("What was done with each object.");
    restore.handler = restore.handler.layer(DefaultBodyLimit::max(MAX_RESTORE_BYTES));
    Routes::new().add("/backup", [backup]).add("/restore", [restore])
}

/// Returns the schema of an object of any kind that can be written.
fn desired_object(operation: &mut Operation<'_>) -> Value {
    let kinds = Kind::ALL.iter().filter(|kind| kind.is_desired_state());
    let kinds: Vec<Value> = kinds.map(|kind| operation.of_kind(*kind)).collect();
    json!({ "anyOf": kinds })
}

/// The body of a restore: a list of objects.
struct DesiredObjects;

impl Content for DesiredObjects {
    const MAX_BYTES: usize = MAX_RESTORE_BYTES;

    fn schema(operation: &mut Operation<'_>) -> Value {
        json!({ "type": "array", "items": desired_object(operation) })
    }
}

/// What a restore does with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RestoreAction {
    /// There was no such object of the API.
    Created,
    /// The desired state of the object differed.
    Replaced,
    /// The object had this desired state already.
    Unchanged,
    /// The list does not contain the object; it stays.
    Left,
}

/// An object of the API, and what a restore does with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoredObject {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    #[schemars(with = "String")]
    pub name: Name,
    /// What is done with it.
    pub action: RestoreAction,
}

/// Result of a restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restored {
    /// Revision of the store after the restore, or with `dry_run` the current one.
    pub revision: u64,
    /// The objects of the list, then those that are left, each sorted by kind and name.
    pub objects: Vec<RestoredObject>,
}

/// `GET /v1/backup`.
async fn backup(State(api): State<Api>, _: QueryParams<NoQuery>) -> Result<Response, Problem> {
    let objects = api.store.objects();
    let page = move || {
        let items: Result<Vec<Value>, _> = objects.desired().map(serde_json::to_value).collect();
        Ok::<_, serde_json::Error>(Page { revision: objects.revision(), items: items?, next: None })
    };
    let page = tokio::task::spawn_blocking(page).await.map_err(Problem::internal)?;
    Ok(Json(page.map_err(Problem::internal)?).into_response())
}

/// `POST /v1/restore`.
async fn restore(
    State(api): State<Api>,
    Extension(notes): Extension<Notes>,
    QueryParams(query): QueryParams<WriteQuery>,
    body: Body<DesiredObjects>,
) -> Result<Stored<Restored>, Problem> {
    let timeout = query.timeout()?;
    // The list may be large: it is parsed and compared on a blocking thread.
    let before = api.store.objects();
    let read = move || {
        let desired = checked(parse_objects(&body.json()?)?)?;
        let plan = Plan::new(desired, &before)?;
        let written = timeout.map(|timeout| (WrittenObject::of(&plan.puts, &before), timeout));
        Ok::<_, Problem>((plan, written, before))
    };
    let (plan, written, mut before) =
        tokio::task::spawn_blocking(read).await.map_err(Problem::internal)??;
    let now = SystemTime::now();
    notes.set_all(&plan.puts, &before);
    if query.dry_run {
        notes.no_change();
        let revision = before.revision();
        plan.puts.iter().try_for_each(|change| before.apply(change, now).map(drop))?;
        let restored = Restored { revision, objects: plan.objects };
        return Ok(Stored { in_force: true, body: restored });
    }
    // All puts are one transaction. Those without a difference change nothing.
    let revision = store_write::write(&api, WriteRequest::new(plan.puts, now)).await?;
    notes.stored(revision);
    let in_force = match written {
        Some((written, timeout)) => {
            wait_until_in_force(&api, revision, (written, false), timeout).await?
        }
        None => true,
    };
    Ok(Stored { in_force, body: Restored { revision, objects: plan.objects } })
}

/// Returns the objects, or an error if one of them cannot be written or occurs twice.
fn checked(desired: Vec<Object>) -> Result<Vec<Object>, Problem> {
    let mut keys = HashSet::new();
    for object in &desired {
        let key = object.key();
        let invalid = |field: &str, wrong: &str, allowed: &str| {
            Problem::from(ChangeError::new(field, wrong, allowed).with_object(&key))
        };
        if let Some(why) = object.kind().read_only_reason() {
            return Err(invalid("kind", "objects of this kind are not restored", why));
        }
        if object.source.as_str() != API {
            return Err(Problem::foreign(object.source.as_str()));
        }
        if !keys.insert(key.clone()) {
            return Err(invalid("name", "the object is in the list twice", "keep one of them"));
        }
    }
    Ok(desired)
}

/// The changes of a restore, and what it does with each object.
struct Plan {
    puts: Vec<Change>,
    objects: Vec<RestoredObject>,
}

impl Plan {
    /// Compares a list with the current objects. An object that is being deleted is an error even
    /// if its desired state is that of the list: it would be gone after the restore.
    fn new(mut desired: Vec<Object>, current: &Objects) -> Result<Plan, Problem> {
        desired.sort_by_key(Object::key);
        let mut objects = Vec::with_capacity(desired.len());
        for object in &desired {
            let key = object.key();
            let action = match current.get(&key) {
                Some(old) if old.lifecycle().deletion.is_some() => {
                    let allowed = format!("wait until it is removed (`weir get {}`)", key.kind);
                    let error = ChangeError::new("", "the object is being deleted", allowed);
                    return Err(error.with_class(ErrorClass::Deleting).with_object(&key).into());
                }
                Some(old) if old.same_desired_state(object) => RestoreAction::Unchanged,
                Some(_) => RestoreAction::Replaced,
                None => RestoreAction::Created,
            };
            objects.push(RestoredObject { kind: key.kind, name: key.name, action });
        }
        let listed: HashSet<_> = desired.iter().map(Object::key).collect();
        let api = Source::new(API);
        let left = current.all().filter(|object| {
            let is_desired = object.kind().is_desired_state() && object.source == api;
            is_desired && !listed.contains(&object.key())
        });
        objects.extend(left.map(|object| RestoredObject {
            kind: object.kind(),
            name: object.name.clone(),
            action: RestoreAction::Left,
        }));
        Ok(Plan { puts: desired.into_iter().map(Change::put).collect(), objects })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_being_deleted_is_an_error_even_without_a_difference() {
        let json = json!({ "kind": "Service", "name": "a", "spec": {} });
        let object = Object::from_json(&json).unwrap();
        let (key, now) = (object.key(), SystemTime::UNIX_EPOCH);
        let mut objects = Objects::default();
        let action = |objects: &Objects| {
            Plan::new(vec![object.clone()], objects).map(|plan| plan.objects[0].action)
        };
        assert_eq!(action(&objects), Ok(RestoreAction::Created));
        objects.apply(&Change::put(object.clone()), now).unwrap();
        let finalizer = Change::Finalizer { key: key.clone(), name: "f".into(), present: true };
        objects.apply(&finalizer, now).unwrap();
        assert_eq!(action(&objects), Ok(RestoreAction::Unchanged));
        objects.apply(&Change::delete(key), now).unwrap();
        let problem = action(&objects).unwrap_err();
        assert_eq!(problem.status, 409, "{problem}");
        assert!(problem.to_string().contains("Service a of api: the object is being deleted"));
    }
}
