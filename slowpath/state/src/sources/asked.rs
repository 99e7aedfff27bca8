//! What sources ask and are answered, as it is written in requests and answers.

use config::checked::OnExpiry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Source;

/// Asks for a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Begin {
    /// The source's own revision of all that it is about to say, in its own words.
    #[schemars(length(max = 256))]
    pub revision: Box<str>,
    /// Seconds for which what it says shall hold after it was last heard. Left out: as before, or
    /// as the configuration says.
    #[schemars(range(min = 1, max = 86400))]
    pub lease_s: Option<u32>,
}

/// A session is open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Begun {
    /// Its number, for everything else that is asked of it.
    pub session: u64,
    /// The source's lease, seconds; 0 for none.
    pub lease_s: u32,
    /// Objects, frontends and backends that one chunk may have.
    pub chunk: usize,
    /// The same for all chunks together.
    pub items: usize,
}

/// A chunk was taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Added {
    /// The number of the next chunk.
    pub next: u64,
    /// Objects that the session holds.
    pub objects: usize,
}

/// Asks for the commit of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Commit {
    /// Commit the list even where it removes all that the source said before, or more of it than
    /// `control.max_removal_percent`.
    pub allow_removal: bool,
}

/// What a commit comes to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Committed {
    /// Objects that are new or others.
    pub written: usize,
    /// Objects that the source no longer names.
    pub released: usize,
}

/// A removal is confirmed: it is made when the list that was held comes again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Confirmed {
    /// Objects that the list removes.
    pub removed: usize,
    /// Objects that the source has.
    pub of: usize,
}

/// Asks for more time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    /// As for [`Begin`].
    #[schemars(range(min = 1, max = 86400))]
    pub lease_s: Option<u32>,
}

/// The lease runs anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Renewed {
    /// The lease, seconds; 0 for none.
    pub lease_s: u32,
    /// The revision of what the source said last: one that it doesn't know is a reason to begin.
    pub revision: Box<str>,
}

/// How it goes with a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SourceReport")]
pub struct Report {
    /// Which.
    #[schemars(with = "String")]
    pub source: Source,
    /// The revision of what it said last.
    pub revision: Box<str>,
    /// Its lease, seconds; 0 for none.
    pub lease_s: u32,
    /// Seconds until the lease runs out, 0 when it has; none without a lease.
    pub left_s: Option<u64>,
    /// `yes`, or what was done when its lease ran out: `Kept`, `Quarantined`, `Released`.
    pub heard: &'static str,
    /// What is done when its lease runs out.
    pub on_expiry: OnExpiry,
    /// Why its list is held: it would remove too much. None where it is not.
    pub held: Option<Box<str>>,
    /// What it has begun to say.
    pub session: Option<SessionReport>,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SessionReport {
    /// Its number.
    pub session: u64,
    /// The revision that it will be.
    pub revision: Box<str>,
    /// The number of the next chunk.
    pub next: u64,
    /// Objects that it holds.
    pub objects: usize,
}
