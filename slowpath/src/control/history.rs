//! `GET /events`: the history of events.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use events::filter::Filter;
use events::history::{History, history};
use events::segments::SegmentReader;
use futures_core::Stream;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::response::error_response;

/// Number of lines that may wait for the client.
const LINES: usize = 256;
/// Interval at which a follower checks whether its client is still there.
const CHECK: Duration = Duration::from_secs(1);

/// Parameters of `GET /events`.
#[derive(Deserialize)]
pub(super) struct EventsQuery {
    since: Option<String>,
    until: Option<String>,
    after: Option<u64>,
    kind: Option<String>,
    severity: Option<String>,
    #[serde(default)]
    follow: bool,
}

/// Responds with the records that match, a line of JSON each.
pub(super) async fn events(Query(query): Query<EventsQuery>) -> Response {
    let filter = Filter::new(
        query.since.as_deref(),
        query.until.as_deref(),
        query.after,
        query.kind.as_deref(),
        query.severity.as_deref(),
        SystemTime::now(),
    );
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, error),
    };
    let Some((history, reader)) = history().and_then(|all| Some((all, all.reader()?))) else {
        let error =
            "there is no history: control.state is empty; set a folder, and restart slowpath";
        return error_response(StatusCode::NOT_FOUND, error.to_owned());
    };
    let (lines, received) = mpsc::channel(LINES);
    tokio::task::spawn_blocking(move || send(history, reader, &filter, query.follow, &lines));
    Body::from_stream(Lines(received)).into_response()
}

/// Sends the records until there are no more, or with `follow` until the client or slowpath ends.
fn send(
    history: &History,
    mut reader: SegmentReader,
    filter: &Filter,
    follow: bool,
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
        if !follow || !is_open || history.is_closing() {
            return;
        }
        history.wait_beyond(last, CHECK);
        if lines.is_closed() {
            return;
        }
    }
}

/// Response body of lines.
struct Lines(mpsc::Receiver<io::Result<String>>);

impl Stream for Lines {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}
