//! One object: read, written, changed in part, deleted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use state::name::{Name, Source};
use state::object::{API, Change, Key, Kind, Object, Why};
use state::store::Order;

use crate::body::{self, Body, JSON};
use crate::condition::{self, Condition};
use crate::control::{Api, until};
use crate::kept;
use crate::problem::Problem;
use crate::query::{self, Read, Written};
use crate::wait::About;

/// The type of what is to be changed in one (RFC 7396).
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
/// How often a change is tried again that others' changes came before.
const TRIES: usize = 64;

type Target = Result<Path<(String, String)>, PathRejection>;

fn key(target: Target, source: &str) -> Result<Key, Problem> {
    let Path((kind, name)) = target.map_err(|wrong| Problem::request(wrong.body_text()))?;
    let kind: Kind = kind.parse().map_err(|wrong| Problem::absent(format!("{wrong}")))?;
    let name = Name::new(&name).map_err(|wrong| Problem::absent(wrong.to_string()))?;
    let source = if source.is_empty() { API } else { source };
    Ok(Key { kind, name, source: Source::new(source) })
}

/// What may be written here: every kind that is not read-only.
fn own(target: Target) -> Result<Key, Problem> {
    let key = key(target, API)?;
    match key.kind.read_only() {
        Some(why) => Err(Problem::read_only(why)),
        None => Ok(key),
    }
}

/// `GET /v1/objects/KIND/NAME`.
pub(crate) async fn get(
    State(api): State<Api>,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked: Read = query::read(&uri)?;
    let key = key(target, &asked.source)?;
    let condition = Condition::of(&headers)?;
    let objects = api.store.objects();
    let Some(object) = objects.get(&key) else {
        let others: Vec<&str> =
            objects.named(key.kind, &key.name).map(|object| object.source.as_str()).collect();
        return Err(Problem::absent(match others.as_slice() {
            [] => format!("there is no {} {}", key.kind, key.name),
            others => format!("{key} is not there; `?source=` has: {}", others.join(", ")),
        }));
    };
    let etag = condition::header(object.revision);
    if condition.has(object.revision) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    Ok(([etag], Json(object)).into_response())
}

/// `PUT /v1/objects/KIND/NAME`.
pub(crate) async fn put(
    State(api): State<Api>,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (request, json) = Request::of(target, &uri, &headers, body, JSON)?;
    request.write(api, move |key, _| taken(key, json.clone()).map(Some)).await
}

/// `PATCH /v1/objects/KIND/NAME`.
pub(crate) async fn patch(
    State(api): State<Api>,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (mut request, patch) = Request::of(target, &uri, &headers, body, MERGE_PATCH)?;
    request.pinned = true;
    let change = move |key: &Key, before: Option<&Arc<Object>>| {
        let Some(before) = before else {
            return Err(absent(key));
        };
        let mut json = serde_json::to_value(&**before).map_err(Problem::broken)?;
        merge(&mut json, &patch);
        taken(key, json).map(Some)
    };
    request.write(api, change).await
}

/// `DELETE /v1/objects/KIND/NAME`.
pub(crate) async fn delete(
    State(api): State<Api>,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = own(target)?;
    let written: Written = query::read(&uri)?;
    let condition = Condition::of(&headers)?;
    let patience = written.patience()?;
    let request = Request { key, condition, pinned: false, dry_run: written.dry_run, patience };
    let there = |key: &Key, before: Option<&Arc<Object>>| match before {
        Some(_) => Ok(None),
        None => Err(absent(key)),
    };
    request.write(api, there).await
}

fn absent(key: &Key) -> Problem {
    Problem::absent(format!("there is no {} {}", key.kind, key.name))
}

