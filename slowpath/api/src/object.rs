//! Endpoints of a single object: GET, PUT, PATCH (RFC 7396) and DELETE.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Extension, FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use state::name::{NAME_BYTES, Name, Source};
use state::object::{API, Change, ErrorClass, Key, Kind, Object};
use state::store::WriteRequest;

use crate::access::Access;
use crate::audit::Notes;
use crate::body::{Body, Content, MergePatch, WholeObject};
use crate::condition::{self, Condition, IfChanged};
use crate::control::{Api, wait_until_in_force};
use crate::path::{PathEntity, Resolved};
use crate::problem::Problem;
use crate::query::{QueryParams, ReadQuery, WriteQuery};
use crate::role::Role;
use crate::route::{self, Describe, Operation, Routes, STILL_APPLYING};
use crate::store_write;
use crate::wait::WrittenObject;

/// Access of the operations that write.
const CHANGE: Access = Access::Change(Role::Admin);
/// Maximum number of attempts at a conditional write that conflicts with concurrent writes.
const MAX_ATTEMPTS: usize = 64;

pub(crate) fn routes() -> Routes<Api> {
    let problems = ["deleting", "not-in-force", "store-timeout", "foreign"];
    let about = "Reads an object.";
    let read = route::get(get, Access::Read(Role::Read), "get{Kind}", about)
        .with(|one| one.object(200, "The object."));
    let about = "Creates or replaces an object; the response is sent when it is on disk.";
    let replace = route::put(put, CHANGE, "put{Kind}", about).fails(&problems).with(|one| {
        one.object(200, "The object.");
        one.object(201, "The new object.");
        one.object(202, STILL_APPLYING);
    });
    let about = "Changes the fields named in the body (RFC 7396); null removes a field.";
    let change = route::patch(patch, CHANGE, "patch{Kind}", about).fails(&problems).with(|one| {
        one.object(200, "The object.");
        one.object(202, STILL_APPLYING);
    });
    let about = "Deletes an object, at once or when its last finalizer is removed.";
    let remove =
        route::delete(delete, CHANGE, "delete{Kind}", about).fails(&problems).with(|one| {
            one.empty(204, "The object was deleted.");
            one.object(202, STILL_APPLYING);
        });
    Routes::new().add("/objects/{kind}/{*name}", [read, replace, change, remove])
}

/// Path parameters of an object.
#[derive(Deserialize, JsonSchema)]
struct ObjectPath {
    #[schemars(skip)]
    kind: String,
    /// Name of the object: `[cluster/]namespace/name`, or a single word.
    #[schemars(length(max = NAME_BYTES))]
    #[schemars(regex(pattern = r"^[A-Za-z0-9._:-]+(/[A-Za-z0-9._:-]+){0,2}$"))]
    name: String,
}

impl PathEntity for ObjectPath {
    type Resolved = (Kind, Name);

    fn resolve(self) -> Result<(Kind, Name), Problem> {
        let kind = kind(&self.kind)?;
        let name = Name::new(&self.name).map_err(|wrong| Problem::not_found(wrong.to_string()))?;
        Ok((kind, name))
    }
}

/// Key of the object to write. Extraction fails with 405 for a read-only kind.
struct WritableKey(Key);

impl<S: Send + Sync> FromRequestParts<S> for WritableKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<WritableKey, Problem> {
        let Resolved((kind, name)) =
            Resolved::<ObjectPath>::from_request_parts(parts, state).await?;
        match kind.read_only_reason() {
            Some(why) => Err(Problem::read_only(why)),
            None => Ok(WritableKey(Key { kind, name, source: Source::new(API) })),
        }
    }
}

impl Describe for WritableKey {
    fn describe(operation: &mut Operation<'_>) {
        Resolved::<ObjectPath>::describe(operation);
        operation.writes();
    }
}

/// Parses the kind in a path; an unknown one is not found.
pub(crate) fn kind(text: &str) -> Result<Kind, Problem> {
    text.parse().map_err(|wrong| Problem::not_found(format!("{wrong}")))
}

