//! Requests and responses of sources, as they are encoded in the API.

use config::checked::OnExpiry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Source;

/// Request to begin a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Begin {
    /// Revision of the list that the source is about to send, in the source's own format; at most
    /// 256 characters.
    #[schemars(length(max = 256))]
    pub revision: Box<str>,
    /// Seconds for which the list is valid after the source's last request, 1 to 86400. Default:
    /// the source's current lease, or the configured one.
    #[schemars(range(min = 1, max = 86400))]
    pub lease_s: Option<u32>,
}

/// Response to a request to begin a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Begun {
    /// Number of the session, for further requests.
    pub session: u64,
    /// Lease of the source, seconds; 0 for none.
    pub lease_s: u32,
    /// Maximum number of objects, frontends and backends in one chunk.
    pub chunk: usize,
    /// Maximum number of objects, frontends and backends in all chunks together.
    pub items: usize,
}

/// Response to an added chunk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Added {
    /// Number of the next chunk; the first is 0.
    pub next: u64,
    /// Number of objects in the session.
    pub objects: usize,
}

/// Request to commit a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Commit {
    /// Commit the list even if it removes all objects or services of the source, or a higher
    /// percentage of its objects than `control.max_removal_percent`. Default: false.
    pub allow_removal: bool,
}

/// Response to a request to commit a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Committed {
    /// Number of objects created or changed.
    pub written: usize,
    /// Number of objects deleted because the list no longer contains them.
    pub released: usize,
}

/// Response to the confirmation of a held removal. The removal is made when the source sends the
/// same list again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Confirmed {
    /// Number of objects that the list removes.
    pub removed: usize,
    /// Number of objects that the source has, including those to be removed.
    pub of: usize,
}

/// Request to renew a lease.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    /// Seconds for which the list is valid after the source's last request, 1 to 86400. Default:
    /// the source's current lease, or the configured one.
    #[schemars(range(min = 1, max = 86400))]
    pub lease_s: Option<u32>,
}

/// Response to a renewed lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Renewed {
    /// Lease of the source, seconds; 0 for none.
    pub lease_s: u32,
    /// Revision that the source committed last; a source that does not recognize it begins a new
    /// session.
    pub revision: Box<str>,
}

/// State of a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SourceReport")]
pub struct Report {
    /// Name of the source.
    #[schemars(with = "String")]
    pub source: Source,
    /// Revision that the source committed last.
    pub revision: Box<str>,
    /// Lease of the source, seconds; 0 for none.
    pub lease_s: u32,
    /// Seconds until the lease expires, 0 if it has expired; absent without a lease.
    pub left_s: Option<u64>,
    /// `valid`, or what was done when the lease expired: `Persisted`, `Quarantined`, `Released`.
    pub lease_status: &'static str,
    /// How the source's objects are handled when its lease expires.
    pub on_expiry: OnExpiry,
    /// Reason why the source's list is held: it would remove too much. Absent if it is not held.
    pub held: Option<Box<str>>,
    /// Open session, if any.
    pub session: Option<SessionReport>,
}

/// State of an open session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SessionReport {
    /// Number of the session.
    pub session: u64,
    /// Revision of the list in the session.
    pub revision: Box<str>,
    /// Number of the next chunk.
    pub next: u64,
    /// Number of objects in the session.
    pub objects: usize,
}
