//! Endpoint of the history of events: a stream of records, which ends unless the client watches.

use std::io;
use std::time::SystemTime;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use events::filter::Filter;
use events::history::history;
use events::record::Record;
use events::record_files::RecordReader;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::access::Access;
use crate::control::Api;
use crate::problem::Problem;
use crate::query::QueryParams;
use crate::role::Role;
use crate::route::{Operation, Routes, get};
use crate::watch::{LINES, Lines};

/// Maximum number of records that are read at once, and queued for a slow client.
const MAX_QUEUED_LINES: usize = 256;

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
    /// Does not end, and streams records as they come: new ones only, unless `since` or `after` is
    /// given.
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
    // The watch begins before the first read, so that no record is missed.
    let last = query.watch.then(|| history.watch());
    let only_new = query.watch && query.since.is_none() && query.after.is_none();
    let mut records = Records { reader, filter };
    if only_new {
        let skipped = records.blocking(|records| records.reader.skip()).await;
        records = skipped.map_err(Problem::internal)?.0;
    }
    let (records, first) = records.part().await.map_err(Problem::internal)?;
    // The OpenAPI document describes the body of a 200 response as records: it has one at least.
    if first.lines.is_empty() && !query.watch {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    tokio::spawn(send(records, first, last, lines));
    Ok(([(header::CONTENT_TYPE, LINES)], Body::from_stream(Lines(receiver))).into_response())
}

/// A reader of the history, and the filter of a client.
struct Records {
    reader: RecordReader,
    filter: Filter,
}

/// Records that were read.
struct Part {
    lines: Vec<String>,
    /// Whether there are no further ones for now.
    is_end: bool,
}

impl Records {
    /// Reads on a thread that may block.
    async fn blocking<T: Send + 'static>(
        mut self,
        read: impl FnOnce(&mut Records) -> io::Result<T> + Send + 'static,
    ) -> io::Result<(Records, T)> {
        let read = move || read(&mut self).map(|found| (self, found));
        tokio::task::spawn_blocking(read).await?
    }

    /// Reads the next records.
    async fn part(self) -> io::Result<(Records, Part)> {
        self.blocking(|Records { reader, filter }| {
            let mut lines = Vec::new();
            let is_end = reader.read(&mut |record| {
                if filter.admits(&record) {
                    // A record has only types that JSON can represent.
                    lines.push(serde_json::to_string(&record).unwrap_or_default() + "\n");
                }
                lines.len() < MAX_QUEUED_LINES
            })?;
            Ok(Part { lines, is_end })
        })
        .await
    }
}

/// Sends records until there are no more, or with a watch until the client has disconnected. The
/// caller ignores the result, which exists for `?`.
async fn send(
    mut records: Records,
    mut part: Part,
    mut last: Option<watch::Receiver<u64>>,
    lines: mpsc::Sender<io::Result<String>>,
) -> Option<()> {
    loop {
        for line in part.lines {
            lines.send(Ok(line)).await.ok()?;
        }
        if part.is_end {
            let last = last.as_mut()?;
            tokio::select! {
                changed = last.changed() => changed.ok()?,
                () = lines.closed() => return None,
            }
        }
        (records, part) = match records.part().await {
            Ok(read) => read,
            Err(error) => return lines.send(Err(error)).await.ok(),
        };
    }
}
