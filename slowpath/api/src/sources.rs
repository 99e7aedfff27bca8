//! Sources that say all that they know, and have it replaced as a whole.
//!
//! ```text
//!   POST   /v1/sources/SOURCE/sessions            begin --> a session's number
//!   PUT    /v1/sources/SOURCE/sessions/N/chunks/0 a list of objects, and so on: 1, 2, ...
//!   POST   /v1/sources/SOURCE/sessions/N/commit   this, and nothing else, is said now
//!   POST   /v1/sources/SOURCE/confirm             permits the removal for which a list is held
//!   DELETE /v1/sources/SOURCE/sessions/N          as if nothing had been said
//!   POST   /v1/sources/SOURCE/renew               the lease runs anew
//!   GET    /v1/sources[/SOURCE]                   lease, session, revision
//! ```
//! What becomes of each request is the machine's ([`state::sources`]) to tell. Here are its lock,
//! its clock and its way to the store: what it wants changed is kept before the answer goes out,
//! under the lock, so that nothing else is asked of it in between.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::MutexGuard;
use serde_json::{Value, json};
use state::name::Source;
use state::object::{Change, Object, Objects};
use state::reconcile::Now;
use state::sources::{
    Added, Begin, Commit, Committed, Confirmed, Error, Lease, Renewed, Report, Sources,
};
use state::store::Order;
use tokio::time::MissedTickBehavior;

use crate::body::{self, Body, JSON};
use crate::control::{Api, until};
use crate::kept;
use crate::problem::Problem;
use crate::query::{self, Nothing, Written};
use crate::wait::About;

#[cfg(test)]
mod tests;

/// How often leases are looked at.
const LOOK: Duration = Duration::from_secs(1);

type At<T> = Result<Path<T>, PathRejection>;

fn at<T>(place: At<T>) -> Result<T, Problem> {
    place.map(|Path(place)| place).map_err(|wrong| Problem::request(wrong.body_text()))
}

/// The machine, configured as is in force, with the objects and the time as they are from then on.
fn lock(api: &Api) -> (MutexGuard<'_, Sources>, Objects, Now) {
    let mut sources = api.sources.lock();
    sources.configure(api.control.sources());
    (sources, api.store.objects(), api.control.now())
}

/// Asks under the lock, on a thread that may wait for the disk.
async fn ask<T: Send + 'static>(
    api: &Api,
    asks: impl FnOnce(&Api, &mut Sources, &Objects, Now) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let api = api.clone();
    let locked = move || {
        let (mut sources, objects, now) = lock(&api);
        asks(&api, &mut sources, &objects, now)
    };
    tokio::task::spawn_blocking(locked).await.map_err(Problem::broken)?
}

/// `POST /v1/sources/SOURCE/sessions`.
pub(crate) async fn begin(
    State(api): State<Api>,
    source: At<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (source, Nothing {}) = (at(source)?, query::read(&uri)?);
    let asked: Begin = body::fields(&headers, body)?;
    let path = format!("/v1/sources/{source}/sessions");
    let begun = ask(&api, move |api, sources, objects, now| {
        let (begun, batch) = sources.begin(&source, &asked, objects, now)?;
        if let Err(refusal) = kept::write_blocking(api, Order::new(batch, now.wall)) {
            // Nobody is told its number.
            let _ = sources.abort(&source, begun.session);
            return Err(refusal.into());
        }
        Ok(begun)
    });
    let begun = begun.await?;
    let place = [(header::LOCATION, format!("{path}/{}", begun.session))];
    Ok((StatusCode::CREATED, place, Json(begun)).into_response())
}

/// `PUT /v1/sources/SOURCE/sessions/N/chunks/N`.
pub(crate) async fn chunk(
    State(api): State<Api>,
    place: At<(String, u64, u64)>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Added>, Problem> {
    let ((source, id, number), Nothing {}) = (at(place)?, query::read(&uri)?);
    // It may be long: read where others don't wait for it, and before anybody waits for the lock.
    let read = move || said(&body::json(&headers, body, JSON)?);
    let said = tokio::task::spawn_blocking(read).await.map_err(Problem::broken)??;
    let added =
        ask(&api, move |_, sources, _, now| Ok(sources.add(&source, id, number, said, now)?));
    added.await.map(Json)
}

/// The objects of a chunk.
fn said(json: &Value) -> Result<Vec<Object>, Problem> {
    let Value::Array(list) = json else {
        return Err(Problem::request("the body is no list: write [{\"kind\": ...}, ...]"));
    };
    let read = |(at, one): (usize, &Value)| {
        Object::from_json(one).map_err(|refusal| {
            let dot = if refusal.field.is_empty() { "" } else { "." };
            let field = format!("[{at}]{dot}{}", refusal.field);
            Problem { field: Some(field.into()), ..refusal.into() }
        })
    };
    list.iter().enumerate().map(read).collect()
}

/// `POST /v1/sources/SOURCE/sessions/N/commit`.
pub(crate) async fn commit(
    State(api): State<Api>,
    place: At<(String, u64)>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Committed>), Problem> {
    let (source, id) = at(place)?;
    let written: Written = query::read(&uri)?;
    let (dry_run, patience) = (written.dry_run, written.patience()?);
    let asked: Commit = body::fields(&headers, body)?;
    let made = ask(&api, move |api, sources, objects, now| {
        let (committed, batch) = match sources.commit(&source, id, &asked, objects, now) {
            Err(Error::Held(held)) if !dry_run => {
                let record = held.record(objects, now.wall);
                tracing::warn!("{held}");
                kept::write_blocking(api, Order::new(record, now.wall))?;
                return Err(Error::Held(held).into());
            }
            made => made?,
        };
        if dry_run {
            let mut tried = objects.clone();
            batch.iter().try_for_each(|change| tried.apply(change, now.wall).map(drop))?;
            return Ok((committed, None));
        }
        let about = patience.map(|patience| (About::of(&batch, objects), patience));
        let settles = vec![Source::new(&source)];
        let order = Order { settles, ..Order::new(batch, now.wall) };
        let revision = kept::write_blocking(api, order)?;
        sources.committed(&source, id);
        Ok((committed, about.map(|(about, patience)| (revision, about, patience))))
    });
    let (committed, waits) = made.await?;
    let done = match waits {
        Some((revision, about, patience)) => until(&api, revision, (about, true), patience).await?,
        None => true,
    };
    let status = if done { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(committed)))
}

