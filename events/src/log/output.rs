//! The thread that writes the log.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, SystemTime};

use config::checked::LogFormat;

use super::format::{Line, as_json, as_text};
use super::journal::{self, Journal};
use crate::fields::Fields;
use crate::kind::Severity;

/// Interval at which ended rate limit windows and expired levels are processed.
const TICK: Duration = Duration::from_secs(1);

/// A request to the thread.
pub enum Job {
    /// Write a line.
    Line(Line),
    /// Drop the sender when all lines before are written.
    Flush(SyncSender<()>),
}

/// Counters shared with the thread.
#[derive(Default)]
pub struct Counts {
    lost: AtomicU64,
}

impl Counts {
    /// Counts lost lines.
    pub fn add_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns the number of lost lines.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Destination of the lines.
pub enum Sink {
    /// Text on standard error; `true` colors the level.
    Text(bool),
    /// JSON on standard error.
    Json,
    /// Fields to journald; a line that journald does not accept is written as text on standard
    /// error.
    Journal(Journal),
}

impl Sink {
    /// Returns the sink of a format.
    pub fn new(format: LogFormat, is_terminal: bool) -> Sink {
        match resolve(format) {
            LogFormat::Json => Sink::Json,
            LogFormat::Journald => match Journal::new(Path::new(journal::SOCKET)) {
                Ok(journal) => Sink::Journal(journal),
                Err(_) => Sink::Text(is_terminal),
            },
            LogFormat::Text | LogFormat::Auto => Sink::Text(is_terminal),
        }
    }
}

/// Returns the format that `auto` means.
fn resolve(format: LogFormat) -> LogFormat {
    let variable = std::env::var("JOURNAL_STREAM").ok();
    match format {
        LogFormat::Auto if journal::is_stream(variable.as_deref()) => LogFormat::Journald,
        LogFormat::Auto => LogFormat::Text,
        other => other,
    }
}

/// The thread's state.
pub struct Output {
    program: &'static str,
    sink: Sink,
    reported_lost: u64,
}

impl Output {
    /// Creates the state for the log of a program.
    pub fn new(program: &'static str, sink: Sink) -> Output {
        Output { program, sink, reported_lost: 0 }
    }

    /// Writes lines until the process ends. `tick` is called about once a second, unless writing
    /// blocks, and returns further lines to write.
    pub fn run(&mut self, jobs: &Receiver<Job>, counts: &Counts, tick: impl Fn() -> Vec<Line>) {
        let mut next = std::time::Instant::now() + TICK;
        loop {
            let wait = next.saturating_duration_since(std::time::Instant::now());
            match jobs.recv_timeout(wait) {
                Ok(Job::Line(line)) => self.write(&line),
                Ok(Job::Flush(done)) => {
                    tick().iter().for_each(|line| self.write(line));
                    drop(done);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if std::time::Instant::now() >= next {
                next = std::time::Instant::now() + TICK;
                tick().iter().for_each(|line| self.write(line));
                self.report_lost(counts.lost());
            }
        }
    }

    fn report_lost(&mut self, lost: u64) {
        if lost == self.reported_lost {
            return;
        }
        let fields = Fields {
            event: Some("log_lines_lost".into()),
            message: "log lines lost".into(),
            target: None,
            values: vec![("lines", (lost - self.reported_lost).into())],
        };
        self.reported_lost = lost;
        let target = "events::log::output".to_owned();
        let (at, severity) = (SystemTime::now(), Severity::Warning);
        self.write(&Line { at, severity, target, fields });
    }

    fn write(&mut self, line: &Line) {
        let text = match &self.sink {
            Sink::Text(colored) => as_text(line, *colored),
            Sink::Json => as_json(line, self.program),
            Sink::Journal(journal) => match journal.send(line, self.program) {
                Ok(()) => return,
                Err(_) => as_text(line, false),
            },
        };
        // There is no other place to report that the log cannot be written.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
