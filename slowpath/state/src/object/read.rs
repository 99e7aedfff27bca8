//! Values out of JSON, and what is wrong with them.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::Refusal;

/// A value out of JSON, or what is wrong with it and where below `at`.
///
/// # Errors
/// The first field that is wrong, by its path.
pub fn read<T: DeserializeOwned>(json: &Value, at: &str) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().to_string();
        let field = match (at, path.as_str()) {
            (at, ".") => at.to_owned(),
            ("", path) => path.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        let text = error.into_inner().to_string();
        // serde's own words say what is allowed behind a comma.
        let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
        let allowed = if allowed.is_empty() { "" } else { &format!("allowed: {}", named(allowed)) };
        Refusal::new(field, wrong, allowed)
    })
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
