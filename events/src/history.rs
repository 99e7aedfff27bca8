//! The history: a thread that stores recorded events, and its handle.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use config::rfc3339::format_ms;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::fields::Fields;
use crate::flush::flush;
use crate::list;
use crate::merge::{Merged, Merger, Occurrence};
use crate::record::Record;
use crate::record_files::{RecordReader, RecordWriter};
use crate::thread_capabilities;

/// Number of events that may wait for the thread. Further ones are lost and counted.
pub const QUEUE: usize = 16_384;
/// Maximum number of records that wait while the disk fails. When more come, the oldest are lost
/// and counted.
const UNSTORED: usize = 4096;
/// Interval of attempts to write to a disk that fails.
const RETRY: Duration = Duration::from_secs(1);
/// Time after the last lost event during which [`HistoryStatus::finding`] reports the loss.
const FINDING: Duration = Duration::from_secs(3600);

/// A request to the thread.
enum Job {
    Store(Occurrence),
    Flush(SyncSender<()>),
}

/// Counters and condition of the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryStatus {
    /// Folder of the history; `None` if nothing is stored.
    pub folder: Option<PathBuf>,
    /// Events lost because the queue was full, or because the disk failed for too long.
    pub lost: u64,
    /// Time at which the last event was lost.
    pub last_lost: Option<Instant>,
    /// Cause of the failure of the last write, with the remedy; `None` if it succeeded.
    pub error: Option<String>,
}

impl HistoryStatus {
    /// Returns a problem of the history for the operator, or `None` if there is none.
    pub fn finding(&self, now: Instant) -> Option<String> {
        let (folder, lost) = (self.folder.as_deref()?.display(), self.lost);
        match &self.error {
            Some(error) => Some(format!("{folder}: events are not stored: {error}; {lost} lost")),
            None => self.last_lost.filter(|at| now < *at + FINDING).map(|_| {
                format!(
                    "{folder}: {lost} events lost, the last within an hour: they came faster than \
                     the disk stores them; use a faster disk for control.state"
                )
            }),
        }
    }
}

/// Returns the cause of a failed write, with the remedy.
fn explained(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => "another slowpath writes to this folder; stop it".to_owned(),
        _ => format!("{error}; free space on the disk of control.state, or check its owner"),
    }
}

/// Handle of the history.
pub struct History {
    jobs: SyncSender<Job>,
    folder: Option<PathBuf>,
    lost: Mutex<(u64, Option<Instant>)>,
    error: Mutex<Option<String>>,
    /// Number of the last record.
    last: watch::Sender<u64>,
}

/// The history of this process.
static HISTORY: OnceLock<History> = OnceLock::new();

/// Returns the history of this process, if [`start`] was called.
pub fn history() -> Option<&'static History> {
    HISTORY.get()
}

/// Returns the folder of the history in a folder `control.state`.
pub fn folder(state: &Path) -> PathBuf {
    state.join("events")
}

/// Starts the history of this process in the folder `events` of `state`, the directory
/// `control.state`; with `None`, nothing is stored. Only the first call has an effect. If the
/// folder cannot be written, writing is retried, and [`History::status`] reports the error.
///
/// # Errors
/// Fails if the thread cannot be started.
pub fn start(state: Option<&Path>, max_bytes: u64) -> std::io::Result<()> {
    let (history, jobs) = History::new(state.map(folder));
    if HISTORY.set(history).is_ok()
        && let Some(history) = HISTORY.get()
        && let Some(folder) = history.folder.clone()
    {
        std::thread::Builder::new().name("weir-events".into()).spawn(move || {
            // Root needs them to write to a folder of another user.
            if !rustix::process::geteuid().is_root() {
                thread_capabilities::give_up_all();
            }
            Recorder::new(history, folder, max_bytes).run(&jobs);
        })?;
    }
    Ok(())
}

