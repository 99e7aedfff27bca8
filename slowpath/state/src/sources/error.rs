//! Why a source isn't given what it asks for. A request that is refused has changed nothing.

use super::removals::Held;
use crate::name::Source;
use crate::object::{Key, LEASE_MAX_S, REVISION_MAX, Refusal};

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Not a name.
    #[error("`{0}` is no name of a source: write 1 to 63 of a-z, 0-9, `-`, `.` and `_`")]
    Name(Box<str>),
    /// A source of the appliance itself.
    #[error(
        "source `{source_of}` is the appliance's own: its files speak for it, or whoever writes \
         single objects; choose another name"
    )]
    Own {
        /// Which.
        source_of: Source,
    },
    /// It has never begun.
    #[error("source `{source_of}` has said nothing yet: begin a session and commit it")]
    Unknown {
        /// Which.
        source_of: Source,
    },
    /// It came too late.
    #[error(
        "the lease of source `{source_of}` ran out, and what it said was released: begin a session \
         and say everything again"
    )]
    Released {
        /// Which.
        source_of: Source,
    },
    /// A lease out of range.
    #[error("lease_s: {found} is out of range; allowed: 1 to {LEASE_MAX_S}, or leave it out")]
    Lease {
        /// What was asked for.
        found: u32,
    },
    /// A revision that nobody can show.
    #[error("revision: {found} characters are too many; allowed: up to {REVISION_MAX}")]
    Revision {
        /// How many it has.
        found: usize,
    },
    /// Two speak for one source, or one has begun twice.
    #[error(
        "source `{source_of}` has a newer session than {id}, and a begin ends what was begun \
         before it: let one process alone speak for a source"
    )]
    Superseded {
        /// Whose it was.
        source_of: Source,
        /// Its number.
        id: u64,
    },
    /// It ended.
    #[error(
        "source `{source_of}` has no session {id}: it was committed or aborted, nobody went on \
         with it, or the appliance was restarted; see the revision that it has, and begin again"
    )]
    NoSession {
        /// Whose it would be.
        source_of: Source,
        /// Its number.
        id: u64,
    },
    /// Too many at once.
    #[error("{most} sessions are open already; commit or abort one, or try again in a minute")]
    Sessions {
        /// How many there may be.
        most: usize,
    },
    /// A chunk is missing.
    #[error("chunk {found} came before chunk {expected}; send {expected} first")]
    Gap {
        /// The number that is next.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A chunk is too large.
    #[error(
        "the chunk has {items} objects, frontends and backends; a chunk may have {most}: send \
         several"
    )]
    Chunk {
        /// What it has.
        items: usize,
        /// What it may have.
        most: usize,
    },
    /// A session is too large.
    #[error(
        "all chunks together have more than {most} objects, frontends and backends; an appliance \
         takes no more from one source"
    )]
    Session {
        /// What it may have.
        most: usize,
    },
    /// An object of another source.
    #[error(
        "{object}: it is not what source `{source_of}` says; leave `source` out, or begin a \
         session of that source"
    )]
    Stranger {
        /// The object.
        object: Key,
        /// Whose session it is.
        source_of: Source,
    },
    /// A kind that sources don't say.
    #[error("{object}: sources say objects of kind Service and Backends; leave it out")]
    Kind {
        /// The object.
        object: Key,
    },
    /// An object twice.
    #[error("{object}: it is there twice in this session; say it once")]
    Twice {
        /// The object.
        object: Key,
    },
    /// A complete list that would remove too much.
    #[error(transparent)]
    Held(Box<Held>),
    /// A confirmation of what is not held.
    #[error(
        "no list of source `{source_of}` is held: nothing has to be confirmed; `weir get source` \
         shows the sources"
    )]
    NotHeld {
        /// Which.
        source_of: Source,
    },
    /// An object that can't be.
    #[error(transparent)]
    Wrong(Box<Refusal>),
}