/// `GET /v1/objects/KIND/NAME`.
async fn get(
    State(api): State<Api>,
    QueryParams(query): QueryParams<ReadQuery>,
    Resolved((kind, name)): Resolved<ObjectPath>,
    IfChanged(condition): IfChanged,
) -> Result<Response, Problem> {
    let source = if query.source.is_empty() { API } else { query.source.as_str() };
    let key = Key { kind, name, source: Source::new(source) };
    let objects = api.store.objects();
    let Some(object) = objects.get(&key) else {
        let others: Vec<&str> =
            objects.named(key.kind, &key.name).map(|object| object.source.as_str()).collect();
        return Err(Problem::not_found(match others.as_slice() {
            [] => format!("there is no {} {}", key.kind, key.name),
            others => {
                format!("there is no {key}; set `?source=` to one of: {}", others.join(", "))
            }
        }));
    };
    let etag = condition::header(object.revision);
    if condition.is_unchanged(object.revision) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    Ok(([etag], Json(object)).into_response())
}

/// `PUT /v1/objects/KIND/NAME`.
async fn put(
    State(api): State<Api>,
    Extension(notes): Extension<Notes>,
    WritableKey(key): WritableKey,
    QueryParams(query): QueryParams<WriteQuery>,
    condition: Condition,
    body: Body<WholeObject>,
) -> Result<Response, Problem> {
    let (request, json) = Request::of(key, &query, condition, body)?;
    request.write(api, notes, move |key, _| object_from_body(key, json.clone()).map(Some)).await
}

/// `PATCH /v1/objects/KIND/NAME`.
async fn patch(
    State(api): State<Api>,
    Extension(notes): Extension<Notes>,
    WritableKey(key): WritableKey,
    QueryParams(query): QueryParams<WriteQuery>,
    condition: Condition,
    body: Body<MergePatch>,
) -> Result<Response, Problem> {
    let (mut request, patch) = Request::of(key, &query, condition, body)?;
    request.pinned = true;
    let change = move |key: &Key, before: Option<&Arc<Object>>| {
        let Some(before) = before else {
            return Err(absent(key));
        };
        let mut json = serde_json::to_value(&**before).map_err(Problem::internal)?;
        merge(&mut json, &patch);
        object_from_body(key, json).map(Some)
    };
    request.write(api, notes, change).await
}

/// `DELETE /v1/objects/KIND/NAME`.
async fn delete(
    State(api): State<Api>,
    Extension(notes): Extension<Notes>,
    WritableKey(key): WritableKey,
    QueryParams(query): QueryParams<WriteQuery>,
    condition: Condition,
) -> Result<Response, Problem> {
    let timeout = query.timeout()?;
    let request = Request { key, condition, pinned: false, dry_run: query.dry_run, timeout };
    let must_exist = |key: &Key, before: Option<&Arc<Object>>| match before {
        Some(_) => Ok(None),
        None => Err(absent(key)),
    };
    request.write(api, notes, must_exist).await
}

fn absent(key: &Key) -> Problem {
    Problem::not_found(format!("there is no {} {}", key.kind, key.name))
}

/// Builds an object from a request body. `kind` and `name` may be omitted from the body; if
/// present, they must match the path.
fn object_from_body(key: &Key, mut json: Value) -> Result<Object, Problem> {
    if let Some(map) = json.as_object_mut() {
        map.entry("kind").or_insert_with(|| key.kind.as_str().into());
        map.entry("name").or_insert_with(|| key.name.as_str().into());
    }
    let object = Object::from_json(&json)?;
    if object.source.as_str() != API {
        return Err(Problem::foreign(object.source.as_str()));
    }
    for (field, body, path) in [
        ("kind", object.kind().as_str(), key.kind.as_str()),
        ("name", object.name.as_str(), key.name.as_str()),
    ] {
        if body != path {
            let wrong = format!("{field} is `{body}` in the body and `{path}` in the path");
            return Err(Problem { field: Some(field.into()), ..Problem::bad_request(wrong) });
        }
    }
    Ok(object)
}

/// Applies a JSON merge patch (RFC 7396) to `target`.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                map.remove(key);
            }
            value => merge(map.entry(key).or_insert(Value::Null), value),
        }
    }
}

