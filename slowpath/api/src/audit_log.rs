//! Endpoint of the audit log: pages, or a stream of new entries.

use std::io;
use std::time::{Duration, SystemTime};

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
use crate::watch::{LINES, Lines, error_line};

/// Interval at which a stream reads new entries. They are polled because commands of `weir` write
/// to the files as well.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of entries queued for a slow client.
const MAX_QUEUED_LINES: usize = 256;
/// Size of a page's entries from which on no more are added, in bytes of JSON. A page exceeds it by
/// [`READ_ENTRIES`] entries at most.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Number of entries that are read at once; each is bounded in size.
const READ_ENTRIES: usize = 8;

pub(crate) fn routes() -> Routes<Api> {
    let about = "Reads the audit log, oldest entries first, or streams new entries.";
    let audit = get(audit, Access::Read(Role::Admin), "audit", about);
    Routes::new().add("/audit", [audit.with(page_or_stream)])
}

fn page_or_stream(operation: &mut Operation<'_>) {
    let (page, entry) = (operation.of_type::<AuditPage>(), operation.of_type::<Entry>());
    let about = "A page of entries, or a stream of entries. A stream that fails ends with a line \
                 of the type `error`, as in `Change`.";
    let answer = operation.content(200, about, page);
    answer["content"][LINES] = json!({ "schema": entry });
}

/// Query parameters of the audit log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AuditQuery {
    /// Only entries from this time on: a duration before now (`90s`, `15m`, `2h`, `7d`) or RFC
    /// 3339.
    since: String,
    /// Only entries of this token or user: `ci`, `uid=1000(name)`, or a part of it.
    who: String,
    /// Only entries about this object: `service/shop/web`.
    object: String,
    /// Maximum number of entries of a page, 1 to 1000; 500 by default. A page has fewer if its
    /// entries are large.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Where the page or stream begins: the value of `continue` in the previous page.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    after: String,
    /// Streams new entries instead, one line of JSON each, without `limit`. The stream begins with
    /// the entries after `continue`, or from `since` on, if given.
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
        text => {
            let time = config::duration::parse_time(text, SystemTime::now());
            Some(time.map_err(|error| Problem::bad_request(format!("since: {error}")))?)
        }
    };
    let filter = AuditFilter::new(since, &query.who, &query.object);
    let Some(files) = api.audit.files().cloned() else {
        let why = "no audit log is kept, because control.state is empty; entries are in the \
                   journal (target `audit`)";
        return Err(Problem::not_found(why));
    };
    let from = match query::decode_cursor(&query.after)? {
        None => None,
        Some((file, offset)) => {
            let number = |text: &str| {
                let wrong = "continue: write the previous page's value, or omit it";
                text.parse().map_err(|_| Problem::bad_request(wrong))
            };
            Some(Position { file: number(&file)?, offset: number(&offset)? })
        }
    };
    if query.watch {
        if query.limit.is_some() {
            return Err(Problem::bad_request("limit: a stream has no maximum; omit it"));
        }
        let from = match from.or(since.map(|_| Position::default())) {
            Some(from) => from,
            None => {
                let files = files.clone();
                blocking(move || files.end()).await?
            }
        };
        return Ok(stream(files, filter, from));
    }
    let part = read_page(files, from.unwrap_or_default(), limit, filter).await?;
    let next = (!part.is_end)
        .then(|| query::encode_cursor(&part.next.file.to_string(), &part.next.offset.to_string()));
    let page = AuditPage { items: part.entries, damaged: part.damaged, next };
    Ok(Json(page).into_response())
}

/// Reads a page: at most `limit` entries, and fewer if they are large.
async fn read_page(
    files: AuditFiles,
    from: Position,
    limit: usize,
    filter: AuditFilter,
) -> Result<Part, Problem> {
    let mut page = Part { next: from, ..Part::default() };
    let mut bytes = 0;
    while !page.is_end && page.entries.len() < limit && bytes < MAX_PAGE_BYTES {
        let most = READ_ENTRIES.min(limit - page.entries.len());
        let part = read(files.clone(), page.next, most, filter.clone()).await?;
        bytes += part.entries.iter().map(|entry| entry.line().len()).sum::<usize>();
        page.entries.extend(part.entries);
        page.damaged += part.damaged;
        (page.next, page.is_end) = (part.next, part.is_end);
    }
    Ok(page)
}

async fn read(
    files: AuditFiles,
    from: Position,
    limit: usize,
    filter: AuditFilter,
) -> Result<Part, Problem> {
    let read = move || files.read(from, filter.since, limit, |entry| filter.selects(entry));
    blocking(read).await
}

/// Reads from the disk.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(read).await.map_err(Problem::internal)?;
    read.map_err(Problem::internal)
}

/// Streams entries from a position on.
fn stream(files: AuditFiles, filter: AuditFilter, from: Position) -> Response {
    let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    tokio::spawn(follow(files, filter, from, lines));
    ([(header::CONTENT_TYPE, LINES)], Body::from_stream(Lines(receiver))).into_response()
}

/// Sends entries until the client has gone, or an error line if the log cannot be read.
async fn follow(
    files: AuditFiles,
    filter: AuditFilter,
    mut from: Position,
    lines: mpsc::Sender<io::Result<String>>,
) -> Option<()> {
    loop {
        let part = match read(files.clone(), from, READ_ENTRIES, filter.clone()).await {
            Ok(part) => part,
            Err(problem) => return lines.send(Ok(error_line(problem))).await.ok(),
        };
        from = part.next;
        for entry in part.entries {
            lines.send(Ok(entry.line())).await.ok()?;
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;
    use crate::audit::ObjectChange;

    /// A directory of files, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("weir-audit-log-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn files(&self) -> AuditFiles {
            AuditFiles::new(&self.0, 64 << 20)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn page_is_bounded_by_the_size_of_its_entries() {
        let folder = Folder::new("size");
        let files = folder.files();
        let after = Some(Value::from("x".repeat(200 << 10)));
        let mut entry = Entry::offline("test", "large");
        entry.changes.push(ObjectChange { object: "large".to_owned(), before: None, after });
        let line = entry.line();
        for _ in 0..30 {
            files.append(&[&line]).unwrap();
        }
        let page = |from| read_page(files.clone(), from, 1000, AuditFilter::default());
        let first = page(Position::default()).await.unwrap();
        let bytes = first.entries.len() * line.len();
        let is_full = bytes >= MAX_PAGE_BYTES && bytes < MAX_PAGE_BYTES + READ_ENTRIES * line.len();
        assert!(is_full && !first.is_end, "{}", first.entries.len());
        let second = page(first.next).await.unwrap();
        assert_eq!((first.entries.len() + second.entries.len(), second.is_end), (30, true));
        let few = read_page(files, Position::default(), 3, AuditFilter::default()).await.unwrap();
        assert_eq!((few.entries.len(), few.is_end), (3, false));
    }

    #[tokio::test]
    async fn stream_that_cannot_be_read_ends_with_an_error_line() {
        let folder = Folder::new("unreadable");
        let (lines, mut received) = mpsc::channel(4);
        // A directory in the place of a file.
        std::fs::create_dir_all(folder.0.join("audit/00000001.jsonl")).unwrap();
        follow(folder.files(), AuditFilter::default(), Position::default(), lines).await;
        let line: Value = serde_json::from_str(&received.recv().await.unwrap().unwrap()).unwrap();
        assert_eq!((&line["type"], &line["problem"]["status"]), (&"error".into(), &500.into()));
        assert!(received.recv().await.is_none());
    }
}
