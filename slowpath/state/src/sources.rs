//! Sources that use the API: a session replaces the complete list of a source's objects, and a
//! lease limits how long that list is valid.
//!
//! ```text
//!   begin --> session --> add, chunk by chunk --> commit: the list replaces the previous one
//!                   '---> abort, or the source's next begin: the previous list stays
//!   renew --> the lease restarts, and quarantined backends get new flows again
//!   tick  --> expired leases: objects kept, quarantined or released (deleted), as configured
//! ```
//! This module uses no socket, clock or disk. Its caller holds a lock around [`Sources`], passes
//! the time and the current objects with each request, and commits the returned batch to the store
//! before it answers; the tables change only through the store. A batch that the store rejects is
//! produced again by the source's next request or the next tick.
//!
//! State that outlives a restart is in the store: the lease's length and the revision in the
//! source's own object ([`SourceSpec`]), and whether the lease expired in that object's status.
//! Deadlines are not stored, because a change of the clock while the process is down could expire
//! all leases at once. When the process is restarted,
//! - each lease restarts;
//! - quarantined objects stay quarantined until the source renews its lease or commits a session;
//! - open sessions are lost, which is safe because no response says that their objects are stored.

mod error;
mod lease_status;
mod messages;
pub mod removals;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use error::Error;
pub use lease_status::LEASE_VALID;
pub(crate) use lease_status::is_quarantined;
pub use messages::{
    Added, Begin, Begun, Commit, Committed, Confirmed, Lease, Renewed, Report, SessionReport,
};

use crate::name::Source;
use crate::object::{API, Key, Kind, LEASE_MAX_S, Object, Objects, REVISION_MAX, SourceSpec, Spec};
use crate::reconcile::Now;
use crate::store::Batch;
use config::checked::OnExpiry;
use lease_status::LeaseStatus;
use removals::{Permit, RemovalLimit};

/// Configuration of all sources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Settings by source; sources that are not named have [`Setting::default`].
    pub sources: BTreeMap<Source, Setting>,
    /// Sources reserved for the appliance itself, such as its files. Requests for sessions and
    /// leases of these sources are rejected.
    pub own: Vec<Source>,
    /// Limits on uncommitted data.
    pub limits: Limits,
    /// Limit on what a complete list may remove without confirmation.
    pub removals: RemovalLimit,
}

/// Lease configuration of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// Lease, in seconds, if the source requests none: 0 to [`LEASE_MAX_S`]; 0 for no lease.
    pub lease_s: u32,
    /// How the source's objects are handled when its lease expires.
    pub on_expiry: OnExpiry,
}

/// Limits on uncommitted data, which bound the memory that clients can make the appliance use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of objects, frontends and backends in one chunk.
    pub chunk: usize,
    /// Maximum number of objects, frontends and backends in all chunks of a session.
    pub session: usize,
    /// Maximum number of open sessions.
    pub sessions: usize,
    /// Time since a session's last request (begin, chunk or commit) after which it is dropped.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let idle = Duration::from_secs(60);
        Limits { chunk: 20_000, session: 2_000_000, sessions: 16, idle }
    }
}

/// Open sessions and running leases.
#[derive(Debug)]
pub struct Sources {
    settings: Settings,
    sessions: BTreeMap<Source, Session>,
    /// Leases of all sources that have one, including those that expired.
    leases: BTreeMap<Source, RunningLease>,
    /// Number of the newest session.
    last_session: u64,
}

/// Open session: the uncommitted list of a source.
#[derive(Debug)]
struct Session {
    id: u64,
    /// Revision of the list, in the source's own format.
    revision: Box<str>,
    lease_s: u32,
    objects: BTreeMap<Key, Object>,
    /// Number of the next chunk.
    next: u64,
    /// Number of objects, frontends and backends in `objects`.
    items: usize,
    /// Time of the last begin, chunk or commit.
    last_request: Instant,
}

/// Lease with the time at which it expires.
#[derive(Clone, Copy, Debug)]
struct RunningLease {
    lease_s: u32,
    expires_at: Instant,
}

