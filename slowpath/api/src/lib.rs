//! The HTTP API of the control state: objects of every kind, the tables derived from them, and
//! watches.
//!
//! ```text
//!   PUT, PATCH, DELETE /v1/objects/KIND/NAME --> Change --> store, synced --> response
//!                                                              |    `?wait=` until lcores serve it
//!   GET /v1/objects/KIND[/NAME]   <-- snapshot, or a stream <--'
//!   GET /v1/backup, POST /v1/restore   all objects at one revision; a list, all or nothing
//!   GET /v1/tables/TABLE          <-- tables
//!   /v1/sources/SOURCE/...        --> complete list of a source, in a session (sources.rs)
//!   GET /v1/tokens, /v1/audit     <-- named tokens; the audit log
//!   GET /v1/events                <-- the history of events
//!   GET /v1/...                   <-- documents registered by the appliance (documents.rs)
//!   GET /v1/openapi.json          <-- generated from the Rust types
//!   GET /, /login                 <-- the page for browsers (browser.rs)
//! ```
//! Each operation declares the role that it needs (access.rs); changes and rejected callers are
//! recorded (audit.rs). The endpoints of objects serve every [`state::object::Kind`] in the same
//! way. Only sessions of sources and `?wait=` depend on the kinds: they concern services and
//! backends. The running appliance is behind the trait [`Control`], so the crate depends on no
//! region and no lcore.
#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
mod audit_log;
pub mod auth_failures;
mod backup;
mod body;
pub mod browser;
mod certificate;
mod condition;
mod control;
pub mod credentials;
mod documents;
mod event_log;
mod fields;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
pub mod hex;
mod host;
mod list;
pub mod named_tokens;
mod object;
mod openapi;
mod path;
pub mod principal;
mod problem;
mod query;
pub mod reason;
mod role;
mod route;
pub mod serve;
mod sessions;
mod sources;
mod store_write;
mod tables;
mod tokens;
mod tokens_list;
mod wait;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};

use openapi::Declared;
use route::Routes;

pub use audit_log::AuditPage;
pub use backup::{MAX_RESTORE_BYTES, RestoreAction, Restored, RestoredObject};
pub use body::MAX_BODY_BYTES;
pub use control::{Api, Control};
pub use documents::Document;
pub use problem::Problem;
pub use query::NoQuery;
pub use role::{Role, UnknownRole};
pub use sources::watch_leases;
pub use wait::{Outcome, Wait, WrittenObject};
pub use watch::Lines;

/// Returns the routes of the registered documents alone, without the `/v1` prefix. The control
/// socket serves them at both paths.
pub fn documents(api: &Api) -> Router {
    documents::routes(&api.documents).into_parts().0.into_router()
}

/// Returns the routes of everything but the registered documents.
fn routes(api: &Api) -> Routes<Api> {
    let guard = from_fn_with_state(api.clone(), reject_if_damaged);
    list::routes()
        .merge(object::routes())
        .merge(sources::routes())
        .merge(backup::routes())
        .layer("store", |handler| handler.route_layer(guard.clone()))
        .merge(tables::routes())
        .merge(tokens_list::routes())
        .merge(audit_log::routes())
        .merge(event_log::routes())
        .merge(openapi::routes())
}

/// Returns all routes, nested below `/v1`.
pub fn router(api: Api) -> Router {
    let measure = from_fn_with_state(Arc::clone(&api.control), measure);
    let (calls, declared) = routes(&api).merge(documents::routes(&api.documents)).into_parts();
    let routes = calls
        .into_router()
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(Extension(Arc::new(Declared::new(declared))))
        .with_state(api);
    Router::new().nest("/v1", routes).layer(measure)
}

/// Reports the method, route, status and duration of a request to [`Control::request_done`]. The
/// duration ends when the response begins.
async fn measure(
    State(control): State<Arc<dyn Control>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let (method, began) = (request.method().clone(), Instant::now());
    let response = next.run(request).await;
    // For a path below /v1 without a route, axum reports a wildcard of its own (`__private...`).
    let route =
        route.as_ref().map(MatchedPath::as_str).filter(|route| !route.contains("__private"));
    control.request_done(method.as_str(), route, response.status().as_u16(), began);
    response
}

/// Rejects requests, reads as well as writes, while the store is damaged: a client must not take a
/// missing object for a deleted one.
async fn reject_if_damaged(State(api): State<Api>, request: Request, next: Next) -> Response {
    match api.store.damage() {
        Some(damage) => Problem::from(damage.change_error()).into_response(),
        None => next.run(request).await,
    }
}

async fn unknown() -> Problem {
    Problem::not_found("there is no such path; /v1/openapi.json describes all paths")
}

async fn not_allowed(method: Method) -> Problem {
    Problem::method(&method)
}
