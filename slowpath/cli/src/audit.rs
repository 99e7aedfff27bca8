//! `weir audit`: shows the audit log, from slowpath or, if it does not run, from its files. Also
//! records commands that change the appliance without slowpath.

use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use api::AuditPage;
use api::audit::files::Position;
use api::audit::{AuditFiles, AuditFilter, Entry, ObjectChange, Outcome};
use clap::Args;
use config::checked::Config;
use slowpath::control::peer::user_name;

use super::offline::{self, load};
use super::options::{GlobalOptions, Output};
use super::output::{print, print_next, put};
use super::request::{self, RequestError, escaped, get_json};
use super::table::Table;

/// Idle timeout of a followed stream: in effect none, since the user ends the command with Ctrl-C.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
/// Number of entries that are read at once.
const PAGE: usize = 1000;

/// Arguments of `weir audit`.
#[derive(Args)]
pub struct AuditArgs {
    /// Show only entries of the last 2h, 30m or 7d, or from a time on (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<SystemTime>,
    /// Show only entries of the token or user whose name contains this text
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Show only entries about this object, for example service/shop/web or tokens/ci
    #[arg(long, value_name = "KIND/NAME")]
    object: Option<String>,
    /// Show new entries as they are written
    #[arg(long)]
    follow: bool,
}

impl AuditArgs {
    /// Returns the texts of `--who` and `--object`; empty for all entries.
    fn texts(&self) -> (&str, &str) {
        (self.who.as_deref().unwrap_or_default(), self.object.as_deref().unwrap_or_default())
    }
}

/// Parses a number with a unit: `90d`, `12h`, `30m`, `45s`.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
    let unit = units.into_iter().find(|(unit, _)| text.ends_with(*unit));
    let span = unit.and_then(|(unit, seconds)| {
        let number: u32 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number > 0)?;
        Some(Duration::from_secs(u64::from(number) * seconds))
    });
    // Longer ones would not have a year of four digits.
    let span = span.filter(|span| *span <= Duration::from_secs(1000 * 366 * 86_400));
    span.ok_or_else(|| "write a number with a unit, for example 90d, 12h, 30m or 45s".to_owned())
}

fn parse_since(text: &str) -> Result<SystemTime, String> {
    if let Some(time) = config::rfc3339::parse(text) {
        return Ok(time);
    }
    let span = parse_span(text).map_err(|error| format!("{error}, or a time (RFC 3339)"))?;
    Ok(SystemTime::now().checked_sub(span).unwrap_or(SystemTime::UNIX_EPOCH))
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
    let (entries, damaged) = match online(&socket, &query) {
        Err(RequestError::NotRunning { .. }) => from_files(options, args)?,
        answer => answer.map_err(|error| error.to_string())?,
    };
    print(options, &entries, || {
        let mut table = heading();
        entries.iter().for_each(|entry| table.row(row(entry)));
        table.text()
    });
    if damaged > 0 {
        eprintln!(
            "weir: {damaged} lines of the audit log were cut off by a crash and are left out"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn online(socket: &Path, query: &str) -> Result<(Vec<Entry>, u64), RequestError> {
    let (mut entries, mut damaged, mut next) = (Vec::new(), 0, String::new());
    loop {
        let path = format!("/v1/audit?limit={PAGE}&continue={next}&{query}");
        let page: AuditPage = get_json(socket, &path)?;
        entries.extend(page.items);
        damaged += page.damaged;
        match page.next {
            Some(cursor) => next = cursor,
            None => return Ok((entries, damaged)),
        }
    }
}

fn from_files(options: &GlobalOptions, args: &AuditArgs) -> Result<(Vec<Entry>, u64), String> {
    let config = load(options)?;
    let Some(state) = &config.control.state else {
        return Err("no audit log is kept, because control.state is empty; see the journal".into());
    };
    let files = AuditFiles::new(state, config.audit_max_bytes);
    let (who, object) = args.texts();
    let filter = AuditFilter::new(args.since, who, object);
    let read =
        files.read(Position::default(), args.since, usize::MAX, |entry| filter.selects(entry));
    let part = read.map_err(|error| format!("{}: {error}", files.folder().display()))?;
    Ok((part.entries, part.damaged))
}

fn follow(options: &GlobalOptions, socket: &Path, query: &str) -> Result<ExitCode, String> {
    let path = format!("/v1/audit?watch=true&{query}");
    let answer = request::lines(socket, &path, FOLLOW_TIMEOUT).map_err(|e| e.to_string())?;
    let (mut has_heading, mut widths) = (false, Vec::new());
    for line in answer.lines() {
        let line = line.map_err(|e| RequestError::Truncated(e).to_string())?;
        let entry: Entry = serde_json::from_str(&line)
            .map_err(|e| RequestError::Malformed(e.to_string()).to_string())?;
        if options.output() != Output::Table {
            print_next(&entry, options.output());
            continue;
        }
        let mut table = heading();
        table.row(row(&entry));
        let text = table.text_in(&mut widths);
        let skip = usize::from(std::mem::replace(&mut has_heading, true));
        put(&text.lines().skip(skip).map(|line| format!("{line}\n")).collect::<String>());
    }
    Err("the stream ended: slowpath stopped or closed the connection".to_owned())
}

fn heading() -> Table {
    Table::new(&["TIME", "WHO", "ROLE", "FROM", "CALL", "OBJECT", "OUTCOME"])
}

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

/// Records a change that a command makes without slowpath, with its result.
pub fn record<T>(config: &Config, call: &str, change: ObjectChange, result: &Result<T, String>) {
    let mut entry = Entry::offline(call, &change.object);
    entry.changes.push(change);
    if let Err(error) = result {
        (entry.outcome, entry.reason) = (Outcome::Failed, error.clone());
    }
    let state = config.control.state.as_deref();
    append(state.map(|state| (state, config.audit_max_bytes)), entry);
}

/// Appends an entry to the log, with the user of this process. A failure is printed, and does not
/// undo the change. Without a state directory, there is no log yet.
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

/// Records a command that changed the appliance without slowpath, with its result.
pub fn record_command(
    options: &GlobalOptions,
    (call, object): (&str, &str),
    result: &Result<ExitCode, String>,
) {
    let mut entry = Entry::offline(call, object);
    match result {
        Ok(code) if *code == ExitCode::SUCCESS => {}
        Ok(_) => entry.outcome = Outcome::Rejected,
        Err(error) => {
            // An error of the configuration has several lines; the first names the key.
            let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            (entry.outcome, entry.reason) = (Outcome::Failed, first.trim().to_owned());
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
    fn spans_have_a_unit() {
        let day = Duration::from_secs(86_400);
        assert_eq!(parse_span("90d"), Ok(90 * day));
        assert_eq!(parse_span("12h"), Ok(day / 2));
        assert_eq!(parse_span("2w"), Ok(14 * day));
        for bad in ["", "d", "90", "0d", "-1h", "1 h", "99999999d", "1y", "ä"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
        assert!(parse_since("2026-11-27T08:00:00Z").is_ok() && parse_since("2h").is_ok());
        assert!(parse_since("yesterday").unwrap_err().contains("RFC 3339"));
    }
}
