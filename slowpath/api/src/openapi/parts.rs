//! Parts that all descriptions of requests are made of: schemas, parameters, answers.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::body::JSON;
use crate::problem::{PROBLEM_JSON, SORTS};

/// What every request may be answered with, whatever it asks.
const ALWAYS: [&str; 3] = ["request", "token", "absent"];

pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).into()
}

/// Puts a schema among those that are named, and what it refers to beside it.
pub(crate) fn place(schemas: &mut Map<String, Value>, name: &str, mut schema: Value) {
    let defs = schema.as_object_mut().and_then(|map| map.shift_remove("$defs"));
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("$schema");
    }
    for (name, mut def) in defs.and_then(|defs| defs.as_object().cloned()).unwrap_or_default() {
        refer(&mut def);
        schemas.insert(name, def);
    }
    refer(&mut schema);
    schemas.insert(name.to_owned(), schema);
}

/// References lead to where OpenAPI has its schemas.
pub(super) fn refer(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value.as_str().and_then(|to| to.strip_prefix("#/$defs/"))) {
                    ("$ref", Some(to)) => *value = format!("#/components/schemas/{to}").into(),
                    _ => refer(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(refer),
        _ => {}
    }
}

pub(crate) fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The fields of a query as parameters.
pub(crate) fn query<T: JsonSchema>() -> Vec<Value> {
    let schema = schema_of::<T>();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let about = schema["description"].take();
        if let Some(map) = schema.as_object_mut() {
            map.retain(|_, value| !value.is_null());
            // In an address, what isn't said isn't there.
            let one = map.get("type").and_then(|all| all.get(0)).cloned();
            map.extend(one.map(|one| ("type".to_owned(), one)));
        }
        json!({ "name": name, "in": "query", "description": about, "schema": schema })
    };
    properties.into_iter().map(parameter).collect()
}

pub(super) fn headers(names: &[&str]) -> Vec<Value> {
    let header = |name: &&str| {
        let about = "`*`, or the ETag of what was read, in its quotes.";
        let schema = json!({ "type": "string", "pattern": r#"^(\*|"[0-9]{1,19}")$"# });
        json!({ "name": name, "in": "header", "description": about, "schema": schema })
    };
    names.iter().map(header).collect()
}

pub(super) fn tagged(about: &str, schema: Value) -> Value {
    let etag = json!({ "schema": { "type": "string", "pattern": "^\"[0-9]+\"$" } });
    json!({
        "description": about,
        "headers": { "ETag": etag },
        "content": { JSON: { "schema": schema } },
    })
}

/// The answers, with those for the sorts of problems that there may be.
pub(crate) fn answers(good: &[(&str, Value)], problems: &[&str]) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (status, sort, title) in SORTS {
        if ALWAYS.contains(&sort) || problems.contains(&sort) {
            let answer = json!({
                "description": title,
                "content": { PROBLEM_JSON: { "schema": named("Problem") } },
            });
            all.insert(status.as_str().to_owned(), answer);
        }
    }
    all.extend(good.iter().map(|(status, answer)| ((*status).to_owned(), answer.clone())));
    all.sort_keys();
    Value::Object(all)
}

pub(super) fn page(items: Value) -> Value {
    json!({
        "type": "object",
        "required": ["revision", "items"],
        "additionalProperties": false,
        "properties": {
            "revision": {
                "type": "integer",
                "minimum": 0,
                "description": "Of what was read. A stream that begins here misses nothing.",
            },
            "items": { "type": "array", "items": items },
            "continue": {
                "type": "string",
                "description": "There is more: what to write as `continue`.",
            },
        },
    })
}
