//! Endpoints of sources: a source sends its complete list in a session, which replaces its earlier
//! list.
//!
//! ```text
//!   POST   /v1/sources/SOURCE/sessions            opens a session; returns its number
//!   PUT    /v1/sources/SOURCE/sessions/N/chunks/0 adds a list of objects; then chunk 1, 2, ...
//!   POST   /v1/sources/SOURCE/sessions/N/commit   makes the chunks the source's complete list
//!   POST   /v1/sources/SOURCE/confirm             permits the removal for which a list is held
//!   DELETE /v1/sources/SOURCE/sessions/N          discards the session
//!   POST   /v1/sources/SOURCE/renew               renews the lease
//!   GET    /v1/sources[/SOURCE]                   lease, session, revision
//! ```
//! A list that would remove too many objects is held: it is not committed unless the removal has
//! been confirmed, or the commit permits it.
//!
//! The state machine is [`state::sources`]. This module adds the lock around it, the clock and the
//! access to the store. The changes of a request are written to the store before the response is
//! sent, under the lock, so that the machine handles no other request in between.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::NoContent;
use parking_lot::MutexGuard;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use state::name::Source;
use state::object::{Change, Kind, Object, Objects};
use state::reconcile::Now;
use state::sources::{
    Added, Begin, Begun, Commit, Committed, Confirmed, Error, Lease, Renewed, Report, Sources,
};
use state::store::WriteRequest;
use tokio::time::MissedTickBehavior;

use crate::access::Access;
use crate::audit::Notes;
use crate::body::{Body, Content, Fields};
use crate::control::{Api, wait_until_in_force};
use crate::path::PathParams;
use crate::problem::Problem;
use crate::query::{NoQuery, QueryParams, WriteQuery};
use crate::role::Role;
use crate::route::{Created, Operation, Page, Routes, Stored, delete, get, post, put};
use crate::store_write;
use crate::wait::WrittenObject;

#[cfg(test)]
mod tests;

const READ: Access = Access::Read(Role::Read);
const CHANGE: Access = Access::Change(Role::Admin);
const OPERATE: Access = Access::Change(Role::Operate);
const UNRECORDED: Access = Access::Unrecorded(Role::Admin);
/// Interval between two checks for expired leases.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Routes<Api> {
    let about = "Lists the sources with their lease, session and revision.";
    let all = get(list_sources, READ, "sources", about).good("The sources.");
    let about = "Reads the lease, session and revision of a source.";
    let one = get(get_source, READ, "source", about).good("The source.");
    let about = "Opens a session for a complete list of the source; closes one that was open.";
    let begin = post(begin, CHANGE, "begin", about).good("The new session.");
    let about = "Adds a chunk to the session; a chunk that was already added changes nothing.";
    let chunk = put(chunk, UNRECORDED, "chunk", about).good("The chunk was added.");
    let about = "Commits the session: objects of the source that are not in it are removed.";
    let commit = post(commit, CHANGE, "commit", about).good("The list is committed.");
    let about = "Permits the removal for which the source's list is held.";
    let confirm = post(confirm, OPERATE, "confirm", about);
    let confirm = confirm.good("The permitted removal.").detail(
        "The permission covers the next list that removes exactly these objects: files are read \
         again at once, a session must be committed again.",
    );
    let about = "Discards the session.";
    let abort = delete(abort, CHANGE, "abort", about).good("The session was discarded.");
    let about = "Renews the lease of the source.";
    let renew = post(renew, UNRECORDED, "renew", about).good("The renewed lease.");
    let failures = ["foreign", "held", "superseded", "not-in-force", "deleting", "store-timeout"];
    let session = "/sources/{source}/sessions/{session}";
    Routes::new()
        .add("/sources", [all])
        .add("/sources/{source}", [one])
        .add("/sources/{source}/confirm", [confirm.fails(&["store-timeout"])])
        .add("/sources/{source}/renew", [renew.fails(&["foreign", "released", "store-timeout"])])
        .add("/sources/{source}/sessions", [begin.fails(&["foreign", "busy", "store-timeout"])])
        .add(session, [abort.fails(&["foreign", "superseded"])])
        .add(&format!("{session}/commit"), [commit.fails(&failures)])
        .add(
            &format!("{session}/chunks/{{chunk}}"),
            [chunk.fails(&["foreign", "missing-chunk", "superseded"])],
        )
}

/// Path parameters of a source.
#[derive(Deserialize, JsonSchema)]
struct SourcePath {
    /// Name of the source.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9._-]+$"))]
    source: String,
}

/// Path parameters of a session.
#[derive(Deserialize, JsonSchema)]
struct SessionPath {
    /// Name of the source.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9._-]+$"))]
    source: String,
    /// Number of the session, from the response that opened it.
    session: u64,
}

