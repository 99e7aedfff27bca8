//! Sources of services: precedence, and handling of expired leases.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A `[[source]]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSettings {
    /// Unique name of the source.
    pub name: String,
    /// Default lease in seconds, at most a day; 0 for no expiry.
    pub lease_s: u32,
    /// How the source's objects are handled when its lease expires.
    pub on_expiry: OnExpiry,
}

/// How a source's objects are handled when its lease expires.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// The objects stay in force.
    #[default]
    Keep,
    /// The source's backends get no new flows until it renews the lease or publishes again.
    Quarantine,
    /// The objects are removed.
    Release,
}
