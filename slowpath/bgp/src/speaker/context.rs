//! Context shared by all parts of a speaker: the runtime, the end of its tasks, change
//! notification, and connection IDs.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::peer::ConnectionId;

/// Shared context; one per speaker.
#[derive(Debug)]
pub(super) struct SpeakerContext {
    runtime: Handle,
    /// Signals the end of the speaker, which ends all of its tasks.
    shutdown: watch::Receiver<()>,
    /// Number of changes of peers so far ([`super::Speaker::changes`]).
    changes: watch::Sender<u64>,
    /// ID of the next connection.
    next_id: AtomicU64,
}

impl SpeakerContext {
    /// Creates the context. Must be called within a tokio runtime.
    pub(super) fn new(shutdown: watch::Receiver<()>) -> SpeakerContext {
        SpeakerContext {
            runtime: Handle::current(),
            shutdown,
            changes: watch::Sender::new(0),
            next_id: AtomicU64::new(1),
        }
    }

    /// Starts a task that is canceled when the speaker ends.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut shutdown = self.shutdown.clone();
        let task = self.runtime.spawn(async move {
            tokio::select! {
                biased;
                _ = shutdown.changed() => {}
                () = work => {}
            }
        });
        task.abort_handle()
    }

    /// Returns a connection ID that was never used before.
    pub(super) fn next_connection_id(&self) -> ConnectionId {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Notifies subscribers of a change.
    pub(super) fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Subscribes to changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
