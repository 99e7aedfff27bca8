//! The audit log: each change with its caller, time and outcome, and rejected requests at a bounded
//! rate.
//!
//! ```text
//!   authorize (access.rs) --> Entry --> tracing target `audit`
//!                               |
//!                               '--> writer's thread --> files.rs: control.state/audit, synced
//!   `weir` without slowpath -------------------------------^           |
//!                                GET /v1/audit, `weir audit` <---------'
//! ```
//! The entry of a change is written after the change was made, and is on disk before the response
//! is sent. If the write fails or takes longer than `TIMEOUT`, the response is sent without it, and
//! the status shows the error.

mod entry;
pub mod files;
mod filter;
mod notes;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

pub use entry::{Entry, ObjectChange, Outcome};
pub use files::AuditFiles;
pub use filter::AuditFilter;
pub use notes::Notes;

/// Maximum time that a response waits for its entry to be written.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of entries in the queue of the writer's thread, beside those that it is writing;
/// further ones are lost.
const QUEUE: usize = 1024;
/// Maximum number of rejected requests that are recorded within a minute, of all callers together.
/// The next entry after that has the number of further ones (`suppressed`). The limit bounds what
/// callers without a role can make slowpath write.
const REJECTED_PER_MINUTE: u32 = 60;

/// The audit log of this process. Clones share it.
#[derive(Clone, Default)]
pub struct Audit(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// `None` if nothing is persisted.
    writer: Option<Writer>,
    lost: AtomicU64,
    error: Mutex<Option<String>>,
    rejected: Mutex<Rejected>,
}

/// The writer's thread, as its senders see it.
struct Writer {
    files: AuditFiles,
    /// Lines to write, each with a sender for its result.
    queue: SyncSender<(String, Done)>,
}

/// Reports to a request that its entry is on disk, or could not be written.
type Done = oneshot::Sender<()>;

/// Rejected requests of the current minute. A minute begins with the first rejected request after
/// the previous minute.
#[derive(Default)]
struct Rejected {
    began: Option<Instant>,
    recorded: u32,
    suppressed: u64,
}

impl Rejected {
    /// Returns the number of requests that were not recorded before this one, or `None` if this one
    /// is not to be recorded either.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now >= began + Duration::from_secs(60)) {
            (self.began, self.recorded) = (Some(now), 0);
        }
        if self.recorded >= REJECTED_PER_MINUTE {
            self.suppressed += 1;
            return None;
        }
        self.recorded += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Audit {
    /// Starts the log in the directory `state`, with files of at most `max_bytes` together. Without
    /// a directory, entries are only logged (target `audit`).
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(state: Option<&Path>, max_bytes: u64) -> std::io::Result<Audit> {
        let Some(state) = state else { return Ok(Audit::default()) };
        let files = AuditFiles::new(state, max_bytes);
        let (queue, entries) = sync_channel(QUEUE);
        let writer = Some(Writer { files: files.clone(), queue });
        let shared = Arc::new(Shared { writer, ..Shared::default() });
        // The thread ends with the last clone: it has a weak reference.
        let of_thread = Arc::downgrade(&shared);
        std::thread::Builder::new().name("slowpath-audit".into()).spawn(move || {
            write_all(&files, &entries, |result, lost, requests| {
                let Some(shared) = of_thread.upgrade() else { return };
                shared.written(result, lost, requests);
            });
        })?;
        Ok(Audit(shared))
    }

    /// Records an entry, and returns once it is on disk or could not be written.
    pub async fn record(&self, entry: Entry) {
        entry.trace();
        let Some(writer) = &self.0.writer else { return };
        let (done, written) = oneshot::channel();
        match writer.queue.try_send((entry.line(), done)) {
            Ok(()) => self.0.wait(&writer.files, written, TIMEOUT).await,
            Err(TrySendError::Full((_, done)) | TrySendError::Disconnected((_, done))) => {
                let cause = "the disk is too slow: entries are dropped";
                self.0.written(Err(cause.to_owned()), 1, vec![done]);
            }
        }
    }

    /// Records a rejected request, unless too many were recorded within the current minute.
    pub async fn record_rejected(&self, mut entry: Entry) {
        let admitted = self.0.rejected.lock().admit(Instant::now());
        let Some(suppressed) = admitted else { return };
        entry.suppressed = suppressed;
        self.record(entry).await;
    }

    /// Returns the files; `None` if nothing is persisted.
    pub fn files(&self) -> Option<&AuditFiles> {
        self.0.writer.as_ref().map(|writer| &writer.files)
    }

    /// Returns the number of entries that could not be written.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Returns why the last entry is not on disk; `None` if it is.
    pub fn error(&self) -> Option<String> {
        self.0.error.lock().clone()
    }
}

