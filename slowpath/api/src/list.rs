//! Objects of a kind: page by page, or as a stream of what happens to them.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use state::name::{Name, Source};
use state::object::{Key, Kind};

use crate::condition::{self, Condition};
use crate::control::Api;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::{self, Listed};
use crate::watch;

/// `GET /v1/objects/KIND`.
pub(crate) async fn list(
    State(api): State<Api>,
    kind: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(kind) = kind.map_err(|wrong| Problem::request(wrong.body_text()))?;
    let kind: Kind = kind.parse().map_err(|wrong| Problem::absent(format!("{wrong}")))?;
    let asked: Listed = query::read(&uri)?;
    let fields = Fields::read(&asked.fields)?;
    let limit = query::limit(asked.limit)?;
    let after = place(kind, &asked.after)?;
    let condition = Condition::of(&headers)?;
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
        let mut page = json!({ "revision": objects.revision(), "items": items });
        if let (Some(last), Some(_)) = (last, all.next()) {
            page["continue"] = query::mark(last.name.as_str(), last.source.as_str()).into();
        }
        Ok::<Value, serde_json::Error>(page)
    };
    let page = tokio::task::spawn_blocking(page).await.map_err(Problem::broken)?;
    Ok(([etag], Json(page.map_err(Problem::broken)?)).into_response())
}

/// Behind which object a page begins.
fn place(kind: Kind, mark: &str) -> Result<Option<Key>, Problem> {
    let Some((name, source)) = query::marked(mark)? else { return Ok(None) };
    let name = Name::new(&name).map_err(|wrong| Problem::request(format!("continue: {wrong}")))?;
    Ok(Some(Key { kind, name, source: Source::new(&source) }))
}
