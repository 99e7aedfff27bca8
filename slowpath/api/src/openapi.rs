//! What is served, as a document for programs (OpenAPI 3.1), made of the types that serve it.

pub(crate) mod parts;
mod sources;

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use state::name::NAME_BYTES;
use state::object::{Kind, schema};
use state::show::Table;

use crate::body::JSON;
use crate::control::Api;
use crate::documents::{Document, describe};
use crate::object::MERGE_PATCH;
use crate::problem::Problem;
use crate::query::{Listed, Read, Rows, Written};
use crate::watch::{LINES, Line};
use parts::{answers, headers, named, page, place, query, schema_of, tagged};

/// What is so whoever runs the appliance.
static DOCUMENT: LazyLock<Value> = LazyLock::new(whole);

/// `GET /v1/openapi.json`.
pub(crate) async fn document(State(api): State<Api>) -> Json<Value> {
    Json(with(&api.documents))
}

fn with(documents: &[Document]) -> Value {
    let mut document = DOCUMENT.clone();
    let map = |value: &mut Value| value.as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut schemas = map(&mut document["components"]["schemas"]);
    let mut paths = map(&mut document["paths"]);
    describe(documents, &mut schemas, &mut paths);
    document["components"]["schemas"] = schemas.into();
    document["paths"] = paths.into();
    document
}

fn whole() -> Value {
    let mut schemas = Map::new();
    place(&mut schemas, "Problem", schema_of::<Problem>());
    place(&mut schemas, "Change", schema_of::<Line>());
    let mut paths = Map::new();
    for kind in Kind::ALL.iter().copied() {
        place(&mut schemas, kind.as_str(), schema(kind));
        let many = kind.many();
        paths.insert(format!("/v1/objects/{many}"), json!({ "get": list(kind) }));
        paths.insert(format!("/v1/objects/{many}/{{name}}"), object(kind));
    }
    for table in Table::ALL {
        paths.insert(format!("/v1/tables/{}", table.name()), json!({ "get": rows(table) }));
    }
    sources::schemas(&mut schemas);
    sources::paths(&mut paths);
    let own = "This document.";
    let content = json!({ JSON: { "schema": { "type": "object" } } });
    let answer = json!({ "200": { "description": own, "content": content } });
    let read = json!({ "operationId": "openapi", "summary": own, "responses": answer });
    paths.insert("/v1/openapi.json".to_owned(), json!({ "get": read }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Objects of every kind, and the tables that are made of them. Over the \
                            unix socket nothing more is asked; over TCP, the token of \
                            `api.token_file`.",
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn list(kind: Kind) -> Value {
    let part = json!({ "type": "object", "description": "What `fields` left of it." });
    let items = page(json!({ "anyOf": [named(kind.as_str()), part] }));
    let mut good = tagged("A page, or a stream.", items);
    good["content"][LINES] = json!({ "schema": named("Change") });
    let unchanged = json!({ "description": "Nothing has changed since that ETag." });
    let parameters = [query::<Listed>(), headers(&["If-None-Match"])].concat();
    json!({
        "operationId": format!("list{kind}"),
        "summary": format!("Lists {}, or tells what happens to them.", kind.many()),
        "parameters": parameters,
        "responses": answers(&[("200", good), ("304", unchanged)], &["too-old", "store"]),
    })
}

fn object(kind: Kind) -> Value {
    let name = json!({
        "name": "name",
        "in": "path",
        "required": true,
        "description": "`[cluster/]namespace/name`, or a single word.",
        "schema": {
            "type": "string",
            "maxLength": NAME_BYTES,
            "pattern": "^[A-Za-z0-9._:-]+(/[A-Za-z0-9._:-]+){0,2}$",
        },
    });
    let good = |about: &str| tagged(about, named(kind.as_str()));
    let unchanged = json!({ "description": "It is as that ETag says." });
    let read = [query::<Read>(), headers(&["If-None-Match"])].concat();
    let write = [query::<Written>(), headers(&["If-Match", "If-None-Match"])].concat();
    let wrong = ["leaving", "not-in-force", "changed", "store", "unanswered", "foreign"];
    let bodies = [&wrong[..], &["too-large", "media", "wrong"]].concat();
    let coming = ("202", good("It is kept, and on its way: it took longer than `wait`."));
    let body = |media: &str, schema: Value| {
        let content = json!({ media: { "schema": schema } });
        json!({ "required": true, "content": content })
    };
    let gone = json!({ "description": "It is gone." });
    let mut methods = json!({
        "parameters": [name],
        "get": {
            "operationId": format!("get{kind}"),
            "summary": "Reads one.",
            "parameters": read,
            "responses": answers(&[("200", good("It.")), ("304", unchanged)], &["store"]),
        },
        "put": {
            "operationId": format!("put{kind}"),
            "summary": "Makes it so, whatever it was; kept when the answer comes.",
            "parameters": write,
            "requestBody": body(JSON, named(kind.as_str())),
            "responses": answers(
                &[("200", good("It.")), ("201", good("It is new.")), coming.clone()],
                &bodies,
            ),
        },
        "patch": {
            "operationId": format!("patch{kind}"),
            "summary": "Changes what is named in the body (RFC 7396); null takes away.",
            "parameters": write,
            "requestBody": body(MERGE_PATCH, json!({ "type": "object" })),
            "responses": answers(&[("200", good("It.")), coming.clone()], &bodies),
        },
        "delete": {
            "operationId": format!("delete{kind}"),
            "summary": "Takes it away, at once or when all finalizers are gone.",
            "parameters": write,
            "responses": answers(&[("204", gone), coming], &wrong),
        },
    });
    if let (Some(_), Some(methods)) = (kind.read_only(), methods.as_object_mut()) {
        methods.retain(|name, _| name == "parameters" || name == "get");
    }
    methods
}

fn rows(table: Table) -> Value {
    let cell = json!({ "type": ["string", "number", "boolean", "array", "null"] });
    let columns: Map<String, Value> =
        table.columns().iter().map(|column| ((*column).to_owned(), cell.clone())).collect();
    let row = json!({ "type": "object", "properties": columns, "additionalProperties": false });
    let good = json!({
        "description": "A page of rows.",
        "content": { JSON: { "schema": page(row) } },
    });
    json!({
        "operationId": format!("table_{}", table.name()),
        "summary": format!("Rows of the table {}.", table.name()),
        "parameters": query::<Rows>(),
        "responses": answers(&[("200", good)], &[]),
    })
}