/// `POST /v1/sources/SOURCE/confirm`, for sources that speak here and for the appliance's files.
pub(crate) async fn confirm(
    State(api): State<Api>,
    source: At<String>,
    uri: Uri,
) -> Result<Json<Confirmed>, Problem> {
    let (source, Nothing {}) = (at(source)?, query::read(&uri)?);
    let confirmed = ask(&api, move |api, sources, objects, now| {
        let (confirmed, batch) = sources.confirm(&source, objects, now)?;
        kept::write_blocking(api, Order::new(batch, now.wall))?;
        tracing::warn!(%source, removed = confirmed.removed, "removal confirmed");
        Ok(confirmed)
    });
    confirmed.await.map(Json)
}

/// `DELETE /v1/sources/SOURCE/sessions/N`.
pub(crate) async fn abort(
    State(api): State<Api>,
    place: At<(String, u64)>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let ((source, id), Nothing {}) = (at(place)?, query::read(&uri)?);
    ask(&api, move |_, sources, _, _| Ok(sources.abort(&source, id)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sources/SOURCE/renew`.
pub(crate) async fn renew(
    State(api): State<Api>,
    source: At<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Renewed>, Problem> {
    let (source, Nothing {}) = (at(source)?, query::read(&uri)?);
    let asked: Lease = body::fields(&headers, body)?;
    let renewed = ask(&api, move |api, sources, objects, now| {
        let (renewed, batch) = sources.renew(&source, &asked, objects, now)?;
        kept::write_blocking(api, Order::new(batch, now.wall))?;
        Ok(renewed)
    });
    renewed.await.map(Json)
}

/// `GET /v1/sources`.
pub(crate) async fn all(State(api): State<Api>, uri: Uri) -> Result<Json<Value>, Problem> {
    let Nothing {} = query::read(&uri)?;
    let all = ask(&api, |_, sources, objects, now| {
        let items = sources.report(objects, now);
        Ok(json!({ "revision": objects.revision(), "items": items }))
    });
    all.await.map(Json)
}

/// `GET /v1/sources/SOURCE`.
pub(crate) async fn one(
    State(api): State<Api>,
    source: At<String>,
    uri: Uri,
) -> Result<Json<Report>, Problem> {
    let (source, Nothing {}) = (at(source)?, query::read(&uri)?);
    let one = ask(&api, move |_, sources, objects, now| {
        let all = sources.report(objects, now).into_iter();
        let found = all.into_iter().find(|report| report.source.as_str() == source);
        found.ok_or_else(|| Problem::absent(format!("source `{source}` has never begun")))
    });
    one.await.map(Json)
}

/// Looks at the leases once a second, for good.
pub async fn watch_leases(api: Api) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let api = api.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || tick(&api)).await {
            tracing::error!(%error, "leases of sources could not be looked at");
        }
    }
}

/// Makes the changes that leases which ran out lead to. What isn't kept is told anew next time.
fn tick(api: &Api) {
    let (mut sources, objects, now) = lock(api);
    for batch in sources.tick(&objects, now) {
        let told: Vec<String> = batch.iter().filter_map(told).collect();
        match kept::write_blocking(api, Order::new(batch, now.wall)) {
            Ok(_) => tracing::warn!("{}", told.join("; ")),
            Err(refusal) => {
                tracing::error!("{}: not kept, tried again: {refusal}", told.join("; "))
            }
        }
    }
}

/// What a lease that ran out leads to, for the log.
fn told(change: &Change) -> Option<String> {
    let Change::Status { key, conditions, .. } = change else { return None };
    Some(format!("source {}: {}", key.source, conditions.first()?.message))
}