impl Sources {
    /// Creates the state without sessions. The leases of all sources in the store restart.
    pub fn new(settings: Settings, objects: &Objects, now: Now) -> Sources {
        let (sessions, leases) = (BTreeMap::new(), BTreeMap::new());
        let mut sources = Sources { settings, sessions, leases, last_session: 0 };
        for object in objects.of_kind(Kind::Source) {
            if let Spec::Source(spec) = &object.spec {
                sources.restart_lease(&object.source, spec.lease_s, now);
            }
        }
        sources
    }

    /// Replaces the configuration. The next tick applies it to expired leases as well.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Begins a session, in which a source sends its complete list with a revision that it chooses,
    /// and restarts the source's lease. An open session of the same source ends.
    pub fn begin(
        &mut self,
        source: &str,
        request: &Begin,
        objects: &Objects,
        now: Now,
    ) -> Result<(Begun, Batch), Error> {
        let source = self.writable_source(source)?;
        let lease_s = self.lease_s(&source, request.lease_s)?;
        let found = request.revision.chars().count();
        if found > REVISION_MAX {
            return Err(Error::Revision { found });
        }
        let others = self.sessions.keys().filter(|other| **other != source).count();
        if others >= self.settings.limits.sessions {
            return Err(Error::Sessions { max: self.settings.limits.sessions });
        }
        // The number is the time in ms since 1970, or one more than the last number: it differs
        // from those of sessions of an earlier process.
        let since = now.wall.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.last_session = unix_ms.max(self.last_session + 1);
        let session = Session {
            id: self.last_session,
            revision: request.revision.clone(),
            lease_s,
            objects: BTreeMap::new(),
            next: 0,
            items: 0,
            last_request: now.steady,
        };
        self.sessions.insert(source.clone(), session);
        self.restart_lease(&source, lease_s, now);
        let batch = lease_status::set_lease(&source, objects, lease_s);
        let Limits { chunk, session, .. } = self.settings.limits;
        Ok((Begun { session: self.last_session, lease_s, chunk, items: session }, batch))
    }

    /// Adds a chunk to the session, as a whole or not at all, and restarts the source's lease. A
    /// repeated chunk succeeds and adds nothing.
    pub fn add(
        &mut self,
        source: &str,
        id: u64,
        number: u64,
        added: Vec<Object>,
        now: Now,
    ) -> Result<Added, Error> {
        let source = self.writable_source(source)?;
        let Limits { chunk, session: max, .. } = self.settings.limits;
        let session = self.session(&source, id)?;
        if number > session.next {
            return Err(Error::MissingChunk { expected: session.next, found: number });
        }
        if number == session.next {
            let new = validate_chunk(&source, added, &session.objects)?;
            let items: usize = new.values().map(items).sum();
            if items > chunk {
                return Err(Error::Chunk { items, max: chunk });
            }
            if session.items + items > max {
                return Err(Error::Session { max });
            }
            session.objects.extend(new);
            session.items += items;
            session.next += 1;
        }
        session.last_request = now.steady;
        let (lease_s, next, objects) = (session.lease_s, session.next, session.objects.len());
        self.restart_lease(&source, lease_s, now);
        Ok(Added { next, objects })
    }

    /// Returns the changes that make the session's list the complete list of the source, as one
    /// batch. The session stays open until the store has the batch and the caller calls
    /// [`Sources::committed`]. It also stays open if the list is held because it would remove too
    /// much ([`Error::Held`]).
    pub fn commit(
        &mut self,
        source: &str,
        id: u64,
        request: &Commit,
        objects: &Objects,
        now: Now,
    ) -> Result<(Committed, Batch), Error> {
        let source = self.writable_source(source)?;
        let session = self.session(&source, id)?;
        session.last_request = now.steady;
        let mut desired: Vec<Object> = session.objects.values().cloned().collect();
        let (lease_s, revision) = (session.lease_s, session.revision.clone());
        desired.extend(lease_status::new_own_object(&source, SourceSpec { lease_s, revision }));
        let mut batch = objects.changes_to(&source, desired);
        let listed = || batch.iter().filter(|change| !lease_status::is_own(change));
        let written = listed().filter(|change| lease_status::is_put(change)).count();
        let committed = Committed { written, released: listed().count() - written };
        self.restart_lease(&source, lease_s, now);
        let permit = match request.allow_removal {
            true => Permit::Any,
            false => Permit::Within(self.settings.removals),
        };
        let admitted = removals::admit(&source, objects, &batch, permit, now.wall);
        batch.extend(admitted.map_err(|held| Error::Held(Box::new(held)))?);
        batch.extend(lease_status::mark_valid(&source, objects, now.wall));
        Ok((committed, batch))
    }

