//! Writing to the store: answered when the change is on disk, or after a bounded time with what is
//! true of it.

use std::time::Duration;

use state::store::{Answer, Order};

use crate::control::Api;

/// How long a write waits for the store's disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hands an order to the store and waits for its answer, at most [`PATIENCE`].
pub(crate) async fn write(api: &Api, order: Order) -> Answer {
    let (ticket, mut answer) = api.store.request(order);
    if let Ok(Ok(answered)) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return answered;
    }
    let unanswered = api.store.give_up(ticket);
    // It may have come in this moment.
    answer.try_recv().unwrap_or(Err(unanswered))
}

/// The same on a thread that may wait.
pub(crate) fn write_blocking(api: &Api, order: Order) -> Answer {
    let (give, answer) = std::sync::mpsc::sync_channel(1);
    let ticket = api.store.submit(order, move |answered| drop(give.send(answered)));
    if let Ok(answered) = answer.recv_timeout(PATIENCE) {
        return answered;
    }
    let unanswered = api.store.give_up(ticket);
    answer.try_recv().unwrap_or(Err(unanswered))
}
