//! One store for many writers: whoever waits while the disk is busy shares the next wait.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{Batch, Cut, Damage, Disk, Store};
use crate::object::{Event, History, Objects, Refusal, TooOld};

/// Events that watchers may be behind.
const REMEMBERED: usize = 8_192;

/// A batch that waits, and its answer when there is one.
pub(super) struct Waiting {
    batch: Batch,
    answer: Arc<Mutex<Option<Result<u64, Refusal>>>>,
}

/// A store that threads share. Cheap readers: a snapshot is taken without waiting for the disk.
pub struct Shared<D> {
    store: Mutex<Store<D>>,
    pub(super) queue: Mutex<Vec<Waiting>>,
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
    /// Shares a store.
    pub fn new(store: Store<D>) -> Shared<D> {
        let objects = store.objects().clone();
        let revision = watch::Sender::new(objects.revision());
        let history = History::new(objects.revision(), REMEMBERED);
        let published = Mutex::new((objects, history));
        let (damage, cut) = (store.damage().cloned(), store.cut().cloned());
        let (store, queue) = (Mutex::new(store), Mutex::default());
        Shared { store, queue, published, revision, damage, cut }
    }

    /// Why the store is not used: it has no objects and takes no changes.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// What was cut from the log when it was opened.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Makes the changes, all or none, and answers with the revision when they are kept for sure.
    /// Blocks for as long as the disk takes: not for a thread that must not.
    pub fn change(&self, batch: Batch, now: SystemTime) -> Result<u64, Refusal> {
        let answer = Arc::new(Mutex::new(None));
        self.queue.lock().push(Waiting { batch, answer: answer.clone() });
        let mut store = self.store.lock();
        // Somebody may have taken it along meanwhile.
        if let Some(answer) = answer.lock().take() {
            return answer;
        }
        let waiting = std::mem::take(&mut *self.queue.lock());
        let (batches, theirs): (Vec<Batch>, Vec<_>) =
            waiting.into_iter().map(|waiting| (waiting.batch, waiting.answer)).unzip();
        for (their, answer) in theirs.iter().zip(store.commit(&batches, now)) {
            *their.lock() = Some(answer);
        }
        self.publish(&mut store);
        let own = answer.lock().take();
        own.unwrap_or_else(|| Err(Refusal::new("", "the store gave no answer", "ask again")))
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

    /// The store itself, for what sources have forgotten. It is held while the disk is busy.
    pub fn store(&self) -> MutexGuard<'_, Store<D>> {
        self.store.lock()
    }
}
