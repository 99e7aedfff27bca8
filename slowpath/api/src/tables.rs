//! The tables that are made of the objects: read-only, as the planes are told of them.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use serde_json::{Value, json};
use state::show::{KeyFilter, Row, Table};

use crate::control::Api;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::{self, Rows};

/// `GET /v1/tables/TABLE`.
pub(crate) async fn rows(
    State(api): State<Api>,
    table: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let Path(name) = table.map_err(|wrong| Problem::request(wrong.body_text()))?;
    let Some(table) = Table::named(&name) else {
        let known: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        let known = known.join(", ");
        return Err(Problem::absent(format!("there is no table `{name}`; there are {known}")));
    };
    let asked: Rows = query::read(&uri)?;
    let (fields, limit) = (Fields::read(&asked.fields)?, query::limit(asked.limit)?);
    let unknown = |column: &&str| !column.is_empty() && !table.columns().contains(column);
    if let Some(column) = asked.fields.split(',').find(unknown) {
        let known = table.columns().join(", ");
        let wrong = format!("fields: {name} has no column `{column}`; it has {known}");
        return Err(Problem::request(wrong));
    }
    let after = query::marked(&asked.after)?;
    let filter = KeyFilter::new(table, &asked.prefix).map_err(Problem::request)?;
    let page = move || {
        let (tables, appliance) = api.control.tables();
        let mut rows = table.rows(&tables, &appliance);
        rows.retain(|row| filter.selects(key(table, row)));
        let start = after.map_or(0, |(last, place)| {
            // A row that is gone meanwhile leaves its place.
            let found = rows.iter().position(|row| key(table, row) == last);
            found.map_or(place.parse().unwrap_or(0), |found| found + 1)
        });
        let end = start.saturating_add(limit).min(rows.len());
        let page = rows.get(start..end).unwrap_or_default().to_vec();
        let next = page.last().filter(|_| end < rows.len());
        let next = next.map(|last| query::mark(key(table, last), &end.to_string()));
        let items: Vec<Value> = page.into_iter().map(|row| fields.of(row.into())).collect();
        let mut page = json!({ "revision": tables.revision(), "items": items });
        if let Some(next) = next {
            page["continue"] = next.into();
        }
        Json(page)
    };
    tokio::task::spawn_blocking(page).await.map_err(Problem::broken)
}

fn key(table: Table, row: &Row) -> &str {
    let column = table.columns().first().copied().unwrap_or_default();
    row.get(column).and_then(Value::as_str).unwrap_or_default()
}
