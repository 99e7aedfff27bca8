//! Writes of objects: a dry run of all, then each write in turn, then a wait until they are in
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

use super::ask::{self, AskError, PATIENCE, Request};
use super::difference::{self, Field};
use super::options::{Output, With};
use super::output::{print, put};

/// Maximum number of attempts if other writers change the object concurrently.
const TRIES: usize = 16;

/// Options of writes.
#[derive(Args)]
pub struct How {
    /// Show what would change without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum number of seconds to wait until all lcores serve the change; 0 does not wait
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=900))]
    pub wait: u64,
}

/// Computes the new object from the current one; `None` deletes it.
type Next<'w> = Box<dyn Fn(Option<&Object>) -> Result<Option<Object>, Problem> + 'w>;

/// A change of an object.
pub struct Wish<'w> {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: Name,
    /// Computes the new object.
    pub next: Next<'w>,
    /// Returns the location of a field in a file, followed by a colon, or an empty text.
    pub place: Box<dyn Fn(&str) -> String + 'w>,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    Created,
    Changed,
    Unchanged,
    Deleted,
    /// The object was rejected.
    Refused,
    /// No response arrived.
    Unknown,
    /// Skipped, because another object was rejected before.
    NotWritten,
}

impl Done {
    fn text(self, dry_run: bool) -> &'static str {
        match (self, dry_run) {
            (Done::Created, false) => "created",
            (Done::Changed, false) => "changed",
            (Done::Deleted, false) => "deleted",
            (Done::Created, true) => "would be created",
            (Done::Changed, true) => "would be changed",
            (Done::Deleted, true) => "would be deleted",
            (Done::Unchanged, _) => "unchanged",
            (Done::Refused, _) => "refused",
            (Done::Unknown, _) => "perhaps written: no answer came",
            (Done::NotWritten, _) => "not written",
        }
    }
}

