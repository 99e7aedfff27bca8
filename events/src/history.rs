//! The history: a thread that stores recorded events, and its handle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::fields::Fields;
use crate::list;
use crate::merge::{Merged, Merger, Occurrence};
use crate::record::{Record, format_time};
use crate::segments::{SegmentReader, SegmentWriter};

/// Number of events that may wait for the thread. Further ones are lost and counted.
pub const QUEUE: usize = 16_384;
/// Number of records that wait for a disk that fails. Older ones are lost and counted.
const UNSTORED: usize = 4096;
/// Interval of attempts to write to a disk that fails.
const RETRY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the thread.
const FLUSH: Duration = Duration::from_secs(1);

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
    /// Number of the last record.
    pub last: u64,
    /// Events lost because the queue was full, or because the disk failed for too long.
    pub lost: u64,
    /// Why the last write failed; `None` if it did not.
    pub error: Option<String>,
}

impl HistoryStatus {
    /// Returns what an operator should know of the history, if something is wrong.
    pub fn finding(&self) -> Option<String> {
        match (&self.error, self.lost) {
            (Some(error), lost) => {
                let folder = self.folder.as_deref().unwrap_or(Path::new("")).display();
                Some(format!("{folder}: events are not stored: {error}; {lost} are lost"))
            }
            (None, 0) => None,
            (None, lost) => Some(format!("{lost} events are lost: more came than could be stored")),
        }
    }
}

/// Handle of the history.
pub struct History {
    jobs: SyncSender<Job>,
    folder: Option<PathBuf>,
    lost: AtomicU64,
    error: Mutex<Option<String>>,
    last: Mutex<u64>,
    added: Condvar,
    is_closing: AtomicBool,
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

/// Starts the history of this process, in a folder in `control.state` (`None`: nothing is stored),
/// with a maximum size. Only the first call has an effect. A folder that cannot be written is tried
/// again, and reported by [`History::status`].
///
/// # Errors
/// Fails if the thread cannot be started.
pub fn start(state: Option<&Path>, max_bytes: u64) -> std::io::Result<()> {
    let (history, jobs) = History::new(state.map(folder));
    if HISTORY.set(history).is_ok()
        && let Some(history) = HISTORY.get()
        && let Some(folder) = history.folder.clone()
    {
        std::thread::Builder::new()
            .name("weir-events".into())
            .spawn(move || Recorder::new(history, folder, max_bytes).run(&jobs))?;
    }
    Ok(())
}

impl History {
    fn new(folder: Option<PathBuf>) -> (History, Receiver<Job>) {
        let (jobs, received) = sync_channel(QUEUE);
        let history = History {
            jobs,
            folder,
            lost: AtomicU64::new(0),
            error: Mutex::default(),
            last: Mutex::default(),
            added: Condvar::new(),
            is_closing: AtomicBool::new(false),
        };
        (history, received)
    }

    /// Queues an event. Never blocks.
    fn record(&self, event: Occurrence) {
        if self.folder.is_some() && self.jobs.try_send(Job::Store(event)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns counters and condition.
    pub fn status(&self) -> HistoryStatus {
        HistoryStatus {
            folder: self.folder.clone(),
            last: *self.last.lock(),
            lost: self.lost.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
        }
    }

    /// Returns a reader of the stored records; `None` if nothing is stored.
    pub fn reader(&self) -> Option<SegmentReader> {
        self.folder.as_deref().map(SegmentReader::new)
    }

    /// Returns the newest record of these events, optionally with a subject, as stored by this
    /// process or an earlier one. Reads the whole history.
    pub fn newest(&self, events: &[&str], subject: Option<&str>) -> Option<Record> {
        let mut newest = None;
        // What cannot be read is reported by the thread that writes.
        let _ = self.reader()?.read(&mut |record| {
            let is_subject = subject.is_none_or(|subject| record.subject() == subject);
            if is_subject && events.contains(&record.event.as_str()) {
                newest = Some(record);
            }
            true
        });
        newest
    }

    /// Blocks until there is a record with a number above `number`, for at most `timeout`.
    pub fn wait_beyond(&self, number: u64, timeout: Duration) {
        let mut last = self.last.lock();
        if *last <= number {
            self.added.wait_for(&mut last, timeout);
        }
    }

    /// Returns whether the process ends, so that those who follow the history stop.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Makes those who follow the history stop.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.added.notify_all();
    }

    /// Waits until the events so far are stored, for at most a second.
    pub fn flush(&self) {
        let (done, stored) = sync_channel(1);
        if self.folder.is_some() && self.jobs.try_send(Job::Flush(done)).is_ok() {
            let _ = stored.recv_timeout(FLUSH);
        }
    }
}

/// The thread that stores records.
struct Recorder<'h> {
    history: &'h History,
    folder: PathBuf,
    max_bytes: u64,
    boot: String,
    writer: Option<SegmentWriter>,
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
            let first = match jobs.recv_timeout(next.saturating_duration_since(now)) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut flushes = Vec::new();
            for job in first.into_iter().chain(jobs.try_iter().take(QUEUE)) {
                match job {
                    Job::Store(event) => {
                        let merged = self.merger.take(event, Instant::now());
                        self.unstored.extend(merged);
                    }
                    Job::Flush(done) => {
                        self.unstored.extend(self.merger.drain());
                        flushes.push(done);
                    }
                }
            }
            self.unstored.extend(self.merger.expire(Instant::now()));
            self.store();
            drop(flushes);
        }
    }

    /// Writes what is to be recorded.
    fn store(&mut self) {
        let now = Instant::now();
        if self.unstored.is_empty() || now < self.retry_at {
            return;
        }
        match self.write() {
            Ok(last) => {
                self.unstored.clear();
                *self.history.error.lock() = None;
                *self.history.last.lock() = last;
                self.history.added.notify_all();
            }
            Err(error) => {
                self.retry_at = now + RETRY;
                // A folder that was replaced is opened anew.
                self.writer = None;
                *self.history.error.lock() = Some(error.to_string());
                let excess = self.unstored.len().saturating_sub(UNSTORED);
                let lost: u64 = self.unstored.drain(..excess).map(|merged| merged.count).sum();
                self.history.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    /// Writes all records at once, and returns the number of the last one.
    fn write(&mut self) -> std::io::Result<u64> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(SegmentWriter::open(&self.folder, self.max_bytes)?),
        };
        let (mut lines, mut number) = (String::new(), writer.next_number());
        for Merged { last, count, first } in &self.unstored {
            let record = Record {
                number,
                time: last.time.clone(),
                boot: self.boot.clone(),
                event: last.kind.name.to_owned(),
                severity: last.kind.severity,
                message: last.kind.message.to_owned(),
                fields: last.fields.clone(),
                count: *count,
                first: first.clone(),
            };
            lines.push_str(&record.to_line());
            number += 1;
        }
        writer.append(&lines, self.unstored.len() as u64)?;
        Ok(writer.next_number() - 1)
    }
}

