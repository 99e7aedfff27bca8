//! The log of a program: lines on standard error, as text or JSON, or with fields to journald.
//!
//! A thread formats and writes the lines. A pipe or a journald that does not accept lines delays
//! only this thread: lines that do not fit into the queue are lost and counted.

pub mod format;
pub(crate) mod journal;
pub mod level;
pub(crate) mod limit;
pub(crate) mod output;

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Instant, SystemTime};

use config::checked::Log as LogSettings;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::fields::Fields;
use crate::flush::flush;
use crate::history::{HistoryLayer, history, may_be_recorded};
use crate::kind::Severity;
use crate::{list, thread_capabilities};
use format::Line;
use level::Levels;
use limit::Limiter;
use output::{Counts, Job, Output, Sink};

/// Number of lines that may wait for the thread.
pub const QUEUE: usize = 8192;
/// Target of the lines of the audit log. They are neither rate-limited nor filtered by level.
const AUDIT: &str = "audit";

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

/// Returns the log of this process, if [`start`] was called.
pub fn log() -> Option<&'static Log> {
    LOG.get()
}

/// Handle of the log.
pub struct Log {
    jobs: SyncSender<Job>,
    limiter: Limiter,
    levels: Levels,
    counts: Counts,
}

/// Counters of the log.
#[derive(Clone, Debug, Default)]
pub struct LogCounts {
    /// Lines left out because their event and subject exceeded the limit, by event.
    pub suppressed: Vec<(String, u64)>,
    /// Lines lost because the reader of the log did not accept them.
    pub lost: u64,
}

impl Log {
    /// Returns the levels.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Applies settings that may change at run time.
    pub fn configure(&self, settings: &LogSettings) {
        self.limiter.set_limit(settings.limit);
        self.levels.configure(&settings.level);
    }

    /// Returns the counters.
    pub fn counts(&self) -> LogCounts {
        LogCounts { suppressed: self.limiter.suppressed(), lost: self.counts.lost() }
    }

    /// Waits until the lines so far are written, for at most a second.
    pub fn flush(&self) {
        flush(&self.jobs, Job::Flush);
    }

    /// Queues a line unless its event has reached the limit. Never blocks.
    fn write(&self, line: Line) {
        let is_limited = line.severity > Severity::Debug && line.target != AUDIT;
        if is_limited && !self.admits(&line) {
            return;
        }
        if self.jobs.try_send(Job::Line(line)).is_err() {
            self.counts.add_lost(1);
        }
    }

    /// Returns whether a line is within the limit. The subject of a library's line is its module.
    fn admits(&self, line: &Line) -> bool {
        let event = line.fields.event.as_deref();
        let subject = match event.and_then(list::find) {
            Some(kind) => line.fields.subject(kind),
            None => line.target.clone(),
        };
        self.limiter.admits(event.unwrap_or(limit::UNNAMED), &subject, Instant::now())
    }
}

/// Flushes the history and the log when the program ends.
#[must_use = "the log is flushed when this is dropped"]
pub struct LogGuard(());

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(history) = history() {
            history.flush();
        }
        if let Some(log) = log() {
            log.flush();
        }
    }
}

/// Starts the log of a program. Only the first call has an effect.
///
/// # Errors
/// Fails if the thread cannot be started.
pub fn start(program: &'static str, settings: &LogSettings) -> std::io::Result<LogGuard> {
    let environment = std::env::var("WEIR_LOG").ok();
    let (filter, handle) = reload::Layer::<EnvFilter, Registry>::new(EnvFilter::new("info"));
    let replace = move |directives: &str| {
        let filter = EnvFilter::try_new(directives).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    };
    let (levels, rejected) = Levels::new(&settings.level, environment, Box::new(replace));
    let (jobs, received) = sync_channel(QUEUE);
    let (limiter, counts) = (Limiter::new(settings.limit), Counts::default());
    if LOG.set(Log { jobs, limiter, levels, counts }).is_err() {
        return Ok(LogGuard(()));
    }
    let sink = Sink::new(settings.format, std::io::stderr().is_terminal());
    start_thread(Output::new(program, sink), received)?;
    let audit = filter_fn(|metadata| metadata.target() == AUDIT);
    let filter = filter.or(audit.with_max_level_hint(LevelFilter::INFO));
    let recorded = filter_fn(may_be_recorded).with_max_level_hint(LevelFilter::INFO);
    // Fails if a test has set a subscriber, which then gets the lines.
    let _ = tracing_subscriber::registry()
        .with(LogLayer.with_filter(filter))
        .with(HistoryLayer.with_filter(recorded))
        .try_init();
    if let Some(error) = rejected {
        tracing::warn!(event = "log_level_rejected", %error, "WEIR_LOG ignored");
    }
    Ok(LogGuard(()))
}

fn start_thread(mut output: Output, jobs: Receiver<Job>) -> std::io::Result<()> {
    std::thread::Builder::new().name("weir-log".into()).spawn(move || {
        // It only writes to standard error, which is open.
        thread_capabilities::give_up_all();
        let Some(log) = log() else { return };
        output.run(&jobs, &log.counts, || {
            let now = Instant::now();
            log.levels.expire(now);
            log.limiter.expire(now)
        });
    })?;
    Ok(())
}

/// The layer that queues lines.
struct LogLayer;

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let Some(log) = log() else { return };
        let fields = Fields::of(event);
        let target = fields.target.clone().unwrap_or_else(|| event.metadata().target().to_owned());
        let severity = Severity::of(event.metadata().level());
        log.write(Line { at: SystemTime::now(), severity, target, fields });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libraries_are_limited_by_their_module() {
        let (jobs, _received) = sync_channel(1);
        let (levels, _) = Levels::new("info", None, Box::new(|_| Ok(())));
        let log = Log { jobs, limiter: Limiter::new(1), levels, counts: Counts::default() };
        let is_admitted = |target: &str| {
            let (at, target) = (SystemTime::now(), target.to_owned());
            let (severity, fields) = (Severity::Warning, Fields::default());
            log.admits(&Line { at, severity, target, fields })
        };
        assert_eq!(["hyper", "rustls", "hyper"].map(is_admitted), [true, true, false]);
    }
}
