//! One store for many writers: whoever waits while the disk is busy shares the next wait.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{Batch, Disk, Store};
use crate::object::{Objects, Refusal};

/// A batch that waits, and its answer when there is one.
pub(super) struct Waiting {
    batch: Batch,
    answer: Arc<Mutex<Option<Result<u64, Refusal>>>>,
}

/// A store that threads share. Cheap readers: a snapshot is taken without waiting for the disk.
pub struct Shared<D> {
    store: Mutex<Store<D>>,
    pub(super) queue: Mutex<Vec<Waiting>>,
    /// The newest objects that are kept for sure.
    published: watch::Sender<Objects>,
}

impl<D: Disk> Shared<D> {
    /// Shares a store.
    pub fn new(store: Store<D>) -> Shared<D> {
        let published = watch::Sender::new(store.objects().clone());
        Shared { store: Mutex::new(store), queue: Mutex::default(), published }
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
        self.published.send_if_modified(|published| {
            let news = published.revision() != store.objects().revision();
            *published = store.objects().clone();
            news
        });
        let own = answer.lock().take();
        own.unwrap_or_else(|| Err(Refusal::new("", "the store gave no answer", "ask again")))
    }

    /// The newest objects that are kept for sure.
    pub fn objects(&self) -> Objects {
        self.published.borrow().clone()
    }

    /// Wakes whoever waits for the next revision.
    pub fn watch(&self) -> watch::Receiver<Objects> {
        self.published.subscribe()
    }

    /// The store itself, for its history and for what sources have forgotten.
    pub fn store(&self) -> MutexGuard<'_, Store<D>> {
        self.store.lock()
    }
}
