//! What all parts of a speaker stand on: the runtime, its life, and who looks at changes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::peer::ConnectionId;

/// One for a speaker.
#[derive(Debug)]
pub(super) struct Ground {
    runtime: Handle,
    /// Ends with the speaker, and all tasks with it.
    life: watch::Receiver<()>,
    changes: watch::Sender<u64>,
    names: AtomicU64,
}

impl Ground {
    /// Within a tokio runtime.
    pub(super) fn new(life: watch::Receiver<()>) -> Ground {
        Ground {
            runtime: Handle::current(),
            life,
            changes: watch::Sender::new(0),
            names: AtomicU64::new(1),
        }
    }

    /// Starts a task that ends with the speaker, wherever it stands then.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut life = self.life.clone();
        let task = self.runtime.spawn(async move {
            tokio::select! {
                biased;
                _ = life.changed() => {}
                () = work => {}
            }
        });
        task.abort_handle()
    }

    /// A name that no connection had.
    pub(super) fn name(&self) -> ConnectionId {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Something is worth a look.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Hears of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
