//! The control state over the control socket: `GET /db/TABLE`, complete or as a stream of changes;
//! `GET /maps`; `GET /objects/KIND`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::Lines;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use state::dump::TextFormat;
use state::object::Kind;
use state::show::{KeyFilter, Row, Table};
use tokio::sync::mpsc;

use super::response::{blocking, error_response};
use crate::live::Live;

/// Interval at which the rows of a watched table are compared with those sent last. The table is
/// polled because a status may change without a new revision of the tables.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of lines queued for a slow client. The watch waits while the queue is full.
const LINE_QUEUE: usize = 4096;

/// Query parameters of `GET /db/TABLE`.
#[derive(Deserialize)]
pub(super) struct TableQuery {
    /// Selects rows whose first column starts with this text, or, if the text is a network, rows
    /// with an address in it. Empty selects all rows.
    #[serde(default)]
    prefix: String,
    /// Whether to stream a line for each existing row, and then for each change.
    #[serde(default)]
    watch: bool,
}

/// `GET /db/TABLE`.
pub(super) async fn table(
    State(live): State<Arc<Live>>,
    Path(name): Path<String>,
    Query(query): Query<TableQuery>,
) -> Response {
    let Some(source) = RowSource::named(&name) else {
        let tables = "services, frontends, backends, health";
        let error = format!("there is no table `{name}`; tables are {tables}");
        return error_response(StatusCode::NOT_FOUND, error);
    };
    let filter = match source.filter(query.prefix) {
        Ok(filter) => filter,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, error),
    };
    if query.watch {
        let (lines, received) = mpsc::channel(LINE_QUEUE);
        tokio::spawn(watch(live, source, filter, lines));
        return Body::from_stream(Lines(received)).into_response();
    }
    blocking(move || Json(source.rows(&live, &filter))).await
}

/// Query parameters of `GET /maps`.
#[derive(Deserialize)]
pub(super) struct MapsQuery {
    /// Only entries of this frontend or backend address; empty for all.
    #[serde(default)]
    address: String,
    /// Whether to include the identifiers of frontends and backends.
    #[serde(default = "yes")]
    ids: bool,
}

fn yes() -> bool {
    true
}

/// `GET /maps`.
pub(super) async fn maps(
    State(live): State<Arc<Live>>,
    Query(query): Query<MapsQuery>,
) -> Response {
    let only = match query.address.as_str() {
        "" => None,
        text => match text.trim_matches(['[', ']']).parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let error =
                    format!("--address {text}: not an IP address; write one such as 203.0.113.10");
                return error_response(StatusCode::BAD_REQUEST, error);
            }
        },
    };
    let form = TextFormat { only, identifiers: query.ids };
    blocking(move || Json(state::dump::text(&live.dump(), &form))).await
}

/// `GET /objects/KIND`.
pub(super) async fn objects(State(live): State<Arc<Live>>, Path(kind): Path<String>) -> Response {
    let kind: Kind = match kind.parse() {
        Ok(kind) => kind,
        Err(error) => return error_response(StatusCode::NOT_FOUND, format!("{error}")),
    };
    blocking(move || {
        let objects = live.desired().objects;
        let all: Result<Vec<Value>, _> =
            objects.of_kind(kind).map(|object| serde_json::to_value(&**object)).collect();
        match all {
            Ok(all) => Json(all).into_response(),
            Err(e) => error_response(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        }
    })
    .await
}

/// A table that can be read: one of the control state, or `health`, with a row for each component
/// of the appliance.
#[derive(Clone, Copy)]
enum RowSource {
    Table(Table),
    Health,
}

impl RowSource {
    fn named(name: &str) -> Option<RowSource> {
        if name == "health" {
            return Some(RowSource::Health);
        }
        Table::named(name).map(RowSource::Table)
    }

    fn key(self) -> &'static str {
        match self {
            RowSource::Table(table) => table.columns()[0],
            RowSource::Health => "name",
        }
    }

    fn filter(self, text: String) -> Result<KeyFilter, String> {
        match self {
            RowSource::Table(table) => KeyFilter::new(table, &text),
            RowSource::Health => Ok(KeyFilter::Text(text)),
        }
    }

    fn rows(self, live: &Live, filter: &KeyFilter) -> Vec<Row> {
        let mut rows = match self {
            RowSource::Table(table) => {
                let desired = live.desired();
                table.rows(&desired.tables, &desired.appliance)
            }
            RowSource::Health => crate::control::report::health(&live.status()),
        };
        rows.retain(|row| filter.selects(key(self, row)));
        rows
    }
}

fn key(source: RowSource, row: &Row) -> &str {
    row.get(source.key()).and_then(Value::as_str).unwrap_or_default()
}

/// Sends all rows, then changed rows (`row`) and the keys of removed rows (`removed`).
async fn watch(
    live: Arc<Live>,
    source: RowSource,
    filter: KeyFilter,
    lines: mpsc::Sender<io::Result<String>>,
) {
    let mut before: BTreeMap<String, Row> = BTreeMap::new();
    loop {
        let (live, filter) = (Arc::clone(&live), filter.clone());
        let Ok(rows) = tokio::task::spawn_blocking(move || source.rows(&live, &filter)).await
        else {
            return;
        };
        let now: BTreeMap<String, Row> =
            rows.into_iter().map(|row| (key(source, &row).to_owned(), row)).collect();
        let changed = now.iter().filter(|(key, row)| before.get(*key) != Some(row));
        let changed = changed.map(|(_, row)| json!({ "row": row }));
        let removed = before.keys().filter(|key| !now.contains_key(*key));
        let removed = removed.map(|key| json!({ "removed": key }));
        for line in changed.chain(removed).collect::<Vec<_>>() {
            if lines.send(Ok(line.to_string() + "\n")).await.is_err() {
                return;
            }
        }
        before = now;
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = lines.closed() => return,
        }
    }
}