    /// Ends the session after the store has the batch from [`Sources::commit`].
    pub fn committed(&mut self, source: &str, id: u64) {
        // The session may have ended already.
        let _ = self.abort(source, id);
    }

    /// Confirms the removal because of which a source's list is held ([`removals::confirm`]). The
    /// list may come from a session or from the appliance's files.
    pub fn confirm(
        &self,
        source: &str,
        objects: &Objects,
        now: Now,
    ) -> Result<(Confirmed, Batch), Error> {
        let source = parse_name(source)?;
        let found = removals::confirm(&source, objects, now.wall);
        let Some((removal, batch)) = found else {
            return Err(Error::NotHeld { source_of: source });
        };
        Ok((Confirmed { removed: removal.removed, of: removal.of }, batch))
    }

    /// Drops the session. The source's previous list stays in effect.
    pub fn abort(&mut self, source: &str, id: u64) -> Result<(), Error> {
        let source = self.writable_source(source)?;
        self.session(&source, id)?;
        self.sessions.remove(&source);
        Ok(())
    }

    /// Restarts the lease: the source's last list stays valid, and quarantined backends get new
    /// flows again. Fails if the list was released; the source then has to send it again.
    pub fn renew(
        &mut self,
        source: &str,
        request: &Lease,
        objects: &Objects,
        now: Now,
    ) -> Result<(Renewed, Batch), Error> {
        let source = self.writable_source(source)?;
        let lease_s = self.lease_s(&source, request.lease_s)?;
        let Some(revision) = lease_status::revision(&source, objects) else {
            return Err(Error::NeverBegun { source_of: source });
        };
        if lease_status::recorded(&source, objects) == LeaseStatus::Expired(OnExpiry::Release) {
            return Err(Error::Released { source_of: source });
        }
        if let Some(session) = self.sessions.get_mut(&source) {
            session.lease_s = lease_s;
        }
        self.restart_lease(&source, lease_s, now);
        let mut batch = lease_status::set_lease(&source, objects, lease_s);
        batch.extend(lease_status::mark_valid(&source, objects, now.wall));
        Ok((Renewed { lease_s, revision }, batch))
    }

    /// Drops idle sessions, and returns the changes that expired leases require, one batch for each
    /// source that needs any. The caller calls it about once a second.
    pub fn tick(&mut self, objects: &Objects, now: Now) -> Vec<Batch> {
        let idle = self.settings.limits.idle;
        self.sessions.retain(|_, session| now.steady < session.last_request + idle);
        self.leases.retain(|source, lease| {
            now.steady < lease.expires_at || lease_status::revision(source, objects).is_some()
        });
        let expired = self.leases.iter().filter(|(_, lease)| now.steady >= lease.expires_at);
        let batches = expired.map(|(source, _)| {
            let on_expiry = self.setting(source).on_expiry;
            lease_status::expire(source, objects, on_expiry, now.wall)
        });
        batches.filter(|batch| !batch.is_empty()).collect()
    }