/// Path parameters of a chunk.
#[derive(Deserialize, JsonSchema)]
struct ChunkPath {
    /// Name of the source.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9._-]+$"))]
    source: String,
    /// Number of the session, from the response that opened it.
    session: u64,
    /// Number of the chunk: 0 for the first, increasing by one.
    chunk: u64,
}

/// The body of a chunk: a list of objects.
struct Chunk;

impl Content for Chunk {
    fn schema(operation: &mut Operation<'_>) -> Value {
        let kinds = [Kind::Service, Kind::Backends].map(|kind| operation.of_kind(kind));
        json!({ "type": "array", "items": { "anyOf": kinds } })
    }
}

/// Locks the state machine and applies the configured settings to it. Returns it with the objects
/// and the time, both read under the lock.
fn lock(api: &Api) -> (MutexGuard<'_, Sources>, Objects, Now) {
    let mut sources = api.sources.lock();
    sources.configure(api.control.sources());
    (sources, api.store.objects(), api.control.now())
}

/// Runs a request under the lock, on a thread that may block on the disk.
async fn with_sources<T: Send + 'static>(
    api: &Api,
    request: impl FnOnce(&Api, &mut Sources, &Objects, Now) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let api = api.clone();
    let task = move || {
        let (mut sources, objects, now) = lock(&api);
        request(&api, &mut sources, &objects, now)
    };
    tokio::task::spawn_blocking(task).await.map_err(Problem::internal)?
}

/// `POST /v1/sources/SOURCE/sessions`.
async fn begin(
    State(api): State<Api>,
    PathParams(SourcePath { source }): PathParams<SourcePath>,
    _: QueryParams<NoQuery>,
    body: Body<Fields<Begin>>,
) -> Result<Created<Begun>, Problem> {
    let fields = body.fields()?;
    let path = format!("/v1/sources/{source}/sessions");
    let begun = with_sources(&api, move |api, sources, objects, now| {
        let (begun, batch) = sources.begin(&source, &fields, objects, now)?;
        if let Err(error) = store_write::write_blocking(api, WriteRequest::new(batch, now.wall)) {
            // No client knows the session's number, so none could use the session.
            let _ = sources.abort(&source, begun.session);
            return Err(error.into());
        }
        Ok(begun)
    });
    let begun = begun.await?;
    Ok(Created { path: format!("{path}/{}", begun.session), body: begun })
}

/// `PUT /v1/sources/SOURCE/sessions/N/chunks/CHUNK`.
async fn chunk(
    State(api): State<Api>,
    PathParams(ChunkPath { source, session, chunk }): PathParams<ChunkPath>,
    _: QueryParams<NoQuery>,
    body: Body<Chunk>,
) -> Result<Json<Added>, Problem> {
    // A chunk may be large: parse it on a blocking thread, and before the lock is taken.
    let read = move || parse_objects(&body.json()?);
    let objects = tokio::task::spawn_blocking(read).await.map_err(Problem::internal)??;
    let added = with_sources(&api, move |_, sources, _, now| {
        Ok(sources.add(&source, session, chunk, objects, now)?)
    });
    added.await.map(Json)
}

/// Parses a list of objects.
pub(crate) fn parse_objects(json: &Value) -> Result<Vec<Object>, Problem> {
    let Value::Array(list) = json else {
        return Err(Problem::bad_request("the body is not a list: write [{\"kind\": ...}, ...]"));
    };
    let read = |(at, one): (usize, &Value)| {
        Object::from_json(one).map_err(|error| {
            let dot = if error.field.is_empty() { "" } else { "." };
            let field = format!("[{at}]{dot}{}", error.field);
            Problem { field: Some(field.into()), ..error.into() }
        })
    };
    list.iter().enumerate().map(read).collect()
}

/// `POST /v1/sources/SOURCE/sessions/N/commit`.
async fn commit(
    State(api): State<Api>,
    Extension(notes): Extension<Notes>,
    PathParams(SessionPath { source, session }): PathParams<SessionPath>,
    QueryParams(query): QueryParams<WriteQuery>,
    body: Body<Fields<Commit>>,
) -> Result<Stored<Committed>, Problem> {
    let (dry_run, timeout) = (query.dry_run, query.timeout()?);
    let fields = body.fields()?;
    let committed = with_sources(&api, move |api, sources, objects, now| {
        let (committed, batch) = match sources.commit(&source, session, &fields, objects, now) {
            Err(Error::Held(held)) if !dry_run => {
                let record = held.record(objects, now.wall);
                tracing::warn!(
                    event = "source_list_held",
                    %source,
                    reason = %held,
                    "source list held"
                );
                store_write::write_blocking(api, WriteRequest::new(record, now.wall))?;
                return Err(Error::Held(held).into());
            }
            committed => committed?,
        };
        notes.set_all(&batch, objects);
        if dry_run {
            notes.no_change();
            let mut scratch = objects.clone();
            batch.iter().try_for_each(|change| scratch.apply(change, now.wall).map(drop))?;
            return Ok((committed, None));
        }
        let written = timeout.map(|timeout| (WrittenObject::of(&batch, objects), timeout));
        let complete_sources = vec![Source::new(&source)];
        let request = WriteRequest { complete_sources, ..WriteRequest::new(batch, now.wall) };
        let revision = store_write::write_blocking(api, request)?;
        notes.stored(revision);
        sources.committed(&source, session);
        Ok((committed, written.map(|(written, timeout)| (revision, written, timeout))))
    });
    let (committed, waits) = committed.await?;
    let in_force = match waits {
        Some((revision, written, timeout)) => {
            wait_until_in_force(&api, revision, (written, true), timeout).await?
        }
        None => true,
    };
    Ok(Stored { in_force, body: committed })
}

