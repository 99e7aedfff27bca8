//! Why a change is refused.

use std::fmt;

use config::Wrong;

use super::kind::Key;

/// What sort of reason there is, for those who answer machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Why {
    /// What is asked can never be as it is.
    #[default]
    Wrong,
    /// There is no such object.
    Absent,
    /// Another revision is there than the writer has seen.
    Changed,
    /// The object is being deleted.
    Leaving,
    /// The store doesn't take changes: its disk is full, say. It may do so later.
    Disk,
    /// The store is damaged and takes no changes until an operator has repaired it.
    Damaged,
    /// It removes too much, and nobody has confirmed it.
    Held,
    /// The store's disk has not answered in time: the change may still be made.
    Unanswered,
}

/// Why a change isn't made.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
pub struct Refusal {
    /// The object, where it is known.
    pub object: Option<Key>,
    /// Path of the field, `spec.frontends[0].port`; empty for the whole object.
    pub field: String,
    /// What is wrong.
    pub wrong: String,
    /// What is allowed, or what to do.
    pub allowed: String,
    /// What sort of reason that is.
    pub why: Why,
}

impl Refusal {
    /// Of a field.
    pub fn new(
        field: impl Into<String>,
        wrong: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Refusal {
        let (field, wrong, allowed) = (field.into(), wrong.into(), allowed.into());
        Refusal { object: None, field, wrong, allowed, why: Why::Wrong }
    }

    /// The same for another sort of reason.
    #[must_use]
    pub fn because(self, why: Why) -> Refusal {
        Refusal { why, ..self }
    }

    /// The same, of this object.
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
