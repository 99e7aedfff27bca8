//! Errors that reject a change of an object.

use std::fmt;

use config::ValidationError;

use super::kind::Key;

/// Class of an error, from which the API derives its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorClass {
    /// The change is invalid; a retry without a correction fails too.
    #[default]
    Invalid,
    /// There is no such object.
    NotFound,
    /// The object has another revision than expected.
    Conflict,
    /// The object is in deletion.
    Deleting,
    /// The store cannot write now: its disk fails, is full or does not respond, too many changes
    /// wait for it, or slowpath is shutting down. Nothing was changed; a retry may succeed.
    Disk,
    /// The store is damaged and takes no changes until an operator has repaired it.
    Damaged,
    /// The change is a complete list that removes too much ([`crate::sources::removals`]).
    Held,
    /// The store's disk has not responded in time. The change may have been made or may still be.
    TimedOut,
}

/// Error that rejects a change.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
pub struct ChangeError {
    /// Key of the object, if known.
    pub object: Option<Key>,
    /// Path of the field, `spec.frontends[0].port`; empty for the whole object.
    pub field: String,
    /// Description of the error.
    pub fault: String,
    /// Allowed values, or a remedy.
    pub remedy: String,
    /// Class of the error.
    pub class: ErrorClass,
}

impl ChangeError {
    /// Creates an error about a field, of class [`ErrorClass::Invalid`].
    pub fn new(
        field: impl Into<String>,
        fault: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ChangeError {
        let (field, fault, remedy) = (field.into(), fault.into(), remedy.into());
        ChangeError { object: None, field, fault, remedy, class: ErrorClass::Invalid }
    }

    /// Returns the error with another class.
    #[must_use]
    pub fn with_class(self, class: ErrorClass) -> ChangeError {
        ChangeError { class, ..self }
    }

    /// Returns the error with the key of its object.
    #[must_use]
    pub fn with_object(self, key: &Key) -> ChangeError {
        ChangeError { object: Some(key.clone()), ..self }
    }
}

impl From<ValidationError> for ChangeError {
    fn from(ValidationError { field, fault, remedy }: ValidationError) -> ChangeError {
        ChangeError::new(field, fault, remedy)
    }
}

/// `Service shop/web of api: spec.frontends[0].port: out of range; allowed: 0 to 65535`.
impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.object {
            write!(f, "{key}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.fault)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}
