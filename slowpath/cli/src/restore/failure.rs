//! Why a restore did not succeed.

/// Why a restore did not succeed. Except after [`Failure::Incomplete`], nothing was restored.
#[derive(PartialEq, Eq, Debug)]
pub enum Failure {
    /// The backup is not accepted here.
    Rejected(String),
    /// It could not be tried, or what was done is undone.
    Failed(String),
    /// Some of it may be restored. The text says what, and what to do.
    Incomplete(String),
}

impl Failure {
    /// Returns the failure with a text after that of a rejected backup.
    pub fn with_note(self, note: &str) -> Failure {
        match self {
            Failure::Rejected(text) => Failure::Rejected(text + note),
            other => other,
        }
    }
}
