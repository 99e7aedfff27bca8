//! One store for many writers. Callers submit batches, one thread writes them, and batches that
//! arrive while the disk is busy share the next sync.
//!
//! Only the thread in [`Shared::serve`] waits for the disk. A caller may stop waiting
//! ([`Shared::give_up`]) and then knows whether its batch can still be made.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use super::{Batch, Cut, Damage, Disk, Store};
use crate::name::Source;
use crate::object::{Event, History, Objects, Refusal, TooOld, Why};

/// Events that watchers may be behind.
const REMEMBERED: usize = 8_192;
/// Batches that may wait for the disk at once.
const WAITING: usize = 4_096;

/// Result of a batch: the revision after it, or why it was not made.
pub type Answer = Result<u64, Refusal>;

/// What is submitted to the store.
pub struct Order {
    /// The changes, made all or none.
    pub batch: Batch,
    /// Time of the changes.
    pub now: SystemTime,
    /// Sources of which the batch brings everything: nothing of theirs is only remembered after it.
    pub settles: Vec<Source>,
}

impl Order {
    /// A batch that settles no source.
    pub fn new(batch: Batch, now: SystemTime) -> Order {
        Order { batch, now, settles: Vec::new() }
    }
}

/// Number of a submitted order. Orders are written in the sequence of their tickets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(u64);

/// An order that waits, and where its answer goes.
pub(super) struct Waiting {
    ticket: Ticket,
    order: Order,
    answer: Box<dyn FnOnce(Answer) + Send>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Waiting>,
    issued: Ticket,
    /// All orders up to this one have their answer or are withdrawn.
    completed: Ticket,
    /// A group is being written.
    busy: bool,
    /// A caller gave up on the group that is being written.
    stuck: bool,
    closed: bool,
}

/// A store that threads share. Reading never waits for the disk.
pub struct Shared<D> {
    store: Mutex<Store<D>>,
    pub(super) queue: Mutex<Queue>,
    arrived: Condvar,
    /// The newest objects that are kept for sure, and what led there.
    published: Mutex<(Objects, History)>,
    revision: watch::Sender<u64>,
    /// As it was opened.
    damage: Option<Damage>,
    cut: Option<Cut>,
}

/// The objects as they are, and what happened since an earlier revision.
#[derive(Debug)]
pub struct News {
    /// All objects, after what happened.
    pub objects: Objects,
    /// What happened, the oldest first; or that it is too long ago.
    pub events: Result<Vec<Event>, TooOld>,
}

impl<D: Disk> Shared<D> {
    /// Shares a store. Nothing is written before a thread runs [`Shared::serve`] or a caller
    /// [`Shared::change`].
    pub fn new(store: Store<D>) -> Shared<D> {
        let objects = store.objects().clone();
        let revision = watch::Sender::new(objects.revision());
        let history = History::new(objects.revision(), REMEMBERED);
        let published = Mutex::new((objects, history));
        let (damage, cut) = (store.damage().cloned(), store.cut().cloned());
        let (store, queue) = (Mutex::new(store), Mutex::default());
        Shared { store, queue, arrived: Condvar::new(), published, revision, damage, cut }
    }

    /// Why the store is not used: it has no objects and takes no changes.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// What was cut from the log when it was opened.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Hands an order to the writing thread; never waits for the disk. `answer` is called once,
    /// after the batch is on disk and published, or was refused: on this thread where the order
    /// cannot be queued, else on the writing thread.
    pub fn submit(&self, order: Order, answer: impl FnOnce(Answer) + Send + 'static) -> Ticket {
        let mut queue = self.queue.lock();
        queue.issued.0 += 1;
        let ticket = queue.issued;
        let wrong = match () {
            () if queue.closed => Some("slowpath is ending and takes no more changes"),
            () if queue.stuck => Some("the store's disk does not answer; nothing was changed"),
            () if queue.waiting.len() >= WAITING => {
                Some("too many changes wait for the store's disk; nothing was changed")
            }
            () => None,
        };
        if let Some(wrong) = wrong {
            drop(queue);
            answer(Err(disk(wrong)));
            return ticket;
        }
        queue.waiting.push(Waiting { ticket, order, answer: Box::new(answer) });
        drop(queue);
        self.arrived.notify_one();
        ticket
    }