impl Shared {
    /// Waits until an entry was written or could not be, at most for the time `timeout`.
    async fn wait(
        &self,
        files: &AuditFiles,
        mut written: oneshot::Receiver<()>,
        timeout: Duration,
    ) {
        if tokio::time::timeout(timeout, &mut written).await.is_ok() {
            return;
        }
        let mut error = self.error.lock();
        // The entry may have been written meanwhile: `Shared::written` sends with this lock held.
        if written.try_recv() == Err(TryRecvError::Empty) {
            let (folder, seconds) = (files.folder().display(), timeout.as_secs());
            let cause = format!(
                "{folder}: the disk has not answered for {seconds} s; entries wait in memory"
            );
            set(&mut error, cause);
        }
    }

    /// Stores the result of writing the entries of these requests, of which `lost` could not be
    /// written, and lets the requests continue.
    fn written(&self, result: Result<(), String>, lost: usize, requests: Vec<Done>) {
        let mut error = self.error.lock();
        match result {
            Ok(()) => *error = None,
            Err(cause) => {
                self.lost.fetch_add(lost as u64, Relaxed);
                set(&mut error, cause);
            }
        }
        for done in requests {
            // The request may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// Sets the error of the log, and logs it if it is a new one.
fn set(error: &mut Option<String>, cause: String) {
    if error.as_ref() != Some(&cause) {
        tracing::error!(event = "audit_unwritten", error = %cause, "audit log not written");
    }
    *error = Some(cause);
}

/// Writes entries until all senders are gone. Entries that arrive while the disk is busy are
/// written together.
fn write_all(
    files: &AuditFiles,
    entries: &Receiver<(String, Done)>,
    mut report: impl FnMut(Result<(), String>, usize, Vec<Done>),
) {
    while let Ok(first) = entries.recv() {
        let mut batch = vec![first];
        batch.extend(entries.try_iter().take(QUEUE));
        let lines: Vec<&str> = batch.iter().map(|(line, _)| line.as_str()).collect();
        let result = files.append(&lines);
        let lost = result.as_ref().map_or_else(|error| lines.len() - error.written, |()| 0);
        let result = result.map_err(|error| {
            let folder = files.folder().display();
            format!("{folder}: {error}; changes are made, and not recorded there")
        });
        report(result, lost, batch.into_iter().map(|(_, done)| done).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_requests_are_recorded_at_a_bounded_rate() {
        let (mut rejected, now) = (Rejected::default(), Instant::now());
        for _ in 0..REJECTED_PER_MINUTE {
            assert_eq!(rejected.admit(now), Some(0));
        }
        assert_eq!((rejected.admit(now), rejected.admit(now)), (None, None));
        assert_eq!(rejected.admit(now + Duration::from_secs(60)), Some(2));
        assert_eq!(rejected.admit(now + Duration::from_secs(61)), Some(0));
    }

    #[tokio::test]
    async fn entry_has_the_number_of_requests_that_were_suppressed_before_it() {
        let name = format!("weir-audit-suppressed-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let audit = Audit::start(Some(&folder), 1 << 20).unwrap();
        audit.0.rejected.lock().suppressed = 2;
        audit.record_rejected(Entry::offline("test", "a")).await;
        audit.record_rejected(Entry::offline("test", "b")).await;
        let files = audit.files().unwrap();
        let part = files.read(files::Position::default(), None, 9, |_| true).unwrap();
        let suppressed: Vec<u64> = part.entries.iter().map(|entry| entry.suppressed).collect();
        assert_eq!(suppressed, [2, 0]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn disk_that_does_not_answer_is_shown_until_it_does() {
        let (shared, files) = (Shared::default(), AuditFiles::new(Path::new("/state"), 1 << 20));
        let (done, written) = oneshot::channel();
        shared.wait(&files, written, Duration::from_millis(1)).await;
        let error = shared.error.lock().clone().unwrap();
        assert!(error.starts_with("/state/audit: the disk has not answered for"), "{error}");
        shared.written(Ok(()), 0, vec![done]);
        assert_eq!((shared.error.lock().clone(), shared.lost.load(Relaxed)), (None, 0));
        // A write that ended in time, and one that ended without a result.
        let (done, written) = oneshot::channel();
        shared.written(Ok(()), 0, vec![done]);
        shared.wait(&files, written, TIMEOUT).await;
        let (done, written) = oneshot::channel();
        drop(done);
        shared.wait(&files, written, TIMEOUT).await;
        assert_eq!(shared.error.lock().clone(), None);
    }

    #[tokio::test]
    async fn failed_writes_are_counted_and_shown_until_one_succeeds() {
        let folder = std::env::temp_dir().join(format!("weir-audit-lost-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        // A file in the place of the directory.
        std::fs::write(folder.join("audit"), "").unwrap();
        let audit = Audit::start(Some(&folder), 1 << 20).unwrap();
        audit.record(Entry::offline("test", "a")).await;
        assert_eq!(audit.lost(), 1);
        assert!(audit.error().unwrap().contains("not recorded"), "{:?}", audit.error());
        std::fs::remove_file(folder.join("audit")).unwrap();
        audit.record(Entry::offline("test", "b")).await;
        assert_eq!((audit.lost(), audit.error()), (1, None));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
