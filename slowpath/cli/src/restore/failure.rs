//! The failures of a restore.

/// Why a restore did not succeed. Except after [`Failure::Incomplete`], nothing was restored.
#[derive(PartialEq, Eq, Debug)]
pub enum Failure {
    /// The backup is not valid, or not on this machine.
    Rejected(String),
    /// An operation failed (a file, a request); the changes before it are undone.
    Failed(String),
    /// Some files or objects may be restored. The text says which, and what to do.
    Incomplete(String),
}

impl Failure {
    /// Appends `note` to the text of a rejected backup; other failures stay as they are.
    pub fn with_note(self, note: &str) -> Failure {
        match self {
            Failure::Rejected(text) => Failure::Rejected(text + note),
            other => other,
        }
    }
}
