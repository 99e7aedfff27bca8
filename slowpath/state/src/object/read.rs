//! Reads values from JSON. Errors have the path of the first invalid field.

use config::ValidationError;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::error::ChangeError;

/// Reads a value from JSON. `at` is the path of the value, for errors.
///
/// # Errors
/// Returns the first invalid field, with its path.
pub fn read<T: DeserializeOwned>(json: &Value, at: &str) -> Result<T, ChangeError> {
    read_with(json, at, |_| String::new())
}

/// Reads a value as [`read`] does; the error for an unknown key also lists the keys that the
/// type's schema has at that path.
///
/// # Errors
/// Returns the first invalid field, with its path.
pub fn read_with_schema<T>(json: &Value, at: &str) -> Result<T, ChangeError>
where
    T: DeserializeOwned + JsonSchema,
{
    read_with(json, at, |path| keys(&schema_for!(T).into(), path))
}

fn read_with<T: DeserializeOwned>(
    json: &Value,
    at: &str,
    keys: impl Fn(&Path) -> String,
) -> Result<T, ChangeError> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().clone();
        let mut error = ValidationError::from_serde(error);
        // For types with flattened fields, serde's error has the unknown key, but neither its path
        // nor the allowed keys.
        let unknown = error.fault.strip_prefix("unknown field `");
        let unknown = unknown.and_then(|key| key.strip_suffix('`')).map(str::to_owned);
        if let Some(key) = unknown.filter(|_| error.remedy.is_empty()) {
            error.field = below(&error.field, &key);
            let allowed = keys(&path);
            if !allowed.is_empty() {
                error.remedy = format!("allowed: {allowed}");
            }
        }
        ChangeError { field: below(at, &error.field), ..error.into() }
    })
}

/// Joins the paths of a field and the value that contains it; either may be empty.
fn below(at: &str, field: &str) -> String {
    match (at, field) {
        (at, "") => at.to_owned(),
        ("", field) => field.to_owned(),
        (at, field) => format!("{at}.{field}"),
    }
}

/// Returns the keys at a path in a schema, quoted and separated by commas; empty if there are none.
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
