//! Errors that reject a change of an object.

use std::fmt;

use config::Wrong;

use super::kind::Key;

/// Class of an error, from which the API derives its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Why {
    /// The change is invalid and can never be made as it is.
    #[default]
    Wrong,
    /// There is no such object.
    Absent,
    /// The object has another revision than expected.
    Changed,
    /// The object is in deletion.
    Leaving,
    /// The store's disk rejects writes, for example because it is full. A retry may succeed.
    Disk,
    /// The store is damaged and takes no changes until an operator has repaired it.
    Damaged,
    /// The change removes too much without a confirmation.
    Held,
    /// The store's disk has not responded in time: the change may still be made.
    Unanswered,
}

/// Error that rejects a change.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
pub struct Refusal {
    /// Key of the object, if known.
    pub object: Option<Key>,
    /// Path of the field, `spec.frontends[0].port`; empty for the whole object.
    pub field: String,
    /// Description of the error.
    pub wrong: String,
    /// Allowed values, or a remedy.
    pub allowed: String,
    /// Class of the error.
    pub why: Why,
}

impl Refusal {
    /// Creates an error about a field, of class [`Why::Wrong`].
    pub fn new(
        field: impl Into<String>,
        wrong: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Refusal {
        let (field, wrong, allowed) = (field.into(), wrong.into(), allowed.into());
        Refusal { object: None, field, wrong, allowed, why: Why::Wrong }
    }

    /// Returns the error with another class.
    #[must_use]
    pub fn because(self, why: Why) -> Refusal {
        Refusal { why, ..self }
    }

    /// Returns the error with the key of its object.
    pub fn of(self, key: &Key) -> Refusal {
        Refusal { object: Some(key.clone()), ..self }
    }
}

impl From<Wrong> for Refusal {
    fn from(Wrong { field, wrong, allowed }: Wrong) -> Refusal {
        Refusal::new(field, wrong, allowed)
    }
}

/// `Service shop/web of api: spec.frontends[0].port: out of range; allowed: 0 to 65535`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.object {
            write!(f, "{key}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.wrong)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}
