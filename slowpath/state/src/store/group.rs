//! Store shared by many writers. Callers submit batches, one thread writes them, and batches that
//! arrive while the disk is busy share the next sync.
//!
//! The thread in [`Shared::serve`] waits for the disk, and so do callers of [`Shared::change`] and
//! [`Shared::store`]; no other call does. A caller of [`Shared::request`] may stop waiting:
//! [`Shared::withdraw`] returns whether its batch may still be applied.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use super::{Batch, Cut, Damage, Disk, Store};
use crate::name::Source;
use crate::object::{ChangeError, ErrorClass, Event, History, Objects, TooOld};

/// Number of events kept for watchers.
const HISTORY_MAX: usize = 8_192;
/// Maximum number of batches that wait for the disk.
const QUEUE_MAX: usize = 4_096;

/// Result of a batch: the revision after it, or the reason why it was rejected.
pub type CommitResult = Result<u64, ChangeError>;

/// Batch that is submitted to the store.
pub struct WriteRequest {
    /// Changes, which are applied all together or not at all.
    pub batch: Batch,
    /// Time of the request. The changes get the time of the last request in their group.
    pub now: SystemTime,
    /// Sources whose complete list the batch contains. If it succeeds, all objects of these sources
    /// are confirmed ([`Store::confirm_source`]).
    pub complete_sources: Vec<Source>,
}

impl WriteRequest {
    /// Creates a request with a batch that contains no complete list.
    pub fn new(batch: Batch, now: SystemTime) -> WriteRequest {
        WriteRequest { batch, now, complete_sources: Vec::new() }
    }
}

/// Number of a submitted request. Requests are written in the order of their tickets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(u64);

/// Queued request, with the callback for its answer.
pub(super) struct QueuedRequest {
    ticket: Ticket,
    request: WriteRequest,
    answer: Box<dyn FnOnce(CommitResult) + Send>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<QueuedRequest>,
    issued: Ticket,
    /// Ticket up to which all requests are written, rejected or withdrawn.
    completed: Ticket,
    /// Whether a group is being written.
    busy: bool,
    /// Whether a caller stopped waiting while a group was being written. Reset after that group.
    stuck: bool,
    /// Whether [`Shared::close`] was called.
    closed: bool,
}

/// Store that threads share. Reading never waits for the disk.
pub struct Shared<D> {
    store: Mutex<Store<D>>,
    pub(super) queue: Mutex<Queue>,
    arrived: Condvar,
    /// Newest objects that are on disk, and the events that led to them.
    published: Mutex<(Objects, History)>,
    revision: watch::Sender<u64>,
    /// Damage found when the store was opened.
    damage: Option<Damage>,
    /// Interrupted write that was cut when the store was opened.
    cut: Option<Cut>,
    observer: OnceLock<Observer>,
}

/// A group that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written<'g> {
    /// Time at which its write began, and the write's duration.
    pub measured: (Instant, Duration),
    /// Sources whose complete lists were written.
    pub completed: &'g [Source],
    /// Size of the store after the group ([`Store::bytes`]).
    pub bytes: u64,
}

