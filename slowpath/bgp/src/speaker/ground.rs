//! Context shared by all parts of a speaker: the runtime, the lifetime of its tasks, and change
//! notification.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::peer::ConnectionId;

/// Shared context; one per speaker.
#[derive(Debug)]
pub(super) struct Ground {
    runtime: Handle,
    /// Signals the end of the speaker, which ends all of its tasks.
    life: watch::Receiver<()>,
    changes: watch::Sender<u64>,
    names: AtomicU64,
}

impl Ground {
    /// Must be called within a tokio runtime.
    pub(super) fn new(life: watch::Receiver<()>) -> Ground {
        Ground {
            runtime: Handle::current(),
            life,
            changes: watch::Sender::new(0),
            names: AtomicU64::new(1),
        }
    }

    /// Starts a task that is canceled when the speaker ends.
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

    /// Returns a connection ID that was never used before.
    pub(super) fn name(&self) -> ConnectionId {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Notifies subscribers of a change.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Subscribes to changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
