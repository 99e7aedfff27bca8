//! Read-only documents registered by the appliance, neither objects nor tables. Each has a path,
//! and a description derived from its types.

use std::sync::Arc;

use axum::Json;
use axum::http::Uri;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::access::Access;
use crate::problem::Problem;
use crate::query::{self, QueryParams};
use crate::role::Role;
use crate::route::{Describe, Operation, Route, Routes};

/// Returns the document for a query.
type Answer = dyn Fn(&Uri) -> Result<Value, Problem> + Send + Sync;

/// A document that is generated for each request.
pub struct Document {
    path: &'static str,
    about: &'static str,
    describe: fn(&mut Operation<'_>),
    answer: Box<Answer>,
}

impl Document {
    /// Creates a document at `/v1/{path}`. `read` may block. `Q` is the type of the query; unknown
    /// parameters are rejected if `Q` denies unknown fields.
    pub fn new<Q, A>(
        path: &'static str,
        about: &'static str,
        read: impl Fn(&Q) -> Result<A, Problem> + Send + Sync + 'static,
    ) -> Document
    where
        Q: DeserializeOwned + JsonSchema + 'static,
        A: Serialize + JsonSchema,
    {
        let answer = move |uri: &Uri| {
            let query: Q = query::read(uri)?;
            serde_json::to_value(read(&query)?).map_err(Problem::internal)
        };
        let describe = |operation: &mut Operation<'_>| {
            QueryParams::<Q>::describe(operation);
            Json::<A>::describe(operation);
        };
        Document { path, about, describe, answer: Box::new(answer) }
    }

    /// Generates the document for this query.
    pub(crate) fn answer(&self, uri: &Uri) -> Result<Value, Problem> {
        (self.answer)(uri)
    }
}

/// Returns the routes of the documents, relative to where they are nested.
pub(crate) fn routes<S>(documents: &Arc<[Document]>) -> Routes<S>
where
    S: Clone + Send + Sync + 'static,
{
    let mut routes = Routes::new();
    for (at, document) in documents.iter().enumerate() {
        let all = Arc::clone(documents);
        let handler = get(move |uri: Uri| answer(all, at, uri));
        let id = document.path.replace('/', "_");
        let access = (Access::Read(Role::Read), id.as_str());
        let route = Route::new("get", handler, document.describe, access, document.about);
        routes = routes.add(&format!("/{}", document.path), [route.good(document.about)]);
    }
    routes
}

async fn answer(all: Arc<[Document]>, at: usize, uri: Uri) -> Result<Json<Value>, Problem> {
    let work = move || match all.get(at) {
        Some(document) => document.answer(&uri),
        None => Err(Problem::internal("no such document")),
    };
    tokio::task::spawn_blocking(work).await.map_err(Problem::internal)?.map(Json)
}
