//! `weir events`: shows the history of events, from slowpath or, if that does not run, from the
//! files.

use std::io::{BufRead, ErrorKind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use ::events::filter::Filter;
use ::events::history::folder;
use ::events::list::EVENTS;
use ::events::log::format::value_text;
use ::events::record::Record;
use ::events::record_files::RecordReader;
use clap::Args;
use serde_json::{Value, json};

use super::offline;
use super::options::{GlobalOptions, Output};
use super::output::{print, print_next, write_stdout};
use super::request::{self, IDLE_TIMEOUT, RequestError, escaped};

/// Idle timeout of a followed history: in effect none, since the user ends the command with Ctrl-C.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Arguments of `weir events`.
#[derive(Args)]
pub struct EventsArgs {
    /// Show records since this time: a duration before now (90s, 15m, 2h, 7d, 2w) or RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show records until this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Show records of these events only, separated by commas
    #[arg(long, value_name = "EVENT,...")]
    kind: Option<String>,
    /// Show records of this severity or higher: info, warning or error
    #[arg(long)]
    severity: Option<String>,
    /// Show new records as they come, until Ctrl-C; with --since, first those since that time
    #[arg(long, short)]
    follow: bool,
    /// List all events that the history may have, with their meaning and what to do
    #[arg(long, exclusive = true)]
    kinds: bool,
}

/// Runs `weir events`.
pub fn run(options: &GlobalOptions, args: &EventsArgs) -> Result<ExitCode, String> {
    if args.kinds {
        print_kinds(options);
        return Ok(ExitCode::SUCCESS);
    }
    let socket = offline::socket(options)?;
    match from_slowpath(options, &socket, args) {
        Err(RequestError::NotRunning { .. }) if !args.follow => from_files(options, args)?,
        shown => shown.map_err(|error| error.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the records that slowpath returns.
fn from_slowpath(
    options: &GlobalOptions,
    socket: &Path,
    args: &EventsArgs,
) -> Result<(), RequestError> {
    let EventsArgs { since, until, kind, severity, follow, kinds: _ } = args;
    let named = [("since", since), ("until", until), ("kind", kind), ("severity", severity)];
    let mut path = format!("/v1/events?watch={follow}");
    for (name, value) in named {
        if let Some(value) = value {
            path += &format!("&{name}={}", escaped(value));
        }
    }
    let idle_timeout = if *follow { FOLLOW_TIMEOUT } else { IDLE_TIMEOUT };
    for line in request::lines(socket, &path, idle_timeout)?.lines() {
        let record: Record = serde_json::from_str(&line?)
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        print_record(options, &record);
    }
    Ok(())
}

/// Prints the records of the files in the configured `control.state`.
fn from_files(options: &GlobalOptions, args: &EventsArgs) -> Result<(), String> {
    let EventsArgs { since, until, kind, severity, .. } = args;
    let filter = Filter::new(
        since.as_deref(),
        until.as_deref(),
        None,
        kind.as_deref(),
        severity.as_deref(),
        SystemTime::now(),
    )?;
    let config = offline::load(options)?;
    let Some(state) = config.control.state.as_deref() else {
        return Err("there is no history: control.state is empty".to_owned());
    };
    let folder = folder(state);
    eprintln!("slowpath does not run: events are read from {}", folder.display());
    let mut reader = RecordReader::new(&folder);
    let read = reader.read(&mut |record| {
        if filter.admits(&record) {
            print_record(options, &record);
        }
        true
    });
    read.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => "; run weir as root",
            _ => "",
        };
        format!("{}: {error}{hint}", folder.display())
    })?;
    if reader.damaged() > 0 {
        eprintln!("{} damaged lines were left out", reader.damaged());
    }
    Ok(())
}

fn print_record(options: &GlobalOptions, record: &Record) {
    match options.output() {
        Output::Table => write_stdout(&line(record)),
        other => print_next(record, other),
    }
}

/// Returns a record as a line of text.
fn line(record: &Record) -> String {
    let Record { time, severity, event, message, fields, count, first, .. } = record;
    let mut text = format!("{time}  {:<7}  {event}  {message}", severity.as_str());
    // The declared fields of the event, in that order, and then the others.
    let kind = ::events::list::find(event);
    let declared = kind.map_or(&[][..], |kind| kind.fields);
    let shown = declared.iter().filter_map(|name| Some((*name, fields.get(*name)?)));
    let others = fields.iter().filter(|(name, _)| !declared.contains(&name.as_str()));
    let others = others.map(|(name, value)| (name.as_str(), value));
    for (name, value) in shown.chain(others) {
        text += &format!(" {name}={}", value_text(value));
    }
    if let Some(first) = first {
        text += &format!(" ({count} times since {first})");
    }
    text + "\n"
}

fn print_kinds(options: &GlobalOptions) {
    let recorded = || EVENTS.iter().filter(|kind| kind.is_recorded);
    let all: Vec<Value> = recorded()
        .map(|kind| {
            json!({
                "event": kind.name,
                "severity": kind.severity.as_str(),
                "message": kind.message,
                "fields": kind.fields,
                "meaning": kind.meaning,
                "action": kind.action,
            })
        })
        .collect();
    print(options, &all, || {
        let one = |kind: &::events::kind::EventKind| {
            format!(
                "{}  {}\n    {} {}\n",
                kind.name,
                kind.severity.as_str(),
                kind.meaning,
                kind.action
            )
        };
        recorded().map(one).collect()
    });
}