/// Callback after each group.
pub type Observer = Box<dyn Fn(Written<'_>) + Send + Sync>;

/// Current objects, and the events since an earlier revision.
#[derive(Debug)]
pub struct ObjectChanges {
    /// All objects, after the events.
    pub objects: Objects,
    /// Events, oldest first; an error if the history no longer has all of them.
    pub events: Result<Vec<Event>, TooOld>,
}

impl<D: Disk> Shared<D> {
    /// Shares a store. Nothing is written before a thread runs [`Shared::serve`] or a caller
    /// [`Shared::change`].
    pub fn new(store: Store<D>) -> Shared<D> {
        let objects = store.objects().clone();
        let revision = watch::Sender::new(objects.revision());
        let history = History::new(objects.revision(), HISTORY_MAX);
        let published = Mutex::new((objects, history));
        let (damage, cut) = (store.damage().cloned(), store.cut().cloned());
        let (store, queue) = (Mutex::new(store), Mutex::default());
        let (arrived, observer) = (Condvar::new(), OnceLock::new());
        Shared { store, queue, arrived, published, revision, damage, cut, observer }
    }

    /// Sets the callback after each group, which runs on the thread that wrote it, after the
    /// answers. Only the first call has an effect.
    pub fn set_observer(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }

    /// Returns why the store is not used; it is then empty and takes no changes.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns the interrupted write that was cut when the store was opened, if any.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Submits a request to the writing thread without waiting for the disk. `answer` is called at
    /// most once, after the batch is on disk and published, or was rejected: on this thread if the
    /// request cannot be queued, otherwise on the writing thread. It is not called for a request
    /// that is withdrawn.
    pub fn submit(
        &self,
        request: WriteRequest,
        answer: impl FnOnce(CommitResult) + Send + 'static,
    ) -> Ticket {
        let mut queue = self.queue.lock();
        queue.issued.0 += 1;
        let ticket = queue.issued;
        let error = match () {
            () if queue.closed => Some(closed()),
            () if queue.stuck => {
                Some(disk("the store's disk does not respond; nothing was changed"))
            }
            () if queue.waiting.len() >= QUEUE_MAX => {
                Some(disk("too many changes wait for the store's disk; nothing was changed"))
            }
            () => None,
        };
        if let Some(error) = error {
            drop(queue);
            answer(Err(error));
            return ticket;
        }
        queue.waiting.push(QueuedRequest { ticket, request, answer: Box::new(answer) });
        drop(queue);
        self.arrived.notify_one();
        ticket
    }

    /// Submits a request and returns a future for its answer. The sender is dropped without an
    /// answer if the request is withdrawn.
    pub fn request(&self, request: WriteRequest) -> (Ticket, oneshot::Receiver<CommitResult>) {
        let (sender, answer) = oneshot::channel();
        // A caller that has stopped waiting needs no answer.
        let ticket = self.submit(request, move |answered| drop(sender.send(answered)));
        (ticket, answer)
    }

    /// Stops waiting for a request, and returns the error for its caller. If the request was still
    /// queued, it is removed and the error states that nothing was changed. If it is being written
    /// or was answered, the error states that the change may still be made. While a group is being
    /// written, further requests are rejected immediately.
    pub fn withdraw(&self, ticket: Ticket) -> ChangeError {
        let mut queue = self.queue.lock();
        queue.stuck = queue.busy;
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.ticket == ticket) else {
            let wrong = "the store's disk has not responded in time; the change may still be made";
            let allowed = "check the disk of control.state, and read the current objects before \
                           writing again";
            return ChangeError::new("", wrong, allowed).with_class(ErrorClass::TimedOut);
        };
        let withdrawn = queue.waiting.remove(at);
        drop(queue);
        drop(withdrawn);
        disk("the store's disk has not responded in time; nothing was changed")
    }

    /// Returns whether a queued request was written or rejected. While this is false, published
    /// objects contain none of its changes; once it is true, the answer follows without waiting for
    /// the disk.
    pub fn is_completed(&self, ticket: Ticket) -> bool {
        self.queue.lock().completed >= ticket
    }

    /// Writes submitted requests until [`Shared::close`]. This needs a thread of its own, because
    /// the disk may block it indefinitely.
    pub fn serve(&self) {
        loop {
            {
                let mut queue = self.queue.lock();
                while queue.waiting.is_empty() {
                    if queue.closed {
                        return;
                    }
                    self.arrived.wait(&mut queue);
                }
            }
            self.write_waiting();
        }
    }

    /// Rejects further requests. The writing thread finishes those that are queued, and ends.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Writes all queued requests as one group, and answers them.
    pub fn write_waiting(&self) {
        let mut store = self.store.lock();
        let waiting = {
            let mut queue = self.queue.lock();
            queue.busy = true;
            std::mem::take(&mut queue.waiting)
        };
        let Some((last, now)) = waiting.last().map(|last| (last.ticket, last.request.now)) else {
            self.queue.lock().busy = false;
            return;
        };
        let (mut batches, mut answers, mut complete_sources) = (Vec::new(), Vec::new(), Vec::new());
        for QueuedRequest { request, answer, .. } in waiting {
            batches.push(request.batch);
            complete_sources.push(request.complete_sources);
            answers.push(answer);
        }
        let start = Instant::now();
        let results = store.commit(&batches, now);
        let duration = start.elapsed();
        let completed = complete_sources.into_iter().zip(&results);
        let completed: Vec<Source> = completed
            .filter(|(_, result)| result.is_ok())
            .flat_map(|(sources, _)| sources)
            .collect();
        completed.iter().for_each(|source| store.confirm_source(source));
        {
            // Set before the objects are published, as `is_completed` promises.
            let mut queue = self.queue.lock();
            (queue.busy, queue.stuck, queue.completed) = (false, false, last);
        }
        self.publish(&mut store);
        let bytes = store.bytes();
        drop(store);
        for (answer, result) in answers.into_iter().zip(results) {
            answer(result);
        }
        if let Some(observer) = self.observer.get() {
            observer(Written { measured: (start, duration), completed: &completed, bytes });
        }
    }

    /// Applies the changes, all or none, on this thread, and returns the revision once they are on
    /// disk.
    pub fn change(&self, batch: Batch, now: SystemTime) -> CommitResult {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        self.submit(WriteRequest::new(batch, now), move |answered| drop(sender.send(answered)));
        self.write_waiting();
        let no_answer = |_| Err(ChangeError::new("", "the store did not respond", "try again"));
        answer.recv().unwrap_or_else(no_answer)
    }

    fn publish(&self, store: &mut Store<D>) {
        let events = store.take_events();
        if events.is_empty() {
            return;
        }
        let objects = store.objects().clone();
        let revision = objects.revision();
        let before = {
            let mut published = self.published.lock();
            published.1.append(events);
            std::mem::replace(&mut published.0, objects)
        };
        // Outside the lock: dropping the previous snapshot may take long.
        drop(before);
        self.revision.send_replace(revision);
    }

    /// Returns the newest objects that are on disk.
    pub fn objects(&self) -> Objects {
        self.published.lock().0.clone()
    }

    /// Returns the newest objects that are on disk, and the events after a revision.
    pub fn changes_since(&self, since: u64) -> ObjectChanges {
        let published = self.published.lock();
        let (objects, history) = &*published;
        let events = history.since(since).map(|events| events.cloned().collect());
        ObjectChanges { objects: objects.clone(), events }
    }

    /// Returns a receiver of the newest revision on disk, which is notified when it changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Returns the store itself. Its lock is held while the disk is busy.
    pub fn store(&self) -> MutexGuard<'_, Store<D>> {
        self.store.lock()
    }
}

impl<D: Disk + Send + 'static> Shared<D> {
    /// Starts the thread that runs [`Shared::serve`]. The returned channel closes when the thread
    /// ends.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<std::sync::mpsc::Receiver<()>> {
        let (alive, ended) = std::sync::mpsc::channel::<()>();
        let store = Arc::clone(self);
        std::thread::Builder::new().name("slowpath-store".into()).spawn(move || {
            let _alive = alive;
            store.serve();
        })?;
        Ok(ended)
    }
}

/// Creates the error of a request that comes after [`Shared::close`].
fn closed() -> ChangeError {
    let wrong = "slowpath is shutting down and accepts no more changes";
    ChangeError::new("", wrong, "try again after the restart").with_class(ErrorClass::Disk)
}

/// Creates an error caused by the disk; nothing was changed.
fn disk(wrong: &str) -> ChangeError {
    ChangeError::new("", wrong, "check the disk of control.state, and try again")
        .with_class(ErrorClass::Disk)
}
