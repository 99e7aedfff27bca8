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

use crate::condition::{self, IfChanged};
use crate::control::Api;
use crate::fields::Fields;
use crate::object;
use crate::path::{Known, Names};
use crate::problem::Problem;
use crate::query::{self, Asked, Listed};
use crate::route::{Operation, Page, Routes, get};
use crate::watch::{self, LINES, Line};

pub(crate) fn routes() -> Routes<Api> {
    let about = "Lists {kind}, or streams their changes.";
    let list = get(list, "list{Kind}", about).fails(&["too-old"]).with(page_or_stream);
    Routes::new().add("/objects/{kind}", [list])
}

fn page_or_stream(operation: &mut Operation<'_>) {
    let part = json!({ "type": "object", "description": "What `fields` left of it." });
    let item = json!({ "anyOf": [operation.of_subject(), part] });
    let (page, line) = (Page::of(operation, item), operation.of_type::<Line>());
    let answer = operation.tagged(200, "A page, or a stream.", page);
    answer["content"][LINES] = json!({ "schema": line });
}

/// Path parameters of a list of objects.
#[derive(Deserialize, JsonSchema)]
struct OfKind {
    #[schemars(skip)]
    kind: String,
}

impl Names for OfKind {
    type Known = Kind;

    fn known(self) -> Result<Kind, Problem> {
        object::kind(&self.kind)
    }
}

/// `GET /v1/objects/KIND`.
async fn list(
    State(api): State<Api>,
    Known(kind): Known<OfKind>,
    Asked(asked): Asked<Listed>,
    IfChanged(condition): IfChanged,
) -> Result<Response, Problem> {
    let fields = Fields::read(&asked.fields)?;
    let limit = query::limit(asked.limit)?;
    let after = place(kind, &asked.after)?;
    if asked.watch {
        return watch::watch(&api, kind, &asked, fields);
    }
    let objects = api.store.objects();
    let etag = condition::header(objects.revision());
    if condition.has(objects.revision()) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    let page = move || {
        let is_wanted =
            |source: &Source| asked.source.is_empty() || source.as_str() == asked.source;
        let mut all =
            objects.after(kind, after.as_ref()).filter(|object| is_wanted(&object.source));
        let (mut items, mut last) = (Vec::new(), None);
        for object in all.by_ref().take(limit) {
            items.push(fields.of(serde_json::to_value(&**object)?));
            last = Some(object);
        }
        let last = last.filter(|_| all.next().is_some());
        let next = last.map(|last| query::mark(last.name.as_str(), last.source.as_str()));
        Ok::<_, serde_json::Error>(Page { revision: objects.revision(), items, next })
    };
    let page = tokio::task::spawn_blocking(page).await.map_err(Problem::broken)?;
    Ok(([etag], Json(page.map_err(Problem::broken)?)).into_response())
}

/// Returns the key after which a page begins, or none for the first page.
fn place(kind: Kind, mark: &str) -> Result<Option<Key>, Problem> {
    let Some((name, source)) = query::marked(mark)? else { return Ok(None) };
    let name = Name::new(&name).map_err(|wrong| Problem::request(format!("continue: {wrong}")))?;
    Ok(Some(Key { kind, name, source: Source::new(&source) }))
}
