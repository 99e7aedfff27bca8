//! Documents of whoever runs the appliance that are neither objects nor tables: read-only, asked
//! for by a path, and described by the types that they are made of.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::http::Uri;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::body::JSON;
use crate::openapi::parts::{answers, named, place, query, schema_of};
use crate::problem::Problem;
use crate::query;

/// Answers a query.
type Answer = dyn Fn(&Uri) -> Result<Value, Problem> + Send + Sync;

/// A document, and how it is made anew each time that it is asked for.
pub struct Document {
    path: &'static str,
    about: &'static str,
    parameters: Vec<Value>,
    schema: Value,
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
        let (parameters, schema) = (query::<Q>(), schema_of::<A>());
        Document { path, about, parameters, schema, answer: Box::new(answer) }
    }

    /// What it says now, to this question.
    pub(crate) fn answer(&self, uri: &Uri) -> Result<Value, Problem> {
        (self.answer)(uri)
    }

    /// What it is called among operations and schemas.
    fn name(&self) -> String {
        self.path.replace('/', "_")
    }
}

/// The documents' routes, below whatever they are put.
pub(crate) fn routes<S>(documents: &Arc<[Document]>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let mut routes = Router::new();
    for (place, document) in documents.iter().enumerate() {
        let all = Arc::clone(documents);
        let path = format!("/{}", document.path);
        routes = routes.route(&path, get(move |uri: Uri| answer(all, place, uri)));
    }
    routes
}

async fn answer(all: Arc<[Document]>, place: usize, uri: Uri) -> Result<Json<Value>, Problem> {
    let work = move || match all.get(place) {
        Some(document) => document.answer(&uri),
        None => Err(Problem::broken("the document is gone")),
    };
    tokio::task::spawn_blocking(work).await.map_err(Problem::broken)?.map(Json)
}

/// Their schemas and paths in OpenAPI's document.
pub(crate) fn describe(
    documents: &[Document],
    schemas: &mut Map<String, Value>,
    paths: &mut Map<String, Value>,
) {
    for document in documents {
        let name = document.name();
        place(schemas, &name, document.schema.clone());
        let content = json!({ JSON: { "schema": named(&name) } });
        let good = json!({ "description": document.about, "content": content });
        let read = json!({
            "operationId": name,
            "summary": document.about,
            "parameters": document.parameters,
            "responses": answers(&[("200", good)], &[]),
        });
        paths.insert(format!("/v1/{}", document.path), json!({ "get": read }));
    }
}
