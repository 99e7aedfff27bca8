//! The part of the document that is about sources.

use serde_json::{Map, Value, json};
use state::object::Kind;
use state::sources::{Added, Begin, Begun, Commit, Committed, Confirmed, Lease, Renewed, Report};

use super::parts::{answers, named, page, place, query, schema_of};
use crate::body::JSON;
use crate::query::Written;

/// What a source said is bounded by what is wrong with it, and the store.
const KEPT: [&str; 4] = ["foreign", "too-large", "media", "wrong"];

/// Adds the types.
pub(super) fn schemas(schemas: &mut Map<String, Value>) {
    place(schemas, "Begin", schema_of::<Begin>());
    place(schemas, "Begun", schema_of::<Begun>());
    place(schemas, "Added", schema_of::<Added>());
    place(schemas, "Commit", schema_of::<Commit>());
    place(schemas, "Confirmed", schema_of::<Confirmed>());
    place(schemas, "Committed", schema_of::<Committed>());
    place(schemas, "Lease", schema_of::<Lease>());
    place(schemas, "Renewed", schema_of::<Renewed>());
    place(schemas, "SourceReport", schema_of::<Report>());
}

/// Adds the paths.
pub(super) fn paths(paths: &mut Map<String, Value>) {
    let of = "/v1/sources/{source}";
    let session = format!("{of}/sessions/{{session}}");
    let source = || path("source", "The source's name.", &source_name());
    let number = |name: &str, about: &str| {
        path(name, about, &json!({ "type": "integer", "format": "uint64", "minimum": 0 }))
    };
    let of_session = || vec![source(), number("session", "As the answer to its begin has it.")];
    let mut put = |path: &str, methods: Value| paths.insert(path.to_owned(), methods);
    put("/v1/sources", json!({ "get": all() }));
    put(of, json!({ "parameters": [source()], "get": one() }));
    put(&format!("{of}/sessions"), json!({ "parameters": [source()], "post": begin() }));
    put(&format!("{of}/renew"), json!({ "parameters": [source()], "post": renew() }));
    put(&format!("{of}/confirm"), json!({ "parameters": [source()], "post": confirm() }));
    put(&session, json!({ "parameters": of_session(), "delete": abort() }));
    put(&format!("{session}/commit"), json!({ "parameters": of_session(), "post": commit() }));
    let chunk = number("chunk", "0 for the first, and then one more each.");
    let parameters = [of_session(), vec![chunk]].concat();
    put(&format!("{session}/chunks/{{chunk}}"), json!({ "parameters": parameters, "put": add() }));
}

fn source_name() -> Value {
    json!({ "type": "string", "maxLength": 63, "pattern": "^[a-z0-9._-]+$" })
}

fn path(name: &str, about: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
}

fn good(about: &str, schema: Value) -> Value {
    json!({ "description": about, "content": { JSON: { "schema": schema } } })
}

fn body(required: bool, schema: Value) -> Value {
    json!({ "required": required, "content": { JSON: { "schema": schema } } })
}

fn all() -> Value {
    json!({
        "operationId": "sources",
        "summary": "Tells of each source its lease, its session and its revision.",
        "responses": answers(&[("200", good("All.", page(named("SourceReport"))))], &["store"]),
    })
}

fn one() -> Value {
    json!({
        "operationId": "source",
        "summary": "Tells of a source its lease, its session and its revision.",
        "responses": answers(&[("200", good("It.", named("SourceReport")))], &["store"]),
    })
}

fn begin() -> Value {
    let mut begun = good("A session is open.", named("Begun"));
    begun["headers"]["Location"] = json!({ "schema": { "type": "string" } });
    let wrong = [&KEPT[..], &["busy", "store", "unanswered"]].concat();
    json!({
        "operationId": "begin",
        "summary": "Begins to say all that the source knows; ends a session that it had open.",
        "requestBody": body(false, named("Begin")),
        "responses": answers(&[("201", begun)], &wrong),
    })
}

fn add() -> Value {
    let kinds = [Kind::Service, Kind::Backends].map(|kind| named(kind.as_str()));
    let list = json!({ "type": "array", "items": { "anyOf": kinds } });
    let wrong = [&KEPT[..], &["gap", "superseded", "store"]].concat();
    json!({
        "operationId": "chunk",
        "summary": "Says a part of it; one that was taken already is taken for a repetition.",
        "requestBody": body(true, list),
        "responses": answers(&[("200", good("Taken.", named("Added")))], &wrong),
    })
}

fn commit() -> Value {
    let coming =
        good("It is kept, and on its way: it took longer than `wait`.", named("Committed"));
    let committed = good("It is what the source says.", named("Committed"));
    json!({
        "operationId": "commit",
        "summary": "Makes what was said all that the source says. What isn't named any more goes.",
        "parameters": query::<Written>(),
        "requestBody": body(false, named("Commit")),
        "responses": answers(
            &[("200", committed), ("202", coming)],
            &[
                "foreign",
                "held",
                "too-large",
                "media",
                "superseded",
                "not-in-force",
                "leaving",
                "wrong",
                "store",
                "unanswered",
            ],
        ),
    })
}

fn confirm() -> Value {
    json!({
        "operationId": "confirm",
        "summary": "Permits the removal for which the source's list is held.",
        "description": "The list is taken when it comes again and removes exactly that: files are \
                        read again at once, a session has to be committed again.",
        "responses": answers(
            &[("200", good("It is permitted.", named("Confirmed")))],
            &["store", "unanswered"],
        ),
    })
}

fn abort() -> Value {
    json!({
        "operationId": "abort",
        "summary": "Forgets what was said in the session.",
        "responses": answers(
            &[("204", json!({ "description": "It is forgotten." }))],
            &["foreign", "superseded", "store"],
        ),
    })
}

fn renew() -> Value {
    let wrong = [&KEPT[..], &["released", "store", "unanswered"]].concat();
    json!({
        "operationId": "renew",
        "summary": "What the source said last still holds: its lease runs anew.",
        "requestBody": body(false, named("Lease")),
        "responses": answers(&[("200", good("It does.", named("Renewed")))], &wrong),
    })
}