/// `POST /v1/sources/SOURCE/confirm`, for sources with sessions and for the appliance's files.
async fn confirm(
    State(api): State<Api>,
    PathParams(SourcePath { source }): PathParams<SourcePath>,
    _: QueryParams<NoQuery>,
) -> Result<Json<Confirmed>, Problem> {
    let confirmed = with_sources(&api, move |api, sources, objects, now| {
        let (confirmed, batch) = sources.confirm(&source, objects, now)?;
        store_write::write_blocking(api, WriteRequest::new(batch, now.wall))?;
        tracing::warn!(
            event = "removal_confirmed",
            %source,
            removed = confirmed.removed,
            "removal confirmed"
        );
        Ok(confirmed)
    });
    confirmed.await.map(Json)
}

/// `DELETE /v1/sources/SOURCE/sessions/N`.
async fn abort(
    State(api): State<Api>,
    PathParams(SessionPath { source, session }): PathParams<SessionPath>,
    _: QueryParams<NoQuery>,
) -> Result<NoContent, Problem> {
    with_sources(&api, move |_, sources, _, _| Ok(sources.abort(&source, session)?)).await?;
    Ok(NoContent)
}

/// `POST /v1/sources/SOURCE/renew`.
async fn renew(
    State(api): State<Api>,
    PathParams(SourcePath { source }): PathParams<SourcePath>,
    _: QueryParams<NoQuery>,
    body: Body<Fields<Lease>>,
) -> Result<Json<Renewed>, Problem> {
    let fields = body.fields()?;
    let renewed = with_sources(&api, move |api, sources, objects, now| {
        let (renewed, batch) = sources.renew(&source, &fields, objects, now)?;
        store_write::write_blocking(api, WriteRequest::new(batch, now.wall))?;
        Ok(renewed)
    });
    renewed.await.map(Json)
}

/// `GET /v1/sources`.
async fn list_sources(
    State(api): State<Api>,
    _: QueryParams<NoQuery>,
) -> Result<Json<Page<Report>>, Problem> {
    let all = with_sources(&api, |_, sources, objects, now| {
        let items = sources.report(objects, now);
        Ok(Page { revision: objects.revision(), items, next: None })
    });
    all.await.map(Json)
}

/// `GET /v1/sources/SOURCE`.
async fn get_source(
    State(api): State<Api>,
    PathParams(SourcePath { source }): PathParams<SourcePath>,
    _: QueryParams<NoQuery>,
) -> Result<Json<Report>, Problem> {
    let one = with_sources(&api, move |_, sources, objects, now| {
        let all = sources.report(objects, now).into_iter();
        let found = all.into_iter().find(|report| report.source.as_str() == source);
        found.ok_or_else(|| Problem::not_found(format!("there is no source `{source}`")))
    });
    one.await.map(Json)
}

/// Handles expired leases once a second. Never returns.
pub async fn watch_leases(api: Api) {
    let mut interval = tokio::time::interval(LEASE_CHECK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let api = api.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || tick(&api)).await {
            tracing::error!(
                event = "source_leases_unchecked",
                %error,
                "checking source leases failed"
            );
        }
    }
}

/// Writes the changes that follow from expired leases. Changes that can't be stored are derived
/// again at the next call.
fn tick(api: &Api) {
    let (mut sources, objects, now) = lock(api);
    for batch in sources.tick(&objects, now) {
        let texts: Vec<String> = batch.iter().filter_map(log_text).collect();
        match store_write::write_blocking(api, WriteRequest::new(batch, now.wall)) {
            Ok(_) => {
                tracing::warn!(
                    event = "source_leases_expired",
                    changes = %texts.join("; "),
                    "source leases expired"
                )
            }
            Err(error) => {
                let changes = texts.join("; ");
                tracing::error!(
                    event = "source_leases_unstored",
                    %changes,
                    %error,
                    "expired source leases not stored, retrying"
                );
            }
        }
    }
}

/// Returns the log text for a change that follows from an expired lease.
fn log_text(change: &Change) -> Option<String> {
    let Change::Status { key, conditions, .. } = change else { return None };
    Some(format!("source {}: {}", key.source, conditions.first()?.message))
}
