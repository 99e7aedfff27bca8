//! Watches: changes of objects as lines of JSON.
//!
//! A stream begins after a revision, or with all existing objects. If the client reads so slowly
//! that the store no longer has the next changes, the stream ends with an `error` line.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use state::object::{Event, Key, Kind, Object, TooOld};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::control::Api;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::ListQuery;

/// Media type of a stream of lines.
pub(crate) const LINES: &str = "application/jsonl";
/// Maximum number of lines queued for a slow client.
const MAX_QUEUED_LINES: usize = 256;
/// Time without a change of any object after which a `bookmark` line is sent.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A line of a stream.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "Change")]
pub(crate) enum Line {
    /// The object was created or changed.
    Put {
        /// Revision of the change.
        revision: u64,
        /// The object after the change.
        object: Value,
    },
    /// The object was removed.
    Removed {
        /// Revision of the change.
        revision: u64,
        /// Kind, name and source of the object.
        #[schemars(with = "Value")]
        object: Key,
    },
    /// All changes up to this revision have been sent.
    Bookmark {
        /// Revision from which a new stream may continue.
        revision: u64,
    },
    /// The last line: changes that were not sent are no longer available, or the token that opened
    /// the stream is no longer accepted.
    Error {
        /// Cause.
        problem: Problem,
    },
}

/// State of a running watch.
struct WatchTask {
    api: Api,
    kind: Kind,
    source: String,
    fields: Fields,
    lines: mpsc::Sender<io::Result<String>>,
}

/// Starts a stream. Fails if the requested revision does not exist yet, or if the changes since it
/// are no longer available.
pub(crate) fn watch(
    api: &Api,
    kind: Kind,
    query: &ListQuery,
    fields: Fields,
) -> Result<Response, Problem> {
    if let Some(revision) = query.revision {
        let changes = api.store.changes_since(revision);
        changes.events?;
        if revision > changes.objects.revision() {
            let now = changes.objects.revision();
            let detail = format!(
                "there is no revision {revision}: the latest is {now}; read the list again"
            );
            // The same code as for a revision that is too old: both require listing again.
            return Err(Problem::too_old(detail));
        }
    }
    let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    let source = query.source.clone();
    let task = WatchTask { api: api.clone(), kind, source, fields, lines };
    let ends = query.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let since = query.revision;
    tokio::spawn(async move { task.run(since, ends).await });
    let body = Body::from_stream(Lines(receiver));
    Ok(([(header::CONTENT_TYPE, LINES)], body).into_response())
}

impl WatchTask {
    /// Sends changes until the stream ends. Callers ignore the result, which exists for `?`: `None`
    /// if the client has disconnected or the store has ended.
    async fn run(&self, since: Option<u64>, ends: Option<Instant>) -> Option<()> {
        let mut revisions = self.api.store.watch();
        let mut at = match since {
            Some(at) => at,
            None => self.send_all().await?,
        };
        loop {
            // Marks the revision as seen before events are read: a later revision wakes `changed`.
            revisions.borrow_and_update();
            let changes = self.api.store.changes_since(at);
            match changes.events {
                Ok(events) => self.send_events(events).await?,
                Err(old) => return self.end(old).await,
            }
            at = changes.objects.revision();
            let heartbeat = Instant::now() + HEARTBEAT;
            let until = ends.map_or(heartbeat, |ends| ends.min(heartbeat));
            tokio::select! {
                changed = revisions.changed() => changed.ok()?,
                () = tokio::time::sleep_until(until) => {
                    self.send(&Line::Bookmark { revision: at }).await?;
                    if ends.is_some_and(|ends| ends <= Instant::now()) {
                        return Some(());
                    }
                }
                () = self.lines.closed() => return None,
            }
        }
    }

    /// Sends all existing objects that the watch selects, and a bookmark. Returns its revision.
    async fn send_all(&self) -> Option<u64> {
        let objects = self.api.store.objects();
        let all: Vec<Arc<Object>> = objects.of_kind(self.kind).cloned().collect();
        for object in all {
            if self.selects(&object) {
                self.send(&self.put(&object)?).await?;
            }
        }
        self.send(&Line::Bookmark { revision: objects.revision() }).await?;
        Some(objects.revision())
    }

    fn selects(&self, object: &Object) -> bool {
        object.kind() == self.kind
            && (self.source.is_empty() || self.source == object.source.as_str())
    }

    fn put(&self, object: &Object) -> Option<Line> {
        let json = serde_json::to_value(object).ok()?;
        Some(Line::Put { revision: object.revision, object: self.fields.of(json) })
    }

    async fn send_events(&self, events: Vec<Event>) -> Option<()> {
        for event in events {
            let Some(object) = event.object().filter(|object| self.selects(object)) else {
                continue;
            };
            let line = match &event.after {
                Some(after) => self.put(after)?,
                None => Line::Removed { revision: event.revision, object: object.key() },
            };
            self.send(&line).await?;
        }
        Some(())
    }

    async fn end(&self, old: TooOld) -> Option<()> {
        self.send(&Line::Error { problem: old.into() }).await
    }

    async fn send(&self, line: &Line) -> Option<()> {
        let text = serde_json::to_string(line).ok()? + "\n";
        self.lines.send(Ok(text)).await.ok()
    }
}

/// Returns the last line of a stream that ends by an error.
pub(crate) fn error_line(problem: Problem) -> String {
    let text = serde_json::to_string(&Line::Error { problem });
    text.map(|text| text + "\n").unwrap_or_default()
}

/// A response body of lines, sent as they arrive. An error cuts the response off.
pub struct Lines(pub mpsc::Receiver<io::Result<String>>);

impl Stream for Lines {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}
