//! Validation errors: a field, its fault, and what is allowed.

/// A field with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {wrong}; {allowed}")]
pub struct Wrong {
    /// Path of the field, for example `spec.subscription` or `frontends[0].port`.
    pub field: String,
    /// What is wrong with the value.
    pub wrong: String,
    /// Allowed values, or the remedy.
    pub allowed: String,
}

impl Wrong {
    /// Creates a validation error for a field.
    pub fn new(field: &str, wrong: impl Into<String>, allowed: impl Into<String>) -> Wrong {
        Wrong { field: field.to_owned(), wrong: wrong.into(), allowed: allowed.into() }
    }

    /// Converts a serde error; the field is empty if the error concerns the value as a whole.
    pub fn from_serde(error: serde_path_to_error::Error<serde_json::Error>) -> Wrong {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        // serde appends what is allowed after a comma.
        let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
        let allowed = match allowed {
            "" => String::new(),
            allowed => format!("allowed: {}", named(allowed)),
        };
        Wrong::new(if path == "." { "" } else { &path }, wrong, allowed)
    }
}

/// Returns a description of a Rust type for readers of configuration errors.
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
