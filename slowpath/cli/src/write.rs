//! Writes of objects: all are tried first, then made one after the other, then waited for.
//!
//! ```text
//!   what is there --> what shall be --> dry run, of all --> write, each with If-Match --> wait
//!         ^                                                   | another was quicker
//!         '---------------------------------------------------'
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

/// How often a write is tried again that others' writes came before.
const TRIES: usize = 16;

/// How something is written.
#[derive(Args)]
pub struct How {
    /// Says what would change, and changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Wait so many seconds at most until all lcores serve it; 0 doesn't wait
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=900))]
    pub wait: u64,
}

/// What an object shall be, as made of what it is; none for gone.
type Next<'w> = Box<dyn Fn(Option<&Object>) -> Result<Option<Object>, Problem> + 'w>;

/// An object that shall be otherwise.
pub struct Wish<'w> {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: Name,
    /// What it shall be.
    pub next: Next<'w>,
    /// Where it is written, with a colon behind; of the field of that path, if it has one.
    pub place: Box<dyn Fn(&str) -> String + 'w>,
}

/// What became of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    Created,
    Changed,
    Unchanged,
    Deleted,
    /// It was not, for a reason.
    Refused,
    /// The answer didn't come.
    Unknown,
    /// Another was refused before.
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

/// What is told of one.
#[derive(Serialize)]
pub struct Report {
    pub kind: Kind,
    pub name: Name,
    pub done: Done,
    /// What differs.
    pub fields: Vec<Field>,
    /// All lcores serve it; none where nobody waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
}

/// Why one isn't written.
enum Failed {
    /// It is refused.
    Refused(Problem),
    /// It could not be asked for.
    Unasked(AskError),
    /// It was asked for, and no answer came.
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

/// What the API says of an object now, if it does.
pub fn current(socket: &Path, kind: Kind, name: &Name) -> Result<Option<Object>, AskError> {
    match ask::document(socket, &path(kind, name)) {
        Err(AskError::Problem(problem)) if problem.status == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Where an object is; its name needs no escapes.
fn path(kind: Kind, name: &Name) -> String {
    format!("/v1/objects/{}/{name}", kind.many())
}

/// What is wanted alone, as it is sent.
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

/// What was done, what differs, and whether all lcores serve it, where that was waited for.
type Written = (Done, Vec<Field>, Option<bool>);

/// Writes one, or tries to, over what is there and nothing else. Only a deletion is waited for,
/// since there is nothing to ask later.
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
            // Somebody was quicker: what it shall be is made of what is there now.
            Err(AskError::Problem(problem)) if problem.status == 412 => {}
            Err(error) => return Err(error.into()),
        }
    }
    let text = "others change it all the time; try again";
    Err(Failed::Refused(Problem::request(text)))
}

/// Waits until what is there is in force; tells whether it is, or why it isn't.
fn wait(socket: &Path, report: &Report, left: Duration) -> Result<bool, Failed> {
    let ms = left.as_millis().clamp(1, 999_000);
    let wait = if ms < 1000 { format!("{ms}ms") } else { format!("{}s", ms / 1000) };
    let path = format!("{}?wait={wait}", path(report.kind, &report.name));
    // A change of nothing: what others wrote meanwhile stays.
    let headers = [("Content-Type", "application/merge-patch+json")];
    let patience = PATIENCE + left;
    let request =
        Request { headers: &headers, body: "{}", patience, ..Request::new("PATCH", &path) };
    Ok(ask::send(socket, &request)?.status != StatusCode::ACCEPTED)
}

/// Makes wishes come true, and tells what became of each.
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

/// The same; people are told as it goes on, programs not at all.
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
        // Nothing was written yet: that nobody answers is all there is to say.
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

/// Writes one after the other, up to the first that fails; tells whether one did.
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

/// Tells whether all of it is in force.
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
            // A deletion was waited for as it was made; what wasn't there needs no waiting.
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

/// `Service shop/web: changed: spec.mss 1300 -> 1400`.
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

/// Says why nothing is written.
pub fn refused(with: &With, why: &str) -> ExitCode {
    print(with, &serde_json::json!({ "refused": why }), || {
        eprintln!("weir: {why}");
        String::new()
    });
    ExitCode::from(1)
}
