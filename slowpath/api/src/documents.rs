//! Documents of whoever runs the appliance that are neither objects nor tables: read-only, asked
//! for by a path, and described by the types that they are made of.

use std::sync::Arc;

use axum::Json;
use axum::http::Uri;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;
use crate::query::{self, Asked};
use crate::route::{Describe, Operation, Route, Routes};

/// Answers a query.
type Answer = dyn Fn(&Uri) -> Result<Value, Problem> + Send + Sync;

/// A document, and how it is made anew each time that it is asked for.
pub struct Document {
    path: &'static str,
    about: &'static str,
    describe: fn(&mut Operation<'_>),
    answer: Box<Answer>,
}

impl Document {
    /// One below `/v1/`. `read` may take its time; what it is asked is `Q`, of which nothing that
    /// is unknown gets through where `Q` says so.
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
            let asked: Q = query::read(uri)?;
            serde_json::to_value(read(&asked)?).map_err(Problem::broken)
        };
        let describe = |operation: &mut Operation<'_>| {
            Asked::<Q>::describe(operation);
            Json::<A>::describe(operation);
        };
        Document { path, about, describe, answer: Box::new(answer) }
    }

    /// What it says now, to this question.
    pub(crate) fn answer(&self, uri: &Uri) -> Result<Value, Problem> {
        (self.answer)(uri)
    }
}

/// The documents' routes, below whatever they are put.
pub(crate) fn routes<S>(documents: &Arc<[Document]>) -> Routes<S>
where
    S: Clone + Send + Sync + 'static,
{
    let mut routes = Routes::new();
    for (at, document) in documents.iter().enumerate() {
        let all = Arc::clone(documents);
        let handler = get(move |uri: Uri| answer(all, at, uri));
        let id = document.path.replace('/', "_");
        let route = Route::new("get", handler, document.describe, &id, document.about);
        routes = routes.add(&format!("/{}", document.path), [route.good(document.about)]);
    }
    routes
}

async fn answer(all: Arc<[Document]>, at: usize, uri: Uri) -> Result<Json<Value>, Problem> {
    let work = move || match all.get(at) {
        Some(document) => document.answer(&uri),
        None => Err(Problem::broken("the document is gone")),
    };
    tokio::task::spawn_blocking(work).await.map_err(Problem::broken)?.map(Json)
}
