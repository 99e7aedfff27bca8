//! Endpoint of the audit log: pages, or a stream of new entries.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::access::Access;
use crate::audit::files::{Part, Position};
use crate::audit::{AuditFiles, AuditFilter, Entry};
use crate::control::Api;
use crate::problem::Problem;
use crate::query::{self, QueryParams};
use crate::role::Role;
use crate::route::{Operation, Routes, get};
use crate::watch::{LINES, Lines};

/// Interval at which a stream looks for new entries. Commands of `weir` write entries as well.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of entries queued for a slow client.
const MAX_QUEUED_LINES: usize = 256;

pub(crate) fn routes() -> Routes<Api> {
    let about = "Reads the audit log, oldest entries first, or streams new entries.";
    let audit = get(audit, Access::Read(Role::Admin), "audit", about);
    Routes::new().add("/audit", [audit.with(page_or_stream)])
}

fn page_or_stream(operation: &mut Operation<'_>) {
    let (page, entry) = (operation.of_type::<AuditPage>(), operation.of_type::<Entry>());
    let answer = operation.content(200, "A page of entries, or a stream of entries.", page);
    answer["content"][LINES] = json!({ "schema": entry });
}

/// Query parameters of the audit log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AuditQuery {
    /// Only entries from this time on (RFC 3339).
    since: String,
    /// Only entries of this token or user: `ci`, `uid=1000(name)`, or a part of it.
    who: String,
    /// Only entries about this object: `service/shop/web`.
    object: String,
    /// Maximum number of entries, 1 to 1000; 500 by default.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Where the page begins: the value of `continue` in the previous page.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    after: String,
    /// Streams new entries instead, one line of JSON each. The stream begins with the entries from
    /// `since` on, if given.
    watch: bool,
}

/// A page of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Entries, oldest first.
    pub items: Vec<Entry>,
    /// Number of lines that are no entries, because a crash cut them off.
    pub damaged: u64,
    /// Value of `continue` for the next page; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

/// `GET /v1/audit`.
async fn audit(
    State(api): State<Api>,
    QueryParams(query): QueryParams<AuditQuery>,
) -> Result<Response, Problem> {
    let limit = query::limit(query.limit)?;
    let since = match query.since.as_str() {
        "" => None,
        text => Some(config::rfc3339::parse(text).ok_or_else(|| {
            Problem::bad_request("since: write a time such as 2026-11-27T08:00:00Z")
        })?),
    };
    let filter = AuditFilter::new(since, &query.who, &query.object);
    let Some(files) = api.audit.files().cloned() else {
        let why = "no audit log is kept, because control.state is empty; entries are in the \
                   journal (target `audit`)";
        return Err(Problem::not_found(why));
    };
    let from = match query::decode_cursor(&query.after)? {
        None => Position::default(),
        Some((file, offset)) => {
            let number = |text: &str| {
                let wrong = "continue: write the previous page's value, or omit it";
                text.parse().map_err(|_| Problem::bad_request(wrong))
            };
            Position { file: number(&file)?, offset: number(&offset)? }
        }
    };
    if query.watch {
        let from = if since.is_some() { Some(from) } else { None };
        return Ok(stream(files, filter, from));
    }
    let part = read(files, from, limit, filter).await?;
    let next = (!part.is_end)
        .then(|| query::encode_cursor(&part.next.file.to_string(), &part.next.offset.to_string()));
    let page = AuditPage { items: part.entries, damaged: part.damaged, next };
    Ok(Json(page).into_response())
}

async fn read(
    files: AuditFiles,
    from: Position,
    limit: usize,
    filter: AuditFilter,
) -> Result<Part, Problem> {
    let read = move || files.read(from, filter.since, limit, |entry| filter.selects(entry));
    let read = tokio::task::spawn_blocking(read).await.map_err(Problem::internal)?;
    read.map_err(Problem::internal)
}

/// Streams entries from a position on, or new ones only.
fn stream(files: AuditFiles, filter: AuditFilter, from: Option<Position>) -> Response {
    let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    tokio::spawn(follow(files, filter, from, lines));
    ([(header::CONTENT_TYPE, LINES)], Body::from_stream(Lines(receiver))).into_response()
}

/// Sends entries until the client or the log has gone.
async fn follow(
    files: AuditFiles,
    filter: AuditFilter,
    from: Option<Position>,
    lines: mpsc::Sender<String>,
) -> Option<()> {
    let of_end = files.clone();
    let mut next = match from {
        Some(from) => from,
        None => tokio::task::spawn_blocking(move || of_end.end()).await.ok()?.ok()?,
    };
    loop {
        let part = read(files.clone(), next, MAX_QUEUED_LINES, filter.clone()).await.ok()?;
        next = part.next;
        for entry in part.entries {
            lines.send(entry.line()).await.ok()?;
        }
        if !part.is_end {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = lines.closed() => return None,
        }
    }
}
