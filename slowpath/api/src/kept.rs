//! Writes to the store: each returns once the change is on disk, or after a bounded time with an
//! error that states whether the change may still be made.

use std::time::Duration;

use state::store::{Answer, Order};

use crate::control::Api;

/// Maximum time that a write waits for the store's disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Submits an order to the store and waits for its answer, at most [`PATIENCE`].
pub(crate) async fn write(api: &Api, order: Order) -> Answer {
    let (ticket, mut answer) = api.store.request(order);
    if let Ok(Ok(answered)) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return answered;
    }
    let unanswered = api.store.give_up(ticket);
    // The answer may have arrived between the timeout and the withdrawal.
    answer.try_recv().unwrap_or(Err(unanswered))
}

/// Same as [`write`], for a thread that may block.
pub(crate) fn write_blocking(api: &Api, order: Order) -> Answer {
    let (give, answer) = std::sync::mpsc::sync_channel(1);
    let ticket = api.store.submit(order, move |answered| drop(give.send(answered)));
    if let Ok(answered) = answer.recv_timeout(PATIENCE) {
        return answered;
    }
    let unanswered = api.store.give_up(ticket);
    answer.try_recv().unwrap_or(Err(unanswered))
}
