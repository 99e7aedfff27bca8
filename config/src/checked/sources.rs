//! Sources: who wins over whom, and what becomes of one that isn't heard any more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A `[[source]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceOf {
    /// Its name, unique.
    pub name: String,
    /// Seconds of its lease unless it asks for one, at most a day; 0 for none.
    pub lease_s: u32,
    /// What becomes of what it said when its lease runs out.
    pub on_expiry: OnExpiry,
}

/// What becomes of what a source said when its lease runs out.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It still holds.
    #[default]
    Keep,
    /// Its backends get no new flows until it is heard again.
    Quarantine,
    /// It is gone.
    Release,
}
