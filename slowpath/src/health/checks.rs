//! Access to the health checker of backends: its status rows and counters.

mod start;

pub use start::start;

use std::sync::{Arc, OnceLock};

use health::checker::StatusRequest;
use health::counters::Counters;
use health::report::Row;
use tokio::sync::{mpsc, oneshot};

/// Counters of the health checker, and the channel to it once it runs.
#[derive(Default)]
pub struct Checks {
    requests: OnceLock<mpsc::Sender<StatusRequest>>,
    counters: Arc<Counters>,
}

impl Checks {
    /// Returns the counters of the checker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns a status row for each probed backend; none before the checker runs.
    pub async fn rows(&self) -> Vec<Row> {
        let Some(requests) = self.requests.get() else { return Vec::new() };
        let (request, response) = oneshot::channel();
        match requests.send(request).await {
            Ok(()) => response.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}
