//! Validation errors: a field, its fault, and what is allowed.

/// A field with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {fault}; {remedy}")]
pub struct ValidationError {
    /// Path of the field, for example `spec.subscription` or `frontends[0].port`.
    pub field: String,
    /// What is wrong with the value.
    pub fault: String,
    /// Allowed values, or the remedy.
    pub remedy: String,
}

impl ValidationError {
    /// Creates a validation error for a field.
    pub fn new(
        field: &str,
        fault: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ValidationError {
        ValidationError { field: field.to_owned(), fault: fault.into(), remedy: remedy.into() }
    }

    /// Converts a serde error; the field is empty if the error concerns the value as a whole.
    pub fn from_serde(error: serde_path_to_error::Error<serde_json::Error>) -> ValidationError {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        // serde appends what is allowed after a comma.
        let (fault, expected) = text.split_once(", expected ").unwrap_or((&text, ""));
        let remedy = match expected {
            "" => String::new(),
            expected => format!("allowed: {}", describe_type(expected)),
        };
        ValidationError::new(if path == "." { "" } else { &path }, fault, remedy)
    }
}

/// Returns a description of a Rust type for readers of configuration errors.
fn describe_type(rust_type: &str) -> &str {
    match rust_type {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" => "a number, 0 or more",
        "a boolean" => "true or false",
        other => other,
    }
}
