//! The control state over HTTP: objects of every kind, the tables that are made of them, watches.
//!
//! ```text
//!   PUT, PATCH, DELETE /v1/objects/KIND/NAME --> Change --> store, kept --> answer
//!                                                             |    `?wait=` until lcores serve it
//!   GET /v1/objects/KIND[/NAME]   <-- snapshot, or a stream <-'
//!   GET /v1/tables/TABLE          <-- tables
//!   /v1/sources/SOURCE/...        --> all that a source says, at once (sources.rs)
//!   GET /v1/...                   <-- documents that whoever runs the appliance has (documents.rs)
//!   GET /v1/openapi.json          <-- the types themselves
//! ```
//! No kind is known by name here: a kind of the common envelope is served as soon as it is one.
//! What runs the appliance is behind [`Control`], so that this room needs no region and no lcore.
#![forbid(unsafe_code)]

pub mod attempts;
mod body;
mod condition;
mod control;
mod documents;
mod fields;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod kept;
mod list;
mod object;
mod openapi;
mod path;
mod problem;
mod query;
mod route;
pub mod serve;
mod sources;
mod tables;
mod wait;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};

use openapi::Declared;
use route::Routes;

pub use body::LONGEST_BODY;
pub use control::{Api, Control};
pub use documents::Document;
pub use problem::Problem;
pub use query::Nothing;
pub use sources::watch_leases;
pub use wait::{About, Outcome, Wait};
pub use watch::Lines;

/// The routes of its documents alone, for those who ask without `/v1`.
pub fn documents(api: &Api) -> Router {
    documents::routes(&api.documents).router
}

/// All routes, below `/v1`.
pub fn router(api: Api) -> Router {
    let guard = from_fn_with_state(api.clone(), undamaged);
    let stored = list::routes().merge(object::routes()).merge(sources::routes());
    let Routes { router, declared } = stored
        .layer("store", |router| router.route_layer(guard))
        .merge(tables::routes())
        .merge(openapi::routes())
        .merge(documents::routes(&api.documents));
    let routes = router
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(Extension(Arc::new(Declared::new(declared))))
        .with_state(api);
    Router::new().nest("/v1", routes)
}

/// Refuses reads as well while the store is damaged: an object that is missing then must not be
/// taken for a deleted one.
async fn undamaged(State(api): State<Api>, request: Request, next: Next) -> Response {
    match api.store.damage() {
        Some(damage) => Problem::from(damage.refusal()).into_response(),
        None => next.run(request).await,
    }
}

async fn unknown() -> Problem {
    let there = "there is /v1/objects/KIND, /v1/sources, /v1/tables/TABLE and /v1/openapi.json";
    Problem::absent(there)
}

async fn not_allowed(method: Method) -> Problem {
    Problem::method(&method)
}
