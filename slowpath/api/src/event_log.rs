//! Endpoint of the history of events: a stream of records, which ends unless the client watches.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use events::filter::Filter;
use events::history::{History, history};
use events::record::Record;
use events::segments::SegmentReader;
use futures_core::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::access::Access;
use crate::control::Api;
use crate::problem::Problem;
use crate::query::QueryParams;
use crate::role::Role;
use crate::route::{Operation, Routes, get};
use crate::watch::LINES;

/// Maximum number of records queued for a slow client.
const MAX_QUEUED_LINES: usize = 256;
/// Interval at which a watch checks whether its client is still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Routes<Api> {
    let about = "Streams the history of events, oldest records first, one line of JSON each.";
    let events = get(events, Access::Read(Role::Read), "events", about);
    Routes::new().add("/events", [events.with(stream_of_records)])
}

fn stream_of_records(operation: &mut Operation<'_>) {
    let record = operation.of_type::<Record>();
    let answer = operation.content(200, "A stream of records.", json!({}));
    answer["content"] = json!({ LINES: { "schema": record } });
    operation.empty(204, "No record matches.");
}

/// Query parameters of the history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct EventsQuery {
    /// Only records since this time: a duration before now (`90s`, `15m`, `2h`, `7d`) or RFC 3339.
    since: Option<String>,
    /// Only records until this time.
    until: Option<String>,
    /// Only records with a higher number.
    after: Option<u64>,
    /// Only records of these events, separated by commas.
    kind: Option<String>,
    /// Only records of this severity or higher: `info`, `warning` or `error`.
    severity: Option<String>,
    /// Does not end, and streams further records as they come.
    watch: bool,
}

/// `GET /v1/events`.
async fn events(QueryParams(query): QueryParams<EventsQuery>) -> Result<Response, Problem> {
    let filter = Filter::new(
        query.since.as_deref(),
        query.until.as_deref(),
        query.after,
        query.kind.as_deref(),
        query.severity.as_deref(),
        SystemTime::now(),
    );
    let filter = filter.map_err(Problem::bad_request)?;
    let Some((history, reader)) = history().and_then(|all| Some((all, all.reader()?))) else {
        let why = "there is no history, because control.state is empty: set a folder, and restart \
                   slowpath";
        return Err(Problem::not_found(why));
    };
    let (lines, mut receiver) = mpsc::channel(MAX_QUEUED_LINES);
    tokio::task::spawn_blocking(move || send(history, reader, &filter, query.watch, &lines));
    // A stream of JSON lines is never empty.
    let first = if query.watch { None } else { receiver.recv().await };
    if first.is_none() && !query.watch {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let body = Body::from_stream(RecordLines { first, rest: receiver });
    Ok(([(header::CONTENT_TYPE, LINES)], body).into_response())
}

/// Sends the records until there are no more, or with `watch` until the client or slowpath ends.
fn send(
    history: &History,
    mut reader: SegmentReader,
    filter: &Filter,
    watch: bool,
    lines: &mpsc::Sender<io::Result<String>>,
) {
    let (mut last, mut is_open) = (0, true);
    loop {
        let read = reader.read(&mut |record| {
            last = record.number;
            if filter.admits(&record) {
                let line = serde_json::to_string(&record).map(|line| line + "\n");
                is_open = lines.blocking_send(line.map_err(io::Error::from)).is_ok();
            }
            is_open
        });
        if let Err(error) = read {
            // The client sees a response that was cut off.
            let _ = lines.blocking_send(Err(error));
            return;
        }
        if !watch || !is_open || history.is_closing() {
            return;
        }
        history.wait_beyond(last, CHECK_INTERVAL);
        if lines.is_closed() {
            return;
        }
    }
}

/// Response body of records; an error ends it before its regular end.
struct RecordLines {
    first: Option<io::Result<String>>,
    rest: mpsc::Receiver<io::Result<String>>,
}

impl Stream for RecordLines {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.rest.poll_recv(cx),
        }
    }
}
