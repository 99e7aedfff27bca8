//! What is wrong with a field.

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
    /// Of a field.
    pub fn new(field: &str, wrong: impl Into<String>, allowed: impl Into<String>) -> Wrong {
        Wrong { field: field.to_owned(), wrong: wrong.into(), allowed: allowed.into() }
    }
}
