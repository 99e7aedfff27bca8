//! Validation errors: a field, its fault, and what is allowed.

/// A field that can't be as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {wrong}; {allowed}")]
pub struct Wrong {
    /// Path of the field, `spec.subscription` or `frontends[0].port`.
    pub field: String,
    /// What is wrong.
    pub wrong: String,
    /// What is allowed, or what to do.
    pub allowed: String,
}

impl Wrong {
    /// A fault of a field.
    pub fn new(field: &str, wrong: impl Into<String>, allowed: impl Into<String>) -> Wrong {
        Wrong { field: field.to_owned(), wrong: wrong.into(), allowed: allowed.into() }
    }

    /// The fault that serde found in a value; its field is empty for the value itself.
    pub fn from_serde(error: serde_path_to_error::Error<serde_json::Error>) -> Wrong {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        // serde writes what is allowed behind a comma.
        let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
        let allowed = match allowed {
            "" => String::new(),
            allowed => format!("allowed: {}", named(allowed)),
        };
        Wrong::new(if path == "." { "" } else { &path }, wrong, allowed)
    }
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
