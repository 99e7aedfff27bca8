//! The control state over HTTP: objects of every kind, the tables that are made of them, watches.
//!
//! ```text
//!   PUT, PATCH, DELETE /v1/objects/KIND/NAME --> Change --> store, kept --> answer
//!                                                             |    `?wait=` until lcores serve it
//!   GET /v1/objects/KIND[/NAME]   <-- snapshot, or a stream <-'
//!   GET /v1/tables/TABLE          <-- tables
//!   GET /v1/openapi.json          <-- the types themselves
//! ```
//! No kind is known by name here: a kind of the common envelope is served as soon as it is one.
//! What runs the appliance is behind [`Control`], so that this room needs no region and no lcore.
#![forbid(unsafe_code)]

mod condition;
mod fields;
mod list;
mod object;
mod openapi;
mod problem;
mod query;
pub mod serve;
mod tables;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::get;
use state::address::Address;
use state::appliance::Appliance;
use state::name::Name;
use state::object::Key;
use state::store::{AnyDisk, Shared};
use state::tables::Tables;
use tokio::sync::oneshot;

pub use problem::Problem;

/// Bytes of the longest body: a list of 20,000 backends fits.
pub const LONGEST_BODY: usize = 4 << 20;

/// What the API asks of whoever runs the appliance. It is asked from many threads and must not
/// block.
pub trait Control: Send + Sync {
    /// The tables as they are, and the appliance as selection sees it.
    fn tables(&self) -> (Tables, Arc<Appliance>);

    /// Answers when what was written has come as far as it gets; never, where it doesn't: whoever
    /// asks has a time of his own.
    fn wait(&self, wait: Wait);
}

/// Somebody waits for a change to be in force.
#[derive(Debug)]
pub struct Wait {
    /// The object that was written.
    pub key: Key,
    /// The revision after the write.
    pub revision: u64,
    /// The service that it is about; none for objects that are about no service.
    pub service: Option<Name>,
    /// Frontends that the service has, had or shall have by this object.
    pub addresses: Vec<Address>,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Outcome>,
}

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All lcores serve it.
    Done,
    /// It isn't in the tables, or a plane refuses it: why.
    Refused(String),
}

/// What the API works on.
#[derive(Clone)]
pub struct Api {
    /// The objects.
    pub store: Arc<Shared<AnyDisk>>,
    /// The appliance.
    pub control: Arc<dyn Control>,
}

/// All routes, below `/v1`.
pub fn router(api: Api) -> Router {
    let object = get(object::get).put(object::put).patch(object::patch).delete(object::delete);
    let routes = Router::new()
        .route("/openapi.json", get(openapi::document))
        .route("/objects/{kind}", get(list::list))
        .route("/objects/{kind}/{*name}", object)
        .route("/tables/{table}", get(tables::rows))
        // What other sources say as a whole has its routes here: /v1/sources/SOURCE/...
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .with_state(api);
    Router::new().nest("/v1", routes)
}

async fn unknown() -> Problem {
    Problem::absent("there is /v1/objects/KIND, /v1/tables/TABLE and /v1/openapi.json")
}

async fn not_allowed(method: Method) -> Problem {
    Problem::method(&method)
}