impl History {
    fn new(folder: Option<PathBuf>) -> (History, Receiver<Job>) {
        let (jobs, received) = sync_channel(QUEUE);
        let (lost, error, last) = (Mutex::default(), Mutex::default(), watch::Sender::default());
        (History { jobs, folder, lost, error, last }, received)
    }

    /// Queues an event. Never blocks.
    fn record(&self, event: Occurrence) {
        if self.folder.is_some() && self.jobs.try_send(Job::Store(event)).is_err() {
            self.add_lost(1);
        }
    }

    fn add_lost(&self, events: u64) {
        if events > 0 {
            let mut lost = self.lost.lock();
            *lost = (lost.0 + events, Some(Instant::now()));
        }
    }

    /// Returns counters and condition.
    pub fn status(&self) -> HistoryStatus {
        let (lost, last_lost) = *self.lost.lock();
        let (folder, error) = (self.folder.clone(), self.error.lock().clone());
        HistoryStatus { folder, lost, last_lost, error }
    }

    /// Returns a reader of the stored records; `None` if nothing is stored.
    pub fn reader(&self) -> Option<RecordReader> {
        self.folder.as_deref().map(RecordReader::new)
    }

    /// Watches the number of the last record that this process has stored.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Waits until the events so far are stored, for at most a second.
    pub fn flush(&self) {
        if self.folder.is_some() {
            flush(&self.jobs, Job::Flush);
        }
    }
}

/// The thread that stores records.
struct Recorder<'h> {
    history: &'h History,
    folder: PathBuf,
    max_bytes: u64,
    boot: String,
    writer: Option<RecordWriter>,
    merger: Merger,
    unstored: VecDeque<Merged>,
    retry_at: Instant,
}

impl<'h> Recorder<'h> {
    fn new(history: &'h History, folder: PathBuf, max_bytes: u64) -> Recorder<'h> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Recorder {
            history,
            folder,
            max_bytes,
            boot: boot.trim().to_owned(),
            writer: None,
            merger: Merger::default(),
            unstored: VecDeque::new(),
            retry_at: Instant::now(),
        }
    }

    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let now = Instant::now();
            let window = self.merger.next_end();
            let retry = (!self.unstored.is_empty()).then_some(self.retry_at);
            let next = window.into_iter().chain(retry).min().unwrap_or(now + WAIT);
            match jobs.recv_timeout(next.saturating_duration_since(now)) {
                Ok(first) => self.perform([first].into_iter().chain(jobs.try_iter().take(QUEUE))),
                Err(RecvTimeoutError::Timeout) => self.perform(std::iter::empty()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Performs requests, and writes the records that are due.
    fn perform(&mut self, jobs: impl Iterator<Item = Job>) {
        let mut flushes = Vec::new();
        for job in jobs {
            match job {
                Job::Store(event) => {
                    self.unstored.extend(self.merger.add(event, Instant::now()));
                }
                Job::Flush(done) => {
                    self.unstored.extend(self.merger.drain());
                    flushes.push(done);
                }
            }
        }
        self.unstored.extend(self.merger.expire(Instant::now()));
        // A flush, for example at the end of the process, writes at once, without waiting for
        // `retry_at`.
        if !flushes.is_empty() || Instant::now() >= self.retry_at {
            self.store();
        }
        if self.history.error.lock().is_some() {
            let excess = self.unstored.len().saturating_sub(UNSTORED);
            let lost = self.unstored.drain(..excess).map(|merged| merged.count).sum();
            self.history.add_lost(lost);
        }
    }

    fn store(&mut self) {
        if self.unstored.is_empty() {
            return;
        }
        let written = self.write();
        if written.is_err() {
            self.retry_at = Instant::now() + RETRY;
            // A folder that was replaced is opened again.
            self.writer = None;
        }
        *self.history.error.lock() = written.err().map(|error| explained(&error));
    }

    /// Writes the records, and removes from `unstored` those that are on disk.
    fn write(&mut self) -> io::Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(RecordWriter::open(&self.folder, self.max_bytes)?),
        };
        let numbered = self.unstored.iter().zip(writer.next_number()..);
        let lines: Vec<String> =
            numbered.map(|(merged, number)| line(merged, number, &self.boot)).collect();
        let appended = writer.append(&lines);
        let written = appended.as_ref().map_or_else(|error| error.written, |()| lines.len());
        self.unstored.drain(..written);
        if written > 0 {
            self.history.last.send_replace(writer.next_number() - 1);
        }
        appended.map_err(|error| error.source)
    }
}

