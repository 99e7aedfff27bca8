//! Writes objects: a dry run of all changes, then each write in turn, then a wait until all are in
//! force.
//!
//! ```text
//!   current --> desired --> dry run of all --> write, each with If-Match --> wait
//!      ^                                          | changed concurrently
//!      '------------------------------------------'
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use api::Problem;
use clap::Args;
use control_client::StatusCode;
use serde::Serialize;
use serde_json::Value;
use state::name::Name;
use state::object::{Kind, Object};

use super::difference::{self, Field};
use super::options::{GlobalOptions, Output};
use super::output::{print, write_stdout};
use super::request::{self, IDLE_TIMEOUT, Request, RequestError};

/// Maximum number of attempts to write an object that other clients change concurrently.
const MAX_ATTEMPTS: usize = 16;

/// Options of writes.
#[derive(Args)]
pub struct WriteOptions {
    /// Show what would change without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum number of seconds to wait until all lcores serve the change; 0 does not wait
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=900))]
    pub wait: u64,
}

/// Computes the new object from the current one; `None` deletes it.
type ComputeNext<'w> = Box<dyn Fn(Option<&Object>) -> Result<Option<Object>, Problem> + 'w>;

/// A change of an object.
pub struct Change<'w> {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: Name,
    /// Computes the new object.
    pub next: ComputeNext<'w>,
    /// Returns the location of a field in a file, followed by a colon, or an empty text.
    pub location: Box<dyn Fn(&str) -> String + 'w>,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteResult {
    Created,
    Changed,
    Unchanged,
    Deleted,
    /// The object was rejected.
    Rejected,
    /// No response arrived.
    Unknown,
    /// Not written, because another object was rejected or slowpath could not be reached.
    Skipped,
}

impl WriteResult {
    fn text(self, dry_run: bool) -> &'static str {
        match (self, dry_run) {
            (WriteResult::Created, false) => "created",
            (WriteResult::Changed, false) => "changed",
            (WriteResult::Deleted, false) => "deleted",
            (WriteResult::Created, true) => "would be created",
            (WriteResult::Changed, true) => "would be changed",
            (WriteResult::Deleted, true) => "would be deleted",
            (WriteResult::Unchanged, _) => "unchanged",
            (WriteResult::Rejected, _) => "rejected",
            (WriteResult::Unknown, _) => "unknown: no response",
            (WriteResult::Skipped, _) => "skipped",
        }
    }
}

/// Report about one object.
#[derive(Serialize)]
pub struct Report {
    pub kind: Kind,
    pub name: Name,
    pub done: WriteResult,
    /// Fields that differ.
    pub fields: Vec<Field>,
    /// Whether all lcores serve the change; `None` if it was not waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
    /// Error of the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
}

/// Error of a write.
enum WriteError {
    /// The API rejected the object.
    Rejected(Problem),
    /// The write was not sent: connecting failed, or the current object could not be read.
    NotSent(RequestError),
    /// The write was sent, and no valid response arrived.
    NoResponse(RequestError),
}

impl From<RequestError> for WriteError {
    fn from(error: RequestError) -> WriteError {
        match error {
            RequestError::Problem(problem) => WriteError::Rejected(*problem),
            unsent @ (RequestError::NotRunning { .. } | RequestError::PermissionDenied { .. }) => {
                WriteError::NotSent(unsent)
            }
            other => WriteError::NoResponse(other),
        }
    }
}

