//! Writes to the store: each returns once the change is on disk, or after a bounded time with an
//! error that states whether the change may still be made.

use std::time::Duration;

use state::store::{CommitResult, WriteRequest};

use crate::control::Api;

/// Maximum time that a write waits for the store's disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Submits a request to the store and waits for its answer, at most [`TIMEOUT`].
pub(crate) async fn write(api: &Api, request: WriteRequest) -> CommitResult {
    let (ticket, mut answer) = api.store.request(request);
    if let Ok(Ok(result)) = tokio::time::timeout(TIMEOUT, &mut answer).await {
        return result;
    }
    let timed_out = api.store.withdraw(ticket);
    // The answer may have arrived between the timeout and the withdrawal.
    answer.try_recv().unwrap_or(Err(timed_out))
}

/// Same as [`write`], for a thread that may block.
pub(crate) fn write_blocking(api: &Api, request: WriteRequest) -> CommitResult {
    let (sender, answer) = std::sync::mpsc::sync_channel(1);
    let ticket = api.store.submit(request, move |result| drop(sender.send(result)));
    if let Ok(result) = answer.recv_timeout(TIMEOUT) {
        return result;
    }
    let timed_out = api.store.withdraw(ticket);
    answer.try_recv().unwrap_or(Err(timed_out))
}