/// An object out of a body: kind and name may be left out of it.
fn taken(key: &Key, mut json: Value) -> Result<Object, Problem> {
    if let Some(map) = json.as_object_mut() {
        map.entry("kind").or_insert_with(|| key.kind.as_str().into());
        map.entry("name").or_insert_with(|| key.name.as_str().into());
    }
    let object = Object::from_json(&json)?;
    if object.source.as_str() != API {
        return Err(Problem::foreign(object.source.as_str()));
    }
    for (field, told, at) in [
        ("kind", object.kind().as_str(), key.kind.as_str()),
        ("name", object.name.as_str(), key.name.as_str()),
    ] {
        if told != at {
            let wrong = format!("it says {field} `{told}`, and the address says `{at}`");
            return Err(Problem { field: Some(field.into()), ..Problem::request(wrong) });
        }
    }
    Ok(object)
}

/// RFC 7396.
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

/// A write that was read.
struct Request {
    key: Key,
    condition: Condition,
    /// It is made of what is there, and of nothing else.
    pinned: bool,
    dry_run: bool,
    patience: Option<Duration>,
}

/// A write that was made.
struct Made {
    before: Option<Arc<Object>>,
    after: Option<Arc<Object>>,
    /// Of all objects after it.
    revision: u64,
}

impl Request {
    fn of(
        target: Target,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
        media: &str,
    ) -> Result<(Request, Value), Problem> {
        let key = own(target)?;
        let written: Written = query::read(uri)?;
        let mut condition = Condition::of(headers)?;
        let json = body::json(headers, body, media)?;
        condition.seen = json["revision"].as_u64().unwrap_or_default();
        let (dry_run, patience) = (written.dry_run, written.patience()?);
        Ok((Request { key, condition, pinned: false, dry_run, patience }, json))
    }

    /// Makes the change that `next` makes of what is there (none: a deletion), and answers.
    async fn write(
        self,
        api: Api,
        next: impl Fn(&Key, Option<&Arc<Object>>) -> Result<Option<Object>, Problem>,
    ) -> Result<Response, Problem> {
        let pinned = self.pinned || !self.condition.is_none();
        for _ in 0..TRIES {
            let before = api.store.objects().get(&self.key).cloned();
            let revision = before.as_ref().map_or(0, |object| object.revision);
            let expected = pinned.then_some(revision);
            let next = next(&self.key, before.as_ref())?;
            // What could not be anyway is told first (RFC 9110 13.2.1).
            self.condition.check(revision)?;
            let change = match next {
                Some(object) => Change::Put { object: Box::new(object), expected },
                None => Change::Delete { key: self.key.clone(), expected },
            };
            if self.dry_run {
                return self.tried(&api, &change, before);
            }
            match kept::write(&api, Order::new(vec![change], SystemTime::now())).await {
                Ok(revision) => {
                    let after = api.store.objects().get(&self.key).cloned();
                    return self.made(&api, Made { before, after, revision }).await;
                }
                // Somebody was quicker: whether it may be made is asked of what is there now.
                Err(refusal) if refusal.why == Why::Changed && pinned => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Err(Problem::changed("others change it all the time; ask again"))
    }

    fn tried(
        &self,
        api: &Api,
        change: &Change,
        before: Option<Arc<Object>>,
    ) -> Result<Response, Problem> {
        let mut objects = api.store.objects();
        objects.apply(change, SystemTime::now())?;
        Ok(answer(before.as_ref(), objects.get(&self.key)))
    }

    async fn made(self, api: &Api, made: Made) -> Result<Response, Problem> {
        let response = answer(made.before.as_ref(), made.after.as_ref());
        let Some(patience) = self.patience else { return Ok(response) };
        let about = About::new(self.key, made.before.as_ref(), made.after.as_deref());
        if until(api, made.revision, (vec![about], false), patience).await? {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        parts.status = StatusCode::ACCEPTED;
        Ok(Response::from_parts(parts, body))
    }
}

/// The object as it is now; 204 where there is none any more, 202 where it waits for finalizers.
fn answer(before: Option<&Arc<Object>>, after: Option<&Arc<Object>>) -> Response {
    let Some(object) = after else { return StatusCode::NO_CONTENT.into_response() };
    let status = match before {
        _ if object.life().deletion.is_some() => StatusCode::ACCEPTED,
        None => StatusCode::CREATED,
        Some(_) => StatusCode::OK,
    };
    (status, [condition::header(object.revision)], Json(object)).into_response()
}