/// A parsed write request.
struct Request {
    key: Key,
    condition: Condition,
    /// Makes the write conditional on the stored revision even without a condition in the request,
    /// because the new object is derived from the stored one.
    pinned: bool,
    dry_run: bool,
    /// How long to wait until the change is in force; `None` without `?wait=`.
    timeout: Option<Duration>,
}

/// The result of a committed write.
struct CommittedWrite {
    before: Option<Arc<Object>>,
    after: Option<Arc<Object>>,
    /// Revision of the store after the write.
    revision: u64,
}

impl Request {
    /// Returns the request with its parsed body, whose `revision` is part of the condition.
    fn of<C: Content>(
        key: Key,
        query: &WriteQuery,
        mut condition: Condition,
        body: Body<C>,
    ) -> Result<(Request, Value), Problem> {
        let json = body.json()?;
        condition.body_revision = json["revision"].as_u64().unwrap_or_default();
        let (dry_run, timeout) = (query.dry_run, query.timeout()?);
        Ok((Request { key, condition, pinned: false, dry_run, timeout }, json))
    }

    /// Applies the change that `next` derives from the stored object (`None`: a deletion) and
    /// returns the response.
    async fn write(
        self,
        api: Api,
        notes: Notes,
        next: impl Fn(&Key, Option<&Arc<Object>>) -> Result<Option<Object>, Problem>,
    ) -> Result<Response, Problem> {
        let pinned = self.pinned || !self.condition.is_none();
        for _ in 0..MAX_ATTEMPTS {
            let before = api.store.objects().get(&self.key).cloned();
            let revision = before.as_ref().map_or(0, |object| object.revision);
            let expected = pinned.then_some(revision);
            let next = next(&self.key, before.as_ref())?;
            notes.set(&self.key, before.as_deref(), next.as_ref());
            // Errors that don't depend on the condition take precedence (RFC 9110, section 13.2.1).
            self.condition.check(revision)?;
            let change = match next {
                Some(object) => Change::Put { object: Box::new(object), expected },
                None => Change::Delete { key: self.key.clone(), expected },
            };
            if self.dry_run {
                notes.no_change();
                return self.dry_run(&api, &change, before);
            }
            match store_write::write(&api, WriteRequest::new(vec![change], SystemTime::now())).await
            {
                Ok(revision) => {
                    notes.stored(revision);
                    let after = api.store.objects().get(&self.key).cloned();
                    return self.respond(&api, CommittedWrite { before, after, revision }).await;
                }
                // A concurrent write came first: evaluate the condition against the new revision.
                Err(error) if error.class == ErrorClass::Conflict && pinned => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::precondition_failed("the object changed at every attempt; try again"))
    }

    fn dry_run(
        &self,
        api: &Api,
        change: &Change,
        before: Option<Arc<Object>>,
    ) -> Result<Response, Problem> {
        let mut objects = api.store.objects();
        objects.apply(change, SystemTime::now())?;
        Ok(response(before.as_ref(), objects.get(&self.key)))
    }

    async fn respond(self, api: &Api, write: CommittedWrite) -> Result<Response, Problem> {
        let response = response(write.before.as_ref(), write.after.as_ref());
        let Some(timeout) = self.timeout else { return Ok(response) };
        let written = WrittenObject::new(self.key, write.before.as_ref(), write.after.as_deref());
        if wait_until_in_force(api, write.revision, (vec![written], false), timeout).await? {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        parts.status = StatusCode::ACCEPTED;
        Ok(Response::from_parts(parts, body))
    }
}

/// Returns the response to a write: 201 if the object was created, 200 if changed, 204 if it no
/// longer exists, 202 if its deletion waits for finalizers.
fn response(before: Option<&Arc<Object>>, after: Option<&Arc<Object>>) -> Response {
    let Some(object) = after else { return StatusCode::NO_CONTENT.into_response() };
    let status = match before {
        _ if object.lifecycle().deletion.is_some() => StatusCode::ACCEPTED,
        None => StatusCode::CREATED,
        Some(_) => StatusCode::OK,
    };
    (status, [condition::header(object.revision)], Json(object)).into_response()
}
