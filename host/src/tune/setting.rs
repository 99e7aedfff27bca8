//! One setting of the machine.

use serde::{Serialize, Serializer};

use super::drop_in::DropIn;
use super::value::ValueFile;

/// A setting, with its value now and the one that it should have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// The name for operators: `isolcpus`, `governor of CPU 2`.
    pub name: String,
    /// Settings with the same group, values and reason are shown together.
    #[serde(skip)]
    pub(super) group: &'static str,
    /// The file that keeps the value across boots; `None` if another setting does, or nothing can.
    pub file: Option<DropIn>,
    /// The entry in that file.
    pub entry: String,
    /// The file with the value in force; `None` if the value changes at boot only.
    #[serde(rename = "value", serialize_with = "value_path")]
    pub(super) value: Option<ValueFile>,
    /// The value in force; empty if there is none.
    pub now: String,
    /// The desired value.
    pub wanted: String,
    /// The effect of the desired value, as a sentence.
    pub reason: String,
    /// Whether the value in force has the effect of the desired value.
    pub in_force: bool,
}

fn value_path<S: Serializer>(value: &Option<ValueFile>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(|file| format!("/{}", file.path())).serialize(serializer)
}

impl Setting {
    /// Returns whether the value comes into force at the next boot only.
    pub fn needs_reboot(&self) -> bool {
        self.file == Some(DropIn::Grub) && !self.in_force
    }

    /// Returns the path of the file with the value in force, if it changes at run time.
    pub fn value_path(&self) -> Option<&str> {
        self.value.as_ref().map(ValueFile::path)
    }

    /// Returns whether two settings can be shown as one: same group, values, reason and state.
    pub(super) fn is_like(&self, other: &Setting) -> bool {
        !self.group.is_empty()
            && (self.group, &self.now, &self.wanted, &self.reason, self.in_force)
                == (other.group, &other.now, &other.wanted, &other.reason, other.in_force)
    }
}
