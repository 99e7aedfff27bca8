//! Values out of JSON, and what is wrong with them.

use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::refusal::Refusal;

/// A value out of JSON, or what is wrong with it and where below `at`.
///
/// # Errors
/// The first field that is wrong, by its path.
pub fn read<T: DeserializeOwned>(json: &Value, at: &str) -> Result<T, Refusal> {
    read_with(json, at, |_| String::new())
}

/// The same, of a type whose schema tells which keys there are.
///
/// # Errors
/// As of [`read`].
pub fn read_described<T>(json: &Value, at: &str) -> Result<T, Refusal>
where
    T: DeserializeOwned + JsonSchema,
{
    read_with(json, at, |path| keys(&schema_for!(T).into(), path))
}

fn read_with<T: DeserializeOwned>(
    json: &Value,
    at: &str,
    keys: impl Fn(&Path) -> String,
) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().clone();
        let below = path.to_string();
        let mut field = match (at, below.as_str()) {
            (at, ".") => at.to_owned(),
            ("", path) => path.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        let text = error.into_inner().to_string();
        // serde's own words say what is allowed behind a comma.
        let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
        let mut allowed = named(allowed).to_owned();
        // Of a type with flattened parts they say neither where nor what is allowed.
        let unknown = wrong.strip_prefix("unknown field `").and_then(|key| key.strip_suffix('`'));
        if let Some(key) = unknown.filter(|_| allowed.is_empty()) {
            field = if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") };
            allowed = keys(&path);
        }
        let allowed = if allowed.is_empty() { allowed } else { format!("allowed: {allowed}") };
        Refusal::new(field, wrong, allowed)
    })
}

/// The keys at a path below a schema's root.
fn keys(root: &Value, path: &Path) -> String {
    let resolve = |schema: &'_ Value| match schema["$ref"].as_str() {
        Some(name) => root.pointer(name.trim_start_matches('#')).cloned().unwrap_or_default(),
        None => schema.clone(),
    };
    let at = path.iter().fold(root.clone(), |schema, segment| match segment {
        Segment::Seq { .. } => resolve(&schema["items"]),
        Segment::Map { key } => resolve(&schema["properties"][key]),
        Segment::Enum { .. } | Segment::Unknown => schema,
    });
    let keys = at["properties"].as_object().into_iter().flat_map(|map| map.keys());
    keys.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

/// A type in the words of those who write files.
fn named(allowed: &str) -> &str {
    match allowed {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" => "a number, 0 or more",
        "a string" => "a text",
        "a boolean" => "true or false",
        other => other,
    }
}