/// How long the thread waits for events when nothing is due.
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
        let subject = fields.subject();
        let values = fields.values.into_iter();
        history.record(Occurrence {
            kind,
            fields: values.map(|(name, value)| (name.to_owned(), value)).collect(),
            subject,
            time: format_time(SystemTime::now()),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn event(subject: &str) -> Occurrence {
        let kind = list::find("lcore_stalled").unwrap();
        let fields = Map::from_iter([("lcore".to_owned(), subject.into())]);
        let time = format_time(SystemTime::now());
        Occurrence { kind, fields, subject: subject.into(), time }
    }

    fn records(history: &History) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        history
            .reader()
            .unwrap()
            .read(&mut |record| {
                found.push((record.number, record.subject()));
                true
            })
            .unwrap();
        found
    }

    #[test]
    fn a_full_queue_loses_events_and_counts_them_without_blocking() {
        let (history, _jobs) = History::new(Some(PathBuf::from("/nowhere")));
        for n in 0..QUEUE + 7 {
            history.record(event(&n.to_string()));
        }
        assert_eq!(history.status().lost, 7);
    }

    #[test]
    fn records_that_a_disk_refuses_are_kept_and_written_when_it_works_again() {
        let base = std::env::temp_dir().join(format!("weir-events-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir_all(&base).unwrap();
        let folder = base.join("state").join("events");
        // A file in place of the folder makes each attempt fail.
        std::fs::write(base.join("state"), "").unwrap();
        let (history, jobs) = History::new(Some(folder.clone()));
        let mut recorder = Recorder::new(&history, folder, 1 << 20);
        let store = |recorder: &mut Recorder<'_>, subject: &str| {
            let merged = recorder.merger.take(event(subject), Instant::now());
            recorder.unstored.extend(merged);
            recorder.retry_at = Instant::now();
            recorder.store();
        };
        store(&mut recorder, "a");
        assert!(history.status().error.is_some());
        for n in 0..UNSTORED + 2 {
            let merged = recorder.merger.take(event(&n.to_string()), Instant::now());
            recorder.unstored.extend(merged);
        }
        recorder.retry_at = Instant::now();
        recorder.store();
        assert_eq!(history.status().lost, 3, "the oldest ones");
        std::fs::remove_file(base.join("state")).unwrap();
        store(&mut recorder, "b");
        let status = history.status();
        assert_eq!((status.error, status.last), (None, UNSTORED as u64 + 1));
        let stored = records(&history);
        assert_eq!(stored.first().unwrap(), &(1, "2".to_owned()));
        assert_eq!(stored.last().unwrap(), &(UNSTORED as u64 + 1, "b".to_owned()));
        // An end of the process writes what is being merged.
        history.record(event("b"));
        let (done, flushed) = sync_channel(1);
        history.jobs.try_send(Job::Flush(done)).unwrap();
        let Ok(Job::Store(event)) = jobs.recv() else { panic!("the event comes first") };
        assert!(matches!(jobs.recv(), Ok(Job::Flush(_))));
        assert!(flushed.recv().is_err(), "the request is dropped when it is done");
        assert!(recorder.merger.take(event, Instant::now()).is_none(), "it is repeated");
        let due = recorder.merger.drain();
        recorder.unstored.extend(due);
        recorder.store();
        assert_eq!(records(&history).len(), stored.len() + 1);
        assert_eq!(history.newest(&["lcore_stalled"], Some("b")).unwrap().number, status.last + 1);
        assert_eq!(history.newest(&["able"], None), None);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
