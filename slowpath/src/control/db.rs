//! The control state over the control socket: `GET /db/TABLE`, complete or as a stream of changes;
//! `GET /maps`; `GET /objects/KIND`.

use std::collections::BTreeMap;
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
use state::dump::Form;
use state::object::Kind;
use state::show::{KeyFilter, Row, Table};
use tokio::sync::mpsc;

use super::answer::{at_leisure, refuse};
use crate::live::Live;

/// Interval at which a watched table is compared. A status may change without a new revision.
const LOOK: Duration = Duration::from_millis(250);
/// Maximum number of changed rows queued for a slow client. The watch waits while the queue is
/// full.
const WAITING: usize = 4096;

/// Query parameters of a table.
#[derive(Deserialize)]
pub(super) struct Asked {
    /// Only rows whose first column starts with this text, or whose address is in this network.
    #[serde(default)]
    prefix: String,
    /// Stream a line for each existing row, and then for each row that changes.
    #[serde(default)]
    watch: bool,
}

/// `GET /db/TABLE`.
pub(super) async fn table(
    State(live): State<Arc<Live>>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    let Some(look) = Look::named(&name) else {
        let known = "there are the tables services, frontends, backends and health";
        return refuse(StatusCode::NOT_FOUND, format!("there is no table {name}: {known}"));
    };
    let filter = match look.filter(asked.prefix) {
        Ok(filter) => filter,
        Err(wrong) => return refuse(StatusCode::BAD_REQUEST, wrong),
    };
    if asked.watch {
        let (lines, taken) = mpsc::channel(WAITING);
        tokio::spawn(watch(live, look, filter, lines));
        return Body::from_stream(Lines(taken)).into_response();
    }
    at_leisure(move || Json(look.rows(&live, &filter))).await
}

/// Query parameters of the maps.
#[derive(Deserialize)]
pub(super) struct AskedMaps {
    /// Only entries of this frontend or backend address; empty for all.
    #[serde(default)]
    address: String,
    /// Whether to include identifiers.
    #[serde(default = "yes")]
    ids: bool,
}

fn yes() -> bool {
    true
}

/// `GET /maps`.
pub(super) async fn maps(
    State(live): State<Arc<Live>>,
    Query(asked): Query<AskedMaps>,
) -> Response {
    let only = match asked.address.as_str() {
        "" => None,
        text => match text.trim_matches(['[', ']']).parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let wrong = format!("--address {text}: give an address, like 203.0.113.10");
                return refuse(StatusCode::BAD_REQUEST, wrong);
            }
        },
    };
    let form = Form { only, identifiers: asked.ids };
    at_leisure(move || Json(state::dump::text(&live.dump(), &form))).await
}

/// `GET /objects/KIND`.
pub(super) async fn objects(State(live): State<Arc<Live>>, Path(kind): Path<String>) -> Response {
    let kind: Kind = match kind.parse() {
        Ok(kind) => kind,
        Err(refusal) => return refuse(StatusCode::NOT_FOUND, format!("{refusal}")),
    };
    at_leisure(move || {
        let objects = live.wanted().objects;
        let all: Result<Vec<Value>, _> =
            objects.of_kind(kind).map(|object| serde_json::to_value(&**object)).collect();
        match all {
            Ok(all) => Json(all).into_response(),
            Err(e) => refuse(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        }
    })
    .await
}

/// A table that can be read: one of the control state, or the appliance's health.
#[derive(Clone, Copy)]
enum Look {
    Table(Table),
    Health,
}

impl Look {
    fn named(name: &str) -> Option<Look> {
        if name == "health" {
            return Some(Look::Health);
        }
        Table::named(name).map(Look::Table)
    }

    fn key(self) -> &'static str {
        match self {
            Look::Table(table) => table.columns()[0],
            Look::Health => "name",
        }
    }

    fn filter(self, text: String) -> Result<KeyFilter, String> {
        match self {
            Look::Table(table) => KeyFilter::new(table, &text),
            Look::Health => Ok(KeyFilter::Text(text)),
        }
    }

    fn rows(self, live: &Live, filter: &KeyFilter) -> Vec<Row> {
        let mut rows = match self {
            Look::Table(table) => {
                let wanted = live.wanted();
                table.rows(&wanted.tables, &wanted.appliance)
            }
            Look::Health => crate::control::report::health(&live.status()),
        };
        rows.retain(|row| filter.selects(key(self, row)));
        rows
    }
}

fn key(look: Look, row: &Row) -> &str {
    row.get(look.key()).and_then(Value::as_str).unwrap_or_default()
}

/// Sends all rows, then changed rows (`row`) and the keys of removed rows (`gone`).
async fn watch(live: Arc<Live>, look: Look, filter: KeyFilter, lines: mpsc::Sender<String>) {
    let mut before: BTreeMap<String, Row> = BTreeMap::new();
    loop {
        let (of, like) = (Arc::clone(&live), filter.clone());
        let Ok(rows) = tokio::task::spawn_blocking(move || look.rows(&of, &like)).await else {
            return;
        };
        let now: BTreeMap<String, Row> =
            rows.into_iter().map(|row| (key(look, &row).to_owned(), row)).collect();
        let changed = now.iter().filter(|(key, row)| before.get(*key) != Some(row));
        let changed = changed.map(|(_, row)| json!({ "row": row }));
        let gone = before.keys().filter(|key| !now.contains_key(*key));
        let gone = gone.map(|key| json!({ "gone": key }));
        for line in changed.chain(gone).collect::<Vec<_>>() {
            if lines.send(line.to_string() + "\n").await.is_err() {
                return;
            }
        }
        before = now;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = lines.closed() => return,
        }
    }
}
