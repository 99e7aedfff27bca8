//! Endpoint that lists the objects of a kind, in pages or as a stream of changes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use state::name::{Name, Source};
use state::object::{Key, Kind};

use crate::access::Access;
use crate::condition::{self, IfChanged};
use crate::control::Api;
use crate::fields::Fields;
use crate::object;
use crate::path::{PathEntity, Resolved};
use crate::problem::Problem;
use crate::query::{self, ListQuery, QueryParams};
use crate::role::Role;
use crate::route::{Operation, Page, Routes, get};
use crate::watch::{self, LINES, Line};

pub(crate) fn routes() -> Routes<Api> {
    let about = "Lists {kind}, or streams their changes.";
    let list = get(list, Access::Read(Role::Read), "list{Kind}", about)
        .fails(&["too-old"])
        .with(page_or_stream);
    Routes::new().add("/objects/{kind}", [list])
}

fn page_or_stream(operation: &mut Operation<'_>) {
    let part = json!({ "type": "object", "description": "An object reduced to `fields`." });
    let item = json!({ "anyOf": [operation.of_subject(), part] });
    let (page, line) = (Page::of(operation, item), operation.of_type::<Line>());
    let answer = operation.with_etag(200, "A page of objects, or a stream of changes.", page);
    answer["content"][LINES] = json!({ "schema": line });
}

/// Path parameters of a list of objects.
#[derive(Deserialize, JsonSchema)]
struct KindPath {
    #[schemars(skip)]
    kind: String,
}

impl PathEntity for KindPath {
    type Resolved = Kind;

    fn resolve(self) -> Result<Kind, Problem> {
        object::kind(&self.kind)
    }
}

/// `GET /v1/objects/KIND`.
async fn list(
    State(api): State<Api>,
    Resolved(kind): Resolved<KindPath>,
    QueryParams(query_params): QueryParams<ListQuery>,
    IfChanged(condition): IfChanged,
) -> Result<Response, Problem> {
    let fields = Fields::read(&query_params.fields)?;
    let limit = query::limit(query_params.limit)?;
    let after = cursor(kind, &query_params.after)?;
    if query_params.watch {
        return watch::watch(&api, kind, &query_params, fields);
    }
    let objects = api.store.objects();
    let etag = condition::header(objects.revision());
    if condition.is_unchanged(objects.revision()) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    let page = move || {
        let is_selected = |source: &Source| {
            query_params.source.is_empty() || source.as_str() == query_params.source
        };
        let mut all =
            objects.after(kind, after.as_ref()).filter(|object| is_selected(&object.source));
        let (mut items, mut last) = (Vec::new(), None);
        for object in all.by_ref().take(limit) {
            items.push(fields.of(serde_json::to_value(&**object)?));
            last = Some(object);
        }
        let last = last.filter(|_| all.next().is_some());
        let next = last.map(|last| query::encode_cursor(last.name.as_str(), last.source.as_str()));
        Ok::<_, serde_json::Error>(Page { revision: objects.revision(), items, next })
    };
    let page = tokio::task::spawn_blocking(page).await.map_err(Problem::internal)?;
    Ok(([etag], Json(page.map_err(Problem::internal)?)).into_response())
}

/// Returns the key after which a page begins, or `None` for the first page.
fn cursor(kind: Kind, encoded: &str) -> Result<Option<Key>, Problem> {
    let Some((name, source)) = query::decode_cursor(encoded)? else { return Ok(None) };
    let name =
        Name::new(&name).map_err(|wrong| Problem::bad_request(format!("continue: {wrong}")))?;
    Ok(Some(Key { kind, name, source: Source::new(&source) }))
}