/// Report about one object.
#[derive(Serialize)]
pub struct Report {
    pub kind: Kind,
    pub name: Name,
    pub done: Done,
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
enum Failed {
    /// The API rejected the object.
    Refused(Problem),
    /// The request could not be sent.
    Unasked(AskError),
    /// The request was sent, and no response arrived.
    Unknown(AskError),
}

impl From<AskError> for Failed {
    fn from(error: AskError) -> Failed {
        match error {
            AskError::Problem(problem) => Failed::Refused(*problem),
            absent @ (AskError::Absent { .. } | AskError::NotRoot { .. }) => {
                Failed::Unasked(absent)
            }
            other => Failed::Unknown(other),
        }
    }
}

/// Returns the API's object, if it exists.
pub fn current(socket: &Path, kind: Kind, name: &Name) -> Result<Option<Object>, AskError> {
    match ask::document(socket, &path(kind, name)) {
        Err(AskError::Problem(problem)) if problem.status == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the URL path of an object; its name needs no escapes.
fn path(kind: Kind, name: &Name) -> String {
    format!("/v1/objects/{}/{name}", kind.many())
}

/// Serializes the desired state without status, as sent in requests.
fn body(object: &Object) -> Result<String, AskError> {
    let strange = |e: serde_json::Error| AskError::Strange(e.to_string());
    let mut json = serde_json::to_value(object).map_err(strange)?;
    if let Some(map) = json.as_object_mut() {
        map.retain(|key, _| {
            ["kind", "name", "labels", "annotations", "spec"].contains(&key.as_str())
        });
    }
    serde_json::to_string(&json).map_err(strange)
}

/// The result, the differing fields, and whether all lcores serve the change, if it was waited for.
type Written = (Done, Vec<Field>, Option<bool>);

/// Writes an object or tries to, provided that it has not changed since it was read. Waits only for
/// deletions, since a deleted object cannot be polled later.
fn write(socket: &Path, wish: &Wish<'_>, how: &How) -> Result<Written, Failed> {
    let path = path(wish.kind, &wish.name);
    for _ in 0..TRIES {
        let before = current(socket, wish.kind, &wish.name).map_err(Failed::Unasked)?;
        let after = (wish.next)(before.as_ref()).map_err(Failed::Refused)?;
        let fields = difference::fields(before.as_ref(), after.as_ref());
        let (done, method) = match (&before, &after) {
            (None, None) => return Ok((Done::Unchanged, fields, None)),
            (Some(before), Some(after)) if after.wants_as(before) => {
                return Ok((Done::Unchanged, fields, None));
            }
            (None, Some(_)) => (Done::Created, "PUT"),
            (Some(_), Some(_)) => (Done::Changed, "PUT"),
            (Some(_), None) => (Done::Deleted, "DELETE"),
        };
        let tag = before.map(|before| format!("\"{}\"", before.revision));
        let condition = match &tag {
            Some(tag) => ("If-Match", tag.as_str()),
            None => ("If-None-Match", "*"),
        };
        let body = after.as_ref().map(body).transpose()?.unwrap_or_default();
        let headers = [("Content-Type", "application/json"), condition];
        let asked = match (how.dry_run, done) {
            (true, _) => format!("{path}?dry_run=true"),
            (false, Done::Deleted) if how.wait > 0 => format!("{path}?wait={}s", how.wait),
            _ => path.clone(),
        };
        let patience = PATIENCE + Duration::from_secs(how.wait);
        let request =
            Request { headers: &headers, body: &body, patience, ..Request::new(method, &asked) };
        match ask::send(socket, &request) {
            Ok(answer) => {
                let waited = asked.contains("?wait=");
                return Ok((done, fields, waited.then_some(answer.status != StatusCode::ACCEPTED)));
            }
            // The object changed concurrently: compute the new one from its current state.
            Err(AskError::Problem(problem)) if problem.status == 412 => {}
            Err(error) => return Err(error.into()),
        }
    }
    let text = "others change it all the time; try again";
    Err(Failed::Refused(Problem::request(text)))
}

/// Waits until the object is in force, and returns whether it is.
fn wait(socket: &Path, report: &Report, left: Duration) -> Result<bool, Failed> {
    let ms = left.as_millis().clamp(1, 999_000);
    let wait = if ms < 1000 { format!("{ms}ms") } else { format!("{}s", ms / 1000) };
    let path = format!("{}?wait={wait}", path(report.kind, &report.name));
    // An empty change: concurrent writes of others are kept.
    let headers = [("Content-Type", "application/merge-patch+json")];
    let patience = PATIENCE + left;
    let request =
        Request { headers: &headers, body: "{}", patience, ..Request::new("PATCH", &path) };
    Ok(ask::send(socket, &request)?.status != StatusCode::ACCEPTED)
}

/// Makes changes and reports the result of each.
pub fn carry_out(
    with: &With,
    socket: &Path,
    wishes: &[Wish<'_>],
    how: &How,
) -> Result<ExitCode, String> {
    let (reports, code) = make(with, socket, wishes, how)?;
    print(with, &reports, String::new);
    Ok(code)
}

/// Makes changes; progress is printed as text, but not for programs.
pub fn make(
    with: &With,
    socket: &Path,
    wishes: &[Wish<'_>],
    how: &How,
) -> Result<(Vec<Report>, ExitCode), String> {
    let people = with.output() == Output::Table;
    let mut reports = Vec::with_capacity(wishes.len());
    let mut failed = false;
    for wish in wishes {
        let report = attempt(socket, wish, &How { dry_run: true, wait: 0 })?;
        failed |= report.done == Done::Refused;
        tell_problem(wish, &report, people);
        if how.dry_run && people {
            put(&line(&report, true));
        }
        reports.push(report);
    }
    if failed && !how.dry_run {
        reports.iter_mut().filter(|r| r.done != Done::Refused).for_each(|report| {
            report.done = Done::NotWritten;
        });
        if people {
            eprintln!("nothing was written");
        }
    }
    if !failed && !how.dry_run {
        failed = write_all(socket, wishes, &mut reports, how, people)?;
        if !failed && how.wait > 0 {
            failed = !wait_for_all(socket, wishes, &mut reports, how.wait, people)?;
        }
    }
    Ok((reports, if failed { ExitCode::from(1) } else { ExitCode::SUCCESS }))
}

fn attempt(socket: &Path, wish: &Wish<'_>, how: &How) -> Result<Report, String> {
    let (kind, name) = (wish.kind, wish.name.clone());
    let report = |done, fields, problem| Report { kind, name, done, fields, served: None, problem };
    Ok(match write(socket, wish, how) {
        Ok((done, fields, served)) => Report { served, ..report(done, fields, None) },
        Err(Failed::Refused(problem)) => {
            report(Done::Refused, Vec::new(), serde_json::to_value(&problem).ok())
        }
        // Nothing was written yet: only the error is reported.
        Err(Failed::Unasked(error) | Failed::Unknown(error)) if how.dry_run => {
            return Err(error.to_string());
        }
        Err(Failed::Unasked(error)) => {
            report(Done::NotWritten, Vec::new(), Some(error.to_string().into()))
        }
        Err(Failed::Unknown(error)) => {
            report(Done::Unknown, Vec::new(), Some(error.to_string().into()))
        }
    })
}

/// Writes the objects in turn until one fails; returns whether one failed.
fn write_all(
    socket: &Path,
    wishes: &[Wish<'_>],
    reports: &mut [Report],
    how: &How,
    people: bool,
) -> Result<bool, String> {
    let mut failed = false;
    for (wish, report) in wishes.iter().zip(reports) {
        if failed {
            report.done = Done::NotWritten;
        } else {
            *report = attempt(socket, wish, how)?;
            failed = report.problem.is_some();
            tell_problem(wish, report, people);
        }
        if people {
            put(&line(report, false));
        }
    }
    Ok(failed)
}

/// Waits until all changes are in force, and returns whether they are.
fn wait_for_all(
    socket: &Path,
    wishes: &[Wish<'_>],
    reports: &mut [Report],
    seconds: u64,
    people: bool,
) -> Result<bool, String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut all = true;
    for (wish, report) in wishes.iter().zip(reports) {
        let there = current(socket, wish.kind, &wish.name).map_err(|e| e.to_string())?.is_some();
        match there.then(|| wait(socket, report, until.saturating_duration_since(Instant::now()))) {
            // Deletions were waited for when they were made; absent objects need no wait.
            None => report.served = report.served.or(Some(true)),
            Some(Ok(served)) => report.served = Some(served),
            Some(Err(Failed::Refused(problem))) => {
                report.served = Some(false);
                report.problem = serde_json::to_value(&problem).ok();
                tell_problem(wish, report, people);
            }
            Some(Err(Failed::Unasked(error) | Failed::Unknown(error))) => {
                return Err(format!("all was written; {error}"));
            }
        }
        all &= report.served == Some(true);
        if people && report.served == Some(false) && report.problem.is_none() {
            eprintln!(
                "{} {}: kept, and not in force on all lcores after {seconds} s; see `weir status` \
                 and `weir db show frontends`",
                report.kind, report.name
            );
        }
    }
    if people && all {
        put("in force on all lcores\n");
    }
    Ok(all)
}

/// Formats a report: `Service shop/web: changed: spec.mss 1300 -> 1400`.
fn line(report: &Report, dry_run: bool) -> String {
    let done = report.done.text(dry_run);
    let changed = match report.done {
        Done::Changed => format!(": {}", difference::summary(&report.fields)),
        _ => String::new(),
    };
    format!("{} {}: {done}{changed}\n", report.kind, report.name)
}

fn tell_problem(wish: &Wish<'_>, report: &Report, people: bool) {
    let Some(problem) = report.problem.as_ref().filter(|_| people) else { return };
    let parsed: Option<Problem> = serde_json::from_value(problem.clone()).ok();
    let place = (wish.place)(parsed.as_ref().and_then(|p| p.field.as_deref()).unwrap_or_default());
    let told = match parsed {
        Some(problem) if problem.object.is_some() => problem.to_string(),
        Some(problem) => format!("{} {}: {problem}", report.kind, report.name),
        None => {
            format!("{} {}: {}", report.kind, report.name, problem.as_str().unwrap_or_default())
        }
    };
    eprintln!("{place}{told}");
}

/// Reports why nothing is written, and returns exit code 1.
pub fn refused(with: &With, why: &str) -> ExitCode {
    print(with, &serde_json::json!({ "refused": why }), || {
        eprintln!("weir: {why}");
        String::new()
    });
    ExitCode::from(1)
}