/// Returns the line of a record.
fn line(merged: &Merged, number: u64, boot: &str) -> String {
    let Merged { last, count, first } = merged;
    let record = Record {
        number,
        time: last.time.clone(),
        boot: boot.to_owned(),
        event: last.kind.name.to_owned(),
        severity: last.kind.severity,
        message: last.kind.message.to_owned(),
        fields: last.fields.clone(),
        count: *count,
        first: first.clone(),
    };
    record.to_line()
}

/// Maximum time that the thread waits for events when no window ends and no retry is due.
const WAIT: Duration = Duration::from_secs(3600);

/// Returns whether log calls with this metadata may be events of the history.
pub(crate) fn may_be_recorded(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
        && *metadata.level() <= Level::INFO
        && metadata.fields().field("event").is_some()
}

/// The layer that queues recorded events.
pub struct HistoryLayer;

impl<S: Subscriber> Layer<S> for HistoryLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let Some(history) = history() else { return };
        let fields = Fields::of(event);
        let kind = fields.event.as_deref().and_then(list::find).filter(|kind| kind.is_recorded);
        let Some(kind) = kind else { return };
        let subject = fields.subject(kind);
        let values = fields.values.into_iter();
        history.record(Occurrence {
            kind,
            fields: values.map(|(name, value)| (name.to_owned(), value)).collect(),
            subject,
            time: format_ms(SystemTime::now()),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    fn occurrence(name: &str, values: &[(&'static str, &str)]) -> Occurrence {
        let kind = list::find(name).unwrap();
        let values = values.iter().map(|(name, value)| (*name, Value::from(*value))).collect();
        let fields = Fields { values, ..Fields::default() };
        let subject = fields.subject(kind);
        let values = fields.values.into_iter();
        let fields: Map<String, Value> =
            values.map(|(name, value)| (name.to_owned(), value)).collect();
        Occurrence { kind, fields, subject, time: format_ms(SystemTime::now()) }
    }

    fn event(lcore: &str) -> Occurrence {
        occurrence("lcore_stalled", &[("lcore", lcore)])
    }

    /// Returns number, first field and count of each record.
    fn records(history: &History) -> Vec<(u64, String, u64)> {
        let mut found = Vec::new();
        let mut take = |record: Record| {
            let first = record.fields.values().next().and_then(Value::as_str);
            found.push((record.number, first.unwrap_or_default().to_owned(), record.count));
            true
        };
        history.reader().unwrap().read(&mut take).unwrap();
        found
    }

    /// A folder `base` for `base/state/events`, and the history in it.
    fn recording(name: &str) -> (PathBuf, History, Receiver<Job>) {
        let base = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir_all(&base).unwrap();
        let (history, jobs) = History::new(Some(folder(&base.join("state"))));
        (base, history, jobs)
    }

    fn recorder(history: &History, max_bytes: u64) -> Recorder<'_> {
        Recorder::new(history, history.folder.clone().unwrap(), max_bytes)
    }

    /// Requests a flush of the recorder itself.
    fn flush_now(recorder: &mut Recorder<'_>) {
        let (done, flushed) = sync_channel(1);
        recorder.perform([Job::Flush(done)].into_iter());
        assert!(flushed.recv().is_err(), "the request is dropped when it is done");
    }

    #[test]
    fn a_full_queue_loses_events_and_counts_them_without_blocking() {
        let (history, _jobs) = History::new(Some(PathBuf::from("/nowhere")));
        for n in 0..QUEUE + 7 {
            history.record(event(&n.to_string()));
        }
        let status = history.status();
        assert_eq!(status.lost, 7);
        let lost_at = status.last_lost.unwrap();
        assert!(status.finding(lost_at).unwrap().contains("7 events lost"));
        assert_eq!(
            status.finding(lost_at + FINDING),
            None,
            "the finding ends an hour after the last lost event"
        );
    }

    #[test]
    fn records_that_cannot_be_written_are_kept_and_written_when_the_disk_works_again() {
        let (base, history, _jobs) = recording("events-refused");
        // A file in place of the folder makes each attempt fail.
        std::fs::write(base.join("state"), "").unwrap();
        let mut recorder = recorder(&history, 1 << 20);
        recorder.perform([Job::Store(event("a"))].into_iter());
        let finding = history.status().finding(Instant::now()).unwrap();
        assert!(finding.contains("not stored") && finding.contains("free space"), "{finding}");
        // The number of waiting records is limited between two attempts, too.
        recorder.retry_at = Instant::now() + Duration::from_secs(3600);
        let many = (0..UNSTORED + 2).map(|n| Job::Store(event(&n.to_string())));
        recorder.perform(many);
        assert_eq!(history.status().lost, 3, "the oldest ones");
        std::fs::remove_file(base.join("state")).unwrap();
        recorder.perform([Job::Store(event("b"))].into_iter());
        assert!(records(&history).is_empty(), "the next attempt is not due");
        // A flush does not wait for it.
        flush_now(&mut recorder);
        assert_eq!(history.status().error, None);
        let (stored, last) = (records(&history), UNSTORED as u64);
        assert_eq!(stored.first().unwrap(), &(1, "3".to_owned(), 1));
        assert_eq!(stored.last().unwrap(), &(last, "b".to_owned(), 1));
        assert_eq!(*history.watch().borrow(), last);
        // A flush also writes the events that are being merged.
        recorder.perform([event("b"), event("b"), event("b")].map(Job::Store).into_iter());
        flush_now(&mut recorder);
        assert_eq!(records(&history).last().unwrap(), &(last + 2, "b".to_owned(), 2));
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_folder_that_another_process_writes_to_is_reported() {
        let (base, history, _jobs) = recording("events-claimed");
        let (first, second) = (&mut recorder(&history, 1 << 20), &mut recorder(&history, 1 << 20));
        first.perform([Job::Store(event("a"))].into_iter());
        second.perform([Job::Store(event("b"))].into_iter());
        let finding = history.status().finding(Instant::now()).unwrap();
        assert!(finding.contains("another slowpath writes to this folder; stop it"), "{finding}");
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_batch_larger_than_the_history_stays_within_its_size() {
        let (base, history, _jobs) = recording("events-batch");
        let mut recorder = recorder(&history, 64 << 10);
        recorder.perform((0..5000).map(|n| Job::Store(event(&n.to_string()))));
        let files = std::fs::read_dir(folder(&base.join("state"))).unwrap();
        let size: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(size <= 64 << 10, "{size}");
        assert_eq!(records(&history).last().unwrap(), &(5000, "4999".to_owned(), 1));
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_backend_of_several_services_has_a_record_for_each() {
        let (base, history, _jobs) = recording("events-services");
        let mut recorder = recorder(&history, 1 << 20);
        let failed = |n: u8| {
            let service = format!("shop/{n}");
            let values =
                [("backend", "10.0.0.1:80"), ("service", service.as_str()), ("reason", "refused")];
            Job::Store(occurrence("backend_unhealthy", &values))
        };
        recorder.perform((0..6).map(failed));
        assert_eq!(records(&history).len(), 6);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
