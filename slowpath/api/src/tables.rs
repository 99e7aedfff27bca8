//! Read-only endpoint of the tables derived from the objects, from which the planes are programmed.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use state::show::{KeyFilter, Row, Table};

use crate::access::Access;
use crate::control::Api;
use crate::fields::Fields;
use crate::path::{PathEntity, Resolved};
use crate::problem::Problem;
use crate::query::{self, QueryParams, RowsQuery};
use crate::role::Role;
use crate::route::{Operation, Page, Routes, Subject, get};

pub(crate) fn routes() -> Routes<Api> {
    let rows = get(rows, Access::Read(Role::Read), "table_{table}", "Rows of the table {table}.")
        .with(page_of_rows);
    Routes::new().add("/tables/{table}", [rows])
}

fn page_of_rows(operation: &mut Operation<'_>) {
    let Subject::Table(table) = operation.subject else { return };
    let cell = json!({ "type": ["string", "number", "boolean", "array", "null"] });
    let columns: Map<String, Value> =
        table.columns().iter().map(|column| ((*column).to_owned(), cell.clone())).collect();
    let row = json!({ "type": "object", "properties": columns, "additionalProperties": false });
    let page = Page::of(operation, row);
    operation.content(200, "A page of rows.", page);
}

/// Path parameters of a table.
#[derive(Deserialize, JsonSchema)]
struct TablePath {
    #[schemars(skip)]
    table: String,
}

impl PathEntity for TablePath {
    type Resolved = Table;

    fn resolve(self) -> Result<Table, Problem> {
        Table::named(&self.table).ok_or_else(|| {
            let known: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
            let (name, known) = (&self.table, known.join(", "));
            Problem::not_found(format!("there is no table `{name}`; tables are {known}"))
        })
    }
}

/// `GET /v1/tables/TABLE`.
async fn rows(
    State(api): State<Api>,
    Resolved(table): Resolved<TablePath>,
    QueryParams(query_params): QueryParams<RowsQuery>,
) -> Result<Json<Page<Value>>, Problem> {
    let (fields, limit) = (Fields::read(&query_params.fields)?, query::limit(query_params.limit)?);
    let unknown = |column: &&str| !column.is_empty() && !table.columns().contains(column);
    if let Some(column) = query_params.fields.split(',').find(unknown) {
        let known = table.columns().join(", ");
        let name = table.name();
        let wrong = format!("fields: {name} has no column `{column}`; columns are {known}");
        return Err(Problem::bad_request(wrong));
    }
    let after = query::decode_cursor(&query_params.after)?;
    let filter = KeyFilter::new(table, &query_params.prefix).map_err(Problem::bad_request)?;
    let page = move || {
        let (tables, appliance) = api.control.tables();
        let mut rows = table.rows(&tables, &appliance);
        rows.retain(|row| filter.selects(key(table, row)));
        let (page, next) = select_page(table, &rows, after, limit);
        let next = next.map(|(last, position)| query::encode_cursor(&last, &position));
        let items = page.iter().map(|row| fields.of(row.clone().into())).collect();
        Json(Page { revision: tables.revision(), items, next })
    };
    tokio::task::spawn_blocking(page).await.map_err(Problem::internal)
}

/// Returns the rows of the page that follows a cursor, and the cursor of the next page; `None` if
/// this is the last page. A cursor is the key and the position of the last row of a page.
fn select_page(
    table: Table,
    rows: &[Row],
    after: Option<(String, String)>,
    limit: usize,
) -> (&[Row], Option<(String, String)>) {
    let start = after.map_or(0, |(last, position)| {
        // If the row has been removed since, the row that followed it is now at its position.
        let found = rows.iter().position(|row| key(table, row) == last);
        found.map_or(position.parse().unwrap_or(0), |found| found + 1)
    });
    let end = start.saturating_add(limit).min(rows.len());
    let page = rows.get(start..end).unwrap_or_default();
    let last = page.last().filter(|_| end < rows.len());
    (page, last.map(|last| (key(table, last).to_owned(), (end - 1).to_string())))
}

/// Returns the row's first column, to which cursors and `prefix` refer.
fn key(table: Table, row: &Row) -> &str {
    let column = table.columns().first().copied().unwrap_or_default();
    row.get(column).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &str) -> Vec<Row> {
        let row = |key: char| [("name".to_owned(), Value::from(key.to_string()))];
        keys.chars().map(|key| row(key).into_iter().collect()).collect()
    }

    #[test]
    fn pages_skip_and_repeat_no_row_when_the_last_one_of_a_page_is_removed() {
        let page = |keys: &str, after| {
            let rows = rows(keys);
            let (page, next) = select_page(Table::Services, &rows, after, 2);
            (page.iter().map(|row| key(Table::Services, row)).collect::<String>(), next)
        };
        let (first, next) = page("abcde", None);
        assert_eq!(first, "ab");
        assert_eq!(page("abcde", next.clone()).0, "cd");
        assert_eq!(page("acde", next.clone()).0, "cd", "b was removed");
        assert_eq!(page("0abcde", next.clone()).0, "cd", "a row was inserted before");
        let (second, next) = page("abcde", next);
        assert_eq!((second.as_str(), page("abce", next.clone()).0.as_str()), ("cd", "e"));
        assert_eq!(page("abcde", next), ("e".to_owned(), None));
        assert_eq!(page("", None), (String::new(), None));
    }
}
