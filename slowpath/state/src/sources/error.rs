//! Errors of source requests. A request that fails has changed nothing.

use super::removals::Held;
use crate::name::Source;
use crate::object::{ChangeError, Key, LEASE_MAX_S, REVISION_MAX};

// The source of a request is in fields named `source_of`, because `thiserror` takes a field named
// `source` for the cause of an error.
/// Reason why a source request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The name is not valid.
    #[error("`{0}` is not a valid source name; write 1 to 63 of a-z, 0-9, `-`, `.` and `_`")]
    Name(Box<str>),
    /// The source is reserved for the appliance itself.
    #[error(
        "source `{source_of}` is reserved for the appliance's files and for objects written one by \
         one; choose another name"
    )]
    Reserved {
        /// Source of the request.
        source_of: Source,
    },
    /// The source has never begun a session.
    #[error("source `{source_of}` has never begun a session; begin one and commit a list")]
    NeverBegun {
        /// Source of the request.
        source_of: Source,
    },
    /// The lease expired, and the source's objects were released.
    #[error(
        "the lease of source `{source_of}` expired, and its objects were released; begin a session \
         and send the complete list again"
    )]
    Released {
        /// Source of the request.
        source_of: Source,
    },
    /// The lease is out of range.
    #[error("lease_s: {found} is out of range; allowed: 1 to {LEASE_MAX_S}, or leave it out")]
    Lease {
        /// Requested lease, seconds.
        found: u32,
    },
    /// The revision is too long.
    #[error("revision: {found} characters are too many; allowed: up to {REVISION_MAX}")]
    Revision {
        /// Number of characters of the revision.
        found: usize,
    },
    /// A newer session of the source exists: another process uses the same name, or the source
    /// began again.
    #[error(
        "session {id} of source `{source_of}` was superseded by a newer one; use each source name \
         in one process only"
    )]
    Superseded {
        /// Source of the request.
        source_of: Source,
        /// Number of the session.
        id: u64,
    },
    /// There is no such session, or it has ended.
    #[error(
        "source `{source_of}` has no session {id}: it was committed or aborted, it timed out, or \
         the appliance was restarted; read the revision of the source, and begin again"
    )]
    NoSession {
        /// Source of the request.
        source_of: Source,
        /// Number of the session.
        id: u64,
    },
    /// Too many sessions are open.
    #[error("{max} sessions are open already; commit or abort one, or try again in a minute")]
    Sessions {
        /// Maximum number of sessions.
        max: usize,
    },
    /// A chunk is missing.
    #[error("chunk {found} came before chunk {expected}; send {expected} first")]
    MissingChunk {
        /// Number of the chunk that is expected next.
        expected: u64,
        /// Number of the chunk received.
        found: u64,
    },
    /// The chunk is too large.
    #[error(
        "the chunk has {items} objects, frontends and backends; allowed: up to {max}; send several \
         chunks"
    )]
    Chunk {
        /// Objects, frontends and backends in the chunk.
        items: usize,
        /// Maximum number for a chunk.
        max: usize,
    },
    /// The session is too large.
    #[error(
        "all chunks together have more than {max} objects, frontends and backends, the maximum for \
         one session; divide the objects among several sources"
    )]
    Session {
        /// Maximum number of objects, frontends and backends in a session.
        max: usize,
    },
    /// The object names another source.
    #[error(
        "{object}: the session is of source `{source_of}`; leave `source` out, or begin a session \
         of the other source"
    )]
    ForeignSource {
        /// Key of the object.
        object: Key,
        /// Source of the session.
        source_of: Source,
    },
    /// The object is of a kind that sources cannot write.
    #[error("{object}: a session takes objects of kind Service and Backends only; leave it out")]
    Kind {
        /// Key of the object.
        object: Key,
    },
    /// The session contains the object twice.
    #[error("{object}: it occurs twice in this session; send it once")]
    DuplicateObject {
        /// Key of the object.
        object: Key,
    },
    /// The complete list would remove too much, and is held.
    #[error(transparent)]
    Held(Box<Held>),
    /// There is no held list to confirm.
    #[error(
        "no list of source `{source_of}` is held, so there is nothing to confirm; `weir get \
         source` shows the sources"
    )]
    NotHeld {
        /// Source of the request.
        source_of: Source,
    },
    /// The object is not valid.
    #[error(transparent)]
    Invalid(Box<ChangeError>),
}