/// Returns the API's object, if it exists.
pub fn current(socket: &Path, kind: Kind, name: &Name) -> Result<Option<Object>, RequestError> {
    match request::get_json(socket, &path(kind, name)) {
        Err(RequestError::Problem(problem)) if problem.status == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the URL path of an object; its name needs no escapes.
fn path(kind: Kind, name: &Name) -> String {
    format!("/v1/objects/{}/{name}", kind.plural())
}

/// Serializes the desired state without status, as sent in requests.
pub fn body(object: &Object) -> Result<String, RequestError> {
    let malformed = |e: serde_json::Error| RequestError::Malformed(e.to_string());
    let mut json = serde_json::to_value(object).map_err(malformed)?;
    if let Some(map) = json.as_object_mut() {
        map.retain(|key, _| {
            ["kind", "name", "labels", "annotations", "spec"].contains(&key.as_str())
        });
    }
    serde_json::to_string(&json).map_err(malformed)
}

/// The result, the differing fields, and whether all lcores serve the change, if it was waited for.
type WriteOutcome = (WriteResult, Vec<Field>, Option<bool>);

/// Writes an object, or with `dry_run` has slowpath validate the write. If the object changes after
/// it was read, reads and computes it again. Waits until the change is served only for a deletion,
/// since a deleted object cannot be polled later.
fn write(
    socket: &Path,
    change: &Change<'_>,
    write_options: &WriteOptions,
) -> Result<WriteOutcome, WriteError> {
    let path = path(change.kind, &change.name);
    for _ in 0..MAX_ATTEMPTS {
        let before = current(socket, change.kind, &change.name).map_err(WriteError::NotSent)?;
        let after = (change.next)(before.as_ref()).map_err(WriteError::Rejected)?;
        let fields = difference::fields(before.as_ref(), after.as_ref());
        let (done, method) = match (&before, &after) {
            (None, None) => return Ok((WriteResult::Unchanged, fields, None)),
            (Some(before), Some(after)) if after.same_desired_state(before) => {
                return Ok((WriteResult::Unchanged, fields, None));
            }
            (None, Some(_)) => (WriteResult::Created, "PUT"),
            (Some(_), Some(_)) => (WriteResult::Changed, "PUT"),
            (Some(_), None) => (WriteResult::Deleted, "DELETE"),
        };
        let tag = before.map(|before| format!("\"{}\"", before.revision));
        let condition = match &tag {
            Some(tag) => ("If-Match", tag.as_str()),
            None => ("If-None-Match", "*"),
        };
        let body = after.as_ref().map(body).transpose()?.unwrap_or_default();
        let headers = [("Content-Type", "application/json"), condition];
        let url = match (write_options.dry_run, done) {
            (true, _) => format!("{path}?dry_run=true"),
            (false, WriteResult::Deleted) if write_options.wait > 0 => {
                format!("{path}?wait={}s", write_options.wait)
            }
            _ => path.clone(),
        };
        let idle_timeout = IDLE_TIMEOUT + Duration::from_secs(write_options.wait);
        let request =
            Request { headers: &headers, body: &body, idle_timeout, ..Request::new(method, &url) };
        match request::send(socket, &request) {
            Ok(answer) => {
                let waited = url.contains("?wait=");
                return Ok((done, fields, waited.then_some(answer.status != StatusCode::ACCEPTED)));
            }
            // The object changed concurrently: compute the new one from its current state.
            Err(RequestError::Problem(problem)) if problem.status == 412 => {}
            Err(error) => return Err(error.into()),
        }
    }
    let text = "the object changed at every attempt; try again";
    Err(WriteError::Rejected(Problem::bad_request(text)))
}

/// Waits for at most `left` until the object is in force, and returns whether it is.
fn wait(socket: &Path, report: &Report, left: Duration) -> Result<bool, WriteError> {
    let ms = left.as_millis().clamp(1, 999_000);
    let wait = if ms < 1000 { format!("{ms}ms") } else { format!("{}s", ms / 1000) };
    let path = format!("{}?wait={wait}", path(report.kind, &report.name));
    // An empty patch changes nothing, so that concurrent writes of other clients remain.
    let headers = [("Content-Type", "application/merge-patch+json")];
    let idle_timeout = IDLE_TIMEOUT + left;
    let request =
        Request { headers: &headers, body: "{}", idle_timeout, ..Request::new("PATCH", &path) };
    Ok(request::send(socket, &request)?.status != StatusCode::ACCEPTED)
}

/// Makes changes and prints the result of each.
pub fn apply_and_print(
    options: &GlobalOptions,
    socket: &Path,
    changes: &[Change<'_>],
    write_options: &WriteOptions,
) -> Result<ExitCode, String> {
    let (reports, code) = apply_changes(options, socket, changes, write_options)?;
    print(options, &reports, String::new);
    Ok(code)
}

/// Makes changes and returns the report of each and the exit code. Prints progress only if the
/// output is a table.
pub fn apply_changes(
    options: &GlobalOptions,
    socket: &Path,
    changes: &[Change<'_>],
    write_options: &WriteOptions,
) -> Result<(Vec<Report>, ExitCode), String> {
    let is_table = options.output() == Output::Table;
    let mut reports = Vec::with_capacity(changes.len());
    let mut failed = false;
    for change in changes {
        let report = write_one(socket, change, &WriteOptions { dry_run: true, wait: 0 })?;
        failed |= report.done == WriteResult::Rejected;
        print_problem(change, &report, is_table);
        if write_options.dry_run && is_table {
            write_stdout(&line(&report, true));
        }
        reports.push(report);
    }
    if failed && !write_options.dry_run {
        reports.iter_mut().filter(|r| r.done != WriteResult::Rejected).for_each(|report| {
            report.done = WriteResult::Skipped;
        });
        if is_table {
            eprintln!("nothing was written");
        }
    }
    if !failed && !write_options.dry_run {
        failed = write_all(socket, changes, &mut reports, write_options, is_table)?;
        if !failed && write_options.wait > 0 {
            failed = !wait_for_all(socket, changes, &mut reports, write_options.wait, is_table)?;
        }
    }
    Ok((reports, if failed { ExitCode::from(1) } else { ExitCode::SUCCESS }))
}

fn write_one(
    socket: &Path,
    change: &Change<'_>,
    write_options: &WriteOptions,
) -> Result<Report, String> {
    let (kind, name) = (change.kind, change.name.clone());
    let report = |done, fields, problem| Report { kind, name, done, fields, served: None, problem };
    Ok(match write(socket, change, write_options) {
        Ok((done, fields, served)) => Report { served, ..report(done, fields, None) },
        Err(WriteError::Rejected(problem)) => {
            report(WriteResult::Rejected, Vec::new(), serde_json::to_value(&problem).ok())
        }
        // In the dry run nothing is written: only the error is reported.
        Err(WriteError::NotSent(error) | WriteError::NoResponse(error))
            if write_options.dry_run =>
        {
            return Err(error.to_string());
        }
        Err(WriteError::NotSent(error)) => {
            report(WriteResult::Skipped, Vec::new(), Some(error.to_string().into()))
        }
        Err(WriteError::NoResponse(error)) => {
            report(WriteResult::Unknown, Vec::new(), Some(error.to_string().into()))
        }
    })
}

/// Writes the objects in turn and skips the rest after the first failure. Returns whether one
/// failed.
fn write_all(
    socket: &Path,
    changes: &[Change<'_>],
    reports: &mut [Report],
    write_options: &WriteOptions,
    is_table: bool,
) -> Result<bool, String> {
    let mut failed = false;
    for (change, report) in changes.iter().zip(reports) {
        if failed {
            report.done = WriteResult::Skipped;
        } else {
            *report = write_one(socket, change, write_options)?;
            failed = report.problem.is_some();
            print_problem(change, report, is_table);
        }
        if is_table {
            write_stdout(&line(report, false));
        }
    }
    Ok(failed)
}

/// Waits for at most `seconds` until all changes are in force, and returns whether they are.
fn wait_for_all(
    socket: &Path,
    changes: &[Change<'_>],
    reports: &mut [Report],
    seconds: u64,
    is_table: bool,
) -> Result<bool, String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut all = true;
    for (change, report) in changes.iter().zip(reports) {
        let exists =
            current(socket, change.kind, &change.name).map_err(|e| e.to_string())?.is_some();
        match exists.then(|| wait(socket, report, until.saturating_duration_since(Instant::now())))
        {
            // Deletions were waited for when they were made; absent objects need no wait.
            None => report.served = report.served.or(Some(true)),
            Some(Ok(served)) => report.served = Some(served),
            Some(Err(WriteError::Rejected(problem))) => {
                report.served = Some(false);
                report.problem = serde_json::to_value(&problem).ok();
                print_problem(change, report, is_table);
            }
            Some(Err(WriteError::NotSent(error) | WriteError::NoResponse(error))) => {
                return Err(format!("all objects were written, but waiting failed: {error}"));
            }
        }
        all &= report.served == Some(true);
        if is_table && report.served == Some(false) && report.problem.is_none() {
            eprintln!(
                "{} {}: stored, but not in force on all lcores after {seconds} s; see \
                 `weir status` and `weir db show frontends`",
                report.kind, report.name
            );
        }
    }
    if is_table && all {
        write_stdout("in force on all lcores\n");
    }
    Ok(all)
}

/// Formats a report: `Service shop/web: changed: spec.mss 1300 -> 1400`.
fn line(report: &Report, dry_run: bool) -> String {
    let done = report.done.text(dry_run);
    let changed = match report.done {
        WriteResult::Changed => format!(": {}", difference::summary(&report.fields)),
        _ => String::new(),
    };
    format!("{} {}: {done}{changed}\n", report.kind, report.name)
}

fn print_problem(change: &Change<'_>, report: &Report, is_table: bool) {
    let Some(problem) = report.problem.as_ref().filter(|_| is_table) else { return };
    let parsed: Option<Problem> = serde_json::from_value(problem.clone()).ok();
    let location =
        (change.location)(parsed.as_ref().and_then(|p| p.field.as_deref()).unwrap_or_default());
    let text = match parsed {
        Some(problem) if problem.object.is_some() => problem.to_string(),
        Some(problem) => format!("{} {}: {problem}", report.kind, report.name),
        None => {
            format!("{} {}: {}", report.kind, report.name, problem.as_str().unwrap_or_default())
        }
    };
    eprintln!("{location}{text}");
}

/// Prints why nothing was changed, and returns exit code 1.
pub fn print_rejection(options: &GlobalOptions, error: &str) -> ExitCode {
    print(options, &serde_json::json!({ "error": error }), || {
        eprintln!("weir: {error}");
        String::new()
    });
    ExitCode::from(1)
}