    /// The same with a future for the answer; it is dropped without one when the order is
    /// withdrawn.
    pub fn request(&self, order: Order) -> (Ticket, oneshot::Receiver<Answer>) {
        let (give, answer) = oneshot::channel();
        // A caller that has stopped waiting needs no answer.
        let ticket = self.submit(order, move |answered| drop(give.send(answered)));
        (ticket, answer)
    }

    /// Stops waiting for an order, and says what is true of it: not made where it was still
    /// waiting, unknown where it is being written. Until the disk answers again, further orders are
    /// refused at once.
    pub fn give_up(&self, ticket: Ticket) -> Refusal {
        let mut queue = self.queue.lock();
        queue.stuck = queue.busy;
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.ticket == ticket) else {
            let wrong = "the store's disk has not answered in time; the change may still be made";
            let allowed = "look at the disk of control.state, and read what is there before you \
                           write again";
            return Refusal::new("", wrong, allowed).because(Why::Unanswered);
        };
        let withdrawn = queue.waiting.remove(at);
        drop(queue);
        drop(withdrawn);
        disk("the store's disk has not answered in time; nothing was changed")
    }

    /// Whether an order has its answer, or has it in a moment. While it has not, published objects
    /// contain nothing of it.
    pub fn is_completed(&self, ticket: Ticket) -> bool {
        self.queue.lock().completed >= ticket
    }

    /// Writes what is submitted until [`Shared::close`]: for a thread of its own, which a disk may
    /// hold up for any time.
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

    /// Takes no more orders. The writing thread finishes those that wait, and ends.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Writes all that waits as one group.
    pub fn write_waiting(&self) {
        let mut store = self.store.lock();
        let waiting = {
            let mut queue = self.queue.lock();
            queue.busy = true;
            std::mem::take(&mut queue.waiting)
        };
        let Some((last, now)) = waiting.last().map(|last| (last.ticket, last.order.now)) else {
            self.queue.lock().busy = false;
            return;
        };
        let (mut batches, mut answers, mut settles) = (Vec::new(), Vec::new(), Vec::new());
        for Waiting { order, answer, .. } in waiting {
            batches.push(order.batch);
            settles.push(order.settles);
            answers.push(answer);
        }
        let results = store.commit(&batches, now);
        for (sources, _) in settles.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            sources.iter().for_each(|source| store.settled(source));
        }
        {
            // Before the objects are published: see `is_completed`.
            let mut queue = self.queue.lock();
            (queue.busy, queue.stuck, queue.completed) = (false, false, last);
        }
        self.publish(&mut store);
        drop(store);
        for (answer, result) in answers.into_iter().zip(results) {
            answer(result);
        }
    }

    /// Makes the changes, all or none, and returns the revision when they are on disk. Blocks for
    /// as long as the disk takes.
    pub fn change(&self, batch: Batch, now: SystemTime) -> Answer {
        let (give, answer) = std::sync::mpsc::sync_channel(1);
        self.submit(Order::new(batch, now), move |answered| drop(give.send(answered)));
        self.write_waiting();
        let none = |_| Err(Refusal::new("", "the store gave no answer", "ask again"));
        answer.recv().unwrap_or_else(none)
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
            published.1.note(events);
            std::mem::replace(&mut published.0, objects)
        };
        // Without the lock: the snapshot before may take long to be dropped.
        drop(before);
        self.revision.send_replace(revision);
    }

    /// The newest objects that are kept for sure.
    pub fn objects(&self) -> Objects {
        self.published.lock().0.clone()
    }

    /// The newest objects that are kept for sure, and what happened after a revision.
    pub fn news(&self, since: u64) -> News {
        let published = self.published.lock();
        let (objects, history) = &*published;
        let events = history.since(since).map(|events| events.cloned().collect());
        News { objects: objects.clone(), events }
    }

    /// The revision of what is kept for sure; wakes whoever waits for the next.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The store itself. It is locked while the disk is busy.
    pub fn store(&self) -> MutexGuard<'_, Store<D>> {
        self.store.lock()
    }
}

impl<D: Disk + Send + 'static> Shared<D> {
    /// Starts the writing thread. The receiver ends with it.
    ///
    /// # Errors
    /// The system gives no thread.
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

/// A refusal for the disk's sake; nothing was changed.
fn disk(wrong: &str) -> Refusal {
    Refusal::new("", wrong, "look at the disk of control.state, and ask again").because(Why::Disk)
}
