//! `weir audit`: shows the audit log, from slowpath or, if it does not run, from its files. Also
//! records commands that change the appliance without slowpath.

use std::io::{BufRead, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use api::audit::files::Position;
use api::audit::{AuditFiles, AuditFilter, Entry, ObjectChange, Outcome};
use api::{AuditPage, Problem};
use clap::Args;
use config::checked::Config;
use serde::Deserialize;
use slowpath::control::peer::user_name;

use super::offline::{self, load};
use super::options::{GlobalOptions, Output};
use super::output::{print_next, serialize, write_stdout};
use super::request::{self, RequestError, escaped, get_json};
use super::table::Table;

/// Idle timeout of a followed stream: in effect none, since the user ends the command with Ctrl-C.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
/// Number of entries that are requested at once; slowpath returns fewer if they are large.
const PAGE: usize = 1000;
/// Number of entries that are read from the files at once.
const PART: usize = 100;

/// Arguments of `weir audit`.
#[derive(Args)]
pub struct AuditArgs {
    /// Show entries since this time: a duration before now (90s, 15m, 2h, 7d, 2w) or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<SystemTime>,
    /// Show only entries of the token or user whose name contains this text
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Show only entries about this object, for example service/shop/web or tokens/ci
    #[arg(long, value_name = "KIND/NAME")]
    object: Option<String>,
    /// Show new entries as they come, until Ctrl-C; with --since, first those since that time
    #[arg(long)]
    follow: bool,
}

impl AuditArgs {
    /// Returns the texts of `--who` and `--object`; empty for all entries.
    fn texts(&self) -> (&str, &str) {
        (self.who.as_deref().unwrap_or_default(), self.object.as_deref().unwrap_or_default())
    }
}

fn since(text: &str) -> Result<SystemTime, String> {
    config::duration::parse_time(text, SystemTime::now())
}

/// Runs `weir audit`.
pub fn run(options: &GlobalOptions, args: &AuditArgs) -> Result<ExitCode, String> {
    let socket = offline::socket(options)?;
    let (who, object) = args.texts();
    let mut query = format!("who={}&object={}", escaped(who), escaped(object));
    if let Some(since) = args.since {
        query += &format!("&since={}", escaped(&config::rfc3339::format(since)));
    }
    if args.follow {
        return follow(options, &socket, &query);
    }
    let mut printed = Printed::new(options.output());
    let damaged = match from_slowpath(&socket, &query, &mut printed) {
        Err(RequestError::NotRunning { .. }) if !printed.has_begun => {
            from_files(options, args, &mut printed)?
        }
        damaged => damaged.map_err(|error| error.to_string())?,
    };
    write_stdout(printed.end());
    if damaged > 0 {
        eprintln!(
            "weir: {damaged} lines of the audit log were cut off by a crash and are left out"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the entries that slowpath returns, page by page. Returns the number of damaged lines.
fn from_slowpath(socket: &Path, query: &str, printed: &mut Printed) -> Result<u64, RequestError> {
    let (mut damaged, mut next) = (0, String::new());
    loop {
        let path = format!("/v1/audit?limit={PAGE}&continue={next}&{query}");
        let page: AuditPage = get_json(socket, &path)?;
        write_stdout(&printed.next(&page.items));
        damaged += page.damaged;
        match page.next {
            Some(cursor) => next = cursor,
            None => return Ok(damaged),
        }
    }
}

/// Prints the entries of the log's files, for which slowpath need not run. Returns the number of
/// damaged lines.
fn from_files(
    options: &GlobalOptions,
    args: &AuditArgs,
    printed: &mut Printed,
) -> Result<u64, String> {
    let config = load(options)?;
    let Some(state) = &config.control.state else {
        return Err("no audit log is kept, because control.state is empty; see the journal".into());
    };
    let files = AuditFiles::new(state, config.audit_max_bytes);
    let (who, object) = args.texts();
    let filter = AuditFilter::new(args.since, who, object);
    let folder = files.folder().display();
    eprintln!("slowpath does not run: the audit log is read from {folder}");
    let (mut damaged, mut next) = (0, Position::default());
    loop {
        let part = files.read(next, args.since, PART, |entry| filter.selects(entry));
        let part = part.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => format!("{folder}: {error}; run weir as root"),
            _ => format!("{folder}: {error}"),
        })?;
        write_stdout(&printed.next(&part.entries));
        (damaged, next) = (damaged + part.damaged, part.next);
        if part.is_end {
            return Ok(damaged);
        }
    }
}

/// Entries that are printed in several parts as one document.
struct Printed {
    output: Output,
    has_begun: bool,
    widths: Vec<usize>,
}

impl Printed {
    fn new(output: Output) -> Printed {
        Printed { output, has_begun: false, widths: Vec::new() }
    }

    /// Returns the text of the next entries.
    fn next(&mut self, entries: &[Entry]) -> String {
        match self.output {
            Output::Table => {
                let mut table = Table::new(&HEADING);
                entries.iter().for_each(|entry| table.row(row(entry)));
                let text = table.text_in(&mut self.widths);
                let skip = usize::from(std::mem::replace(&mut self.has_begun, true));
                text.lines().skip(skip).map(|line| format!("{line}\n")).collect()
            }
            Output::Json => {
                let mut text = String::new();
                for entry in entries {
                    let began = std::mem::replace(&mut self.has_begun, true);
                    text += if began { ",\n" } else { "[\n" };
                    text += entry.line().trim_end();
                }
                text
            }
            Output::Yaml if entries.is_empty() => String::new(),
            Output::Yaml => {
                self.has_begun = true;
                serialize(&entries, self.output)
            }
        }
    }

    /// Returns the text after the last entry.
    fn end(&self) -> &'static str {
        match (self.output, self.has_begun) {
            (Output::Json, true) => "\n]\n",
            (Output::Json | Output::Yaml, false) => "[]\n",
            (Output::Table, _) | (Output::Yaml, true) => "",
        }
    }
}

fn follow(options: &GlobalOptions, socket: &Path, query: &str) -> Result<ExitCode, String> {
    let path = format!("/v1/audit?watch=true&{query}");
    let answer = request::lines(socket, &path, FOLLOW_TIMEOUT).map_err(|e| e.to_string())?;
    let mut printed = Printed::new(options.output());
    for line in answer.lines() {
        let line = line.map_err(|e| RequestError::Truncated(e).to_string())?;
        let entry = streamed(&line).map_err(|error| error.to_string())?;
        match options.output() {
            Output::Table => write_stdout(&printed.next(&[entry])),
            output => print_next(&entry, output),
        }
    }
    Err("the stream ended: slowpath stopped or closed the connection".to_owned())
}

/// Returns the entry in a line of a stream, or the error with which the stream ended.
fn streamed(line: &str) -> Result<Entry, RequestError> {
    #[derive(Deserialize)]
    struct Failure {
        problem: Problem,
    }
    serde_json::from_str(line).map_err(|error| match serde_json::from_str(line) {
        Ok(Failure { problem }) => RequestError::Problem(Box::new(problem)),
        Err(_) => RequestError::Malformed(error.to_string()),
    })
}

const HEADING: [&str; 7] = ["TIME", "WHO", "ROLE", "FROM", "CALL", "OBJECT", "OUTCOME"];

fn row(entry: &Entry) -> Vec<String> {
    let from = match entry.source.as_str() {
        "" => entry.transport.clone(),
        source => format!("{} {source}", entry.transport),
    };
    let outcome = serde_json::to_value(entry.outcome).unwrap_or_default();
    let mut outcome = outcome.as_str().unwrap_or_default().to_owned();
    if !entry.reason.is_empty() {
        outcome += &format!(": {}", entry.reason);
    }
    let object = match entry.changes.as_slice() {
        [one] => one.object.clone(),
        [] => entry.object.clone(),
        many => format!("{} ({} objects)", entry.object, many.len() as u64 + entry.more_objects),
    };
    let (time, who, role) = (entry.time.clone(), entry.who.clone(), entry.role.clone());
    vec![time, who, role, from, entry.call.clone(), object, outcome]
}

/// Appends a change that a command makes without slowpath, and its result, to the audit log.
pub fn record<T>(config: &Config, call: &str, change: ObjectChange, result: &Result<T, String>) {
    let mut entry = Entry::offline(call, &change.object);
    entry.changes.push(change);
    if let Err(error) = result {
        entry.not_done(Outcome::Failed, error);
    }
    let state = config.control.state.as_deref();
    append(state.map(|state| (state, config.audit_max_bytes)), entry);
}

/// Appends an entry to the log, with the user of this process. A failure is printed, and does not
/// undo the change. Appends nothing if `control.state` is empty or its directory does not exist.
fn append(log: Option<(&Path, u64)>, mut entry: Entry) {
    let Some((state, max_bytes)) = log.filter(|(state, _)| state.is_dir()) else { return };
    entry.who = caller();
    let files = AuditFiles::new(state, max_bytes);
    if let Err(error) = files.append(&[&entry.line()]) {
        eprintln!("weir: {}: {error}; this change is not recorded", files.folder().display());
    }
}

/// Returns the user of this process, and the user that logged in if that is another one.
fn caller() -> String {
    let user = std::fs::metadata("/proc/self").map_or(u32::MAX, |about| about.uid());
    let login = std::fs::read_to_string("/proc/self/loginuid").ok();
    let login = login.and_then(|text| text.trim().parse::<u32>().ok());
    match login.filter(|login| *login != u32::MAX && *login != user) {
        Some(login) => format!("{} login {}", user_name(user), user_name(login)),
        None => user_name(user),
    }
}

/// Appends a command that changes the appliance without slowpath, and its result, to the audit log.
pub fn record_command(
    options: &GlobalOptions,
    (call, object): (&str, &str),
    changes: Vec<ObjectChange>,
    result: &Result<ExitCode, String>,
) {
    let mut entry = Entry::offline(call, object);
    entry.changes = changes;
    match result {
        Ok(code) if *code == ExitCode::SUCCESS => {}
        Ok(_) => entry.not_done(Outcome::Rejected, ""),
        Err(error) => {
            // An error of the configuration has several lines; the first names the key.
            let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            entry.not_done(Outcome::Failed, first.trim());
        }
    }
    // The configuration may be what is missing or not valid.
    let Ok(config) = load(options) else { return };
    append(config.control.state.as_deref().map(|state| (state, config.audit_max_bytes)), entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_document() {
        let entry = |object: &str| Entry::offline("test", object);
        let parts = [vec![entry("a"), entry("b")], Vec::new(), vec![entry("c")]];
        let text = |output, parts: &[Vec<Entry>]| {
            let mut printed = Printed::new(output);
            let text: String = parts.iter().map(|part| printed.next(part)).collect();
            text + printed.end()
        };
        let read: Vec<Entry> = serde_json::from_str(&text(Output::Json, &parts)).unwrap();
        assert_eq!(read, parts.concat());
        let yaml = text(Output::Yaml, &parts);
        assert_eq!(yaml, serialize(&parts.concat(), Output::Yaml));
        assert_eq!(text(Output::Table, &parts).lines().count(), 4, "one heading");
        for (output, empty) in [(Output::Json, "[]\n"), (Output::Yaml, "[]\n")] {
            assert_eq!(text(output, &[Vec::new()]), empty);
        }
    }

    #[test]
    fn stream_that_ends_with_an_error_shows_it() {
        let line = r#"{"type":"error","problem":{"type":"urn:weir:internal","title":"internal",
                       "status":500,"detail":"the disk fails"}}"#;
        assert!(streamed(line).unwrap_err().to_string().contains("the disk fails"));
        assert!(streamed("{}").unwrap_err().to_string().contains("cannot be parsed"));
        let entry = Entry::offline("test", "a");
        assert_eq!(streamed(&entry.line()).unwrap(), entry);
    }
}