    /// Returns the state of each source that has its own object (kind `Source`), because it has
    /// begun a session or a list of it was held, sorted by name.
    pub fn report(&self, objects: &Objects, now: Now) -> Vec<Report> {
        let one = |object: &Arc<Object>| {
            let Spec::Source(spec) = &object.spec else { return None };
            let lease = self.leases.get(&object.source);
            let session = self.sessions.get(&object.source);
            Some(Report {
                source: object.source.clone(),
                revision: spec.revision.clone(),
                lease_s: spec.lease_s,
                left_s: lease
                    .map(|lease| lease.expires_at.saturating_duration_since(now.steady))
                    .map(|left| left.as_secs()),
                lease_status: lease_status::recorded(&object.source, objects).as_str(),
                on_expiry: self.setting(&object.source).on_expiry,
                held: removals::held_reason(&object.source, objects),
                session: session.map(|session| SessionReport {
                    session: session.id,
                    revision: session.revision.clone(),
                    next: session.next,
                    objects: session.objects.len(),
                }),
            })
        };
        objects.of_kind(Kind::Source).filter_map(one).collect()
    }

    /// Restarts the source's lease, or removes it for a length of 0.
    fn restart_lease(&mut self, source: &Source, lease_s: u32, now: Now) {
        match lease_s {
            0 => drop(self.leases.remove(source)),
            lease_s => {
                let expires_at = now.steady + Duration::from_secs(lease_s.into());
                self.leases.insert(source.clone(), RunningLease { lease_s, expires_at });
            }
        }
    }

    fn setting(&self, source: &Source) -> Setting {
        self.settings.sources.get(source).copied().unwrap_or_default()
    }

    /// Returns the requested lease of a source in seconds; without a request the current lease, or
    /// the configured one if there is none.
    fn lease_s(&self, source: &Source, request: Option<u32>) -> Result<u32, Error> {
        match request {
            Some(found) if found == 0 || found > LEASE_MAX_S => Err(Error::Lease { found }),
            Some(lease_s) => Ok(lease_s),
            None => Ok(self.leases.get(source).map_or(self.setting(source).lease_s, |l| l.lease_s)),
        }
    }

    /// Parses the name of a source, and rejects sources that are reserved for the appliance.
    fn writable_source(&self, text: &str) -> Result<Source, Error> {
        let source = parse_name(text)?;
        match text == API || self.settings.own.contains(&source) {
            true => Err(Error::Reserved { source_of: source }),
            false => Ok(source),
        }
    }

    fn session(&mut self, source: &Source, id: u64) -> Result<&mut Session, Error> {
        let source_of = source.clone();
        match self.sessions.get_mut(source) {
            Some(session) if session.id == id => Ok(session),
            Some(session) if session.id > id => Err(Error::Superseded { source_of, id }),
            _ => Err(Error::NoSession { source_of, id }),
        }
    }
}

/// Parses the name of a source, which has the same syntax as in the configuration.
fn parse_name(text: &str) -> Result<Source, Error> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
    if text.is_empty() || text.len() > 63 || !text.bytes().all(good) {
        return Err(Error::Name(text.into()));
    }
    Ok(Source::new(text))
}

/// Validates the objects of a chunk and returns them by key.
fn validate_chunk(
    source: &Source,
    added: Vec<Object>,
    existing: &BTreeMap<Key, Object>,
) -> Result<BTreeMap<Key, Object>, Error> {
    let mut new = BTreeMap::new();
    for mut object in added {
        // An object without `source` was read with the source `api`.
        let is_foreign = object.source != *source && object.source.as_str() != API;
        if is_foreign {
            return Err(Error::ForeignSource { object: object.key(), source_of: source.clone() });
        }
        object.source = source.clone();
        let key = object.key();
        if !matches!(key.kind, Kind::Service | Kind::Backends) {
            return Err(Error::Kind { object: key });
        }
        object.spec.check().map_err(|wrong| Error::Invalid(Box::new(wrong.with_object(&key))))?;
        if existing.contains_key(&key) || new.insert(key.clone(), object).is_some() {
            return Err(Error::DuplicateObject { object: key });
        }
    }
    Ok(new)
}

/// Returns the number of items of an object for [`Limits`]: itself, and its frontends or backends.
fn items(object: &Object) -> usize {
    1 + match &object.spec {
        Spec::Service(spec) => spec.frontends.len(),
        Spec::Backends(spec) => spec.endpoints.len(),
        Spec::Appliance(_)
        | Spec::Source(_)
        | Spec::BgpPeeringPolicy(_)
        | Spec::PrivateLinkService(_) => 0,
    }
}
