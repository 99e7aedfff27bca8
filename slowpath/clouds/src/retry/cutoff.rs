//! A switch that cuts retries short: during a drain, a request must not be retried for minutes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Pause, cancelled};

/// Ends the pauses of all clocks made by [`RetryCutoff::wrap`]. Clones share one switch.
#[derive(Clone, Debug)]
pub struct RetryCutoff(watch::Sender<bool>);

impl Default for RetryCutoff {
    fn default() -> RetryCutoff {
        RetryCutoff(watch::Sender::new(false))
    }
}

impl RetryCutoff {
    /// Cuts retries short from now on: pauses end at once, and a request that has begun before is
    /// attempted at most once more. A request that begins later, before [`RetryCutoff::reset`],
    /// must use [`Policy::ONCE`](super::Policy::ONCE): its elapsed time is not affected, so another
    /// policy would retry it without pauses.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }

    /// Lets requests retry with pauses again, because the drain was canceled.
    pub fn reset(&self) {
        self.0.send_replace(false);
    }

    /// Wraps a clock so that its pauses end while the cutoff is triggered.
    pub fn wrap(&self, pause: Arc<dyn Pause>) -> Arc<dyn Pause> {
        Arc::new(CutoffPause { pause, cutoff: self.0.subscribe() })
    }
}

struct CutoffPause {
    pause: Arc<dyn Pause>,
    cutoff: watch::Receiver<bool>,
}

impl Pause for CutoffPause {
    fn now(&self) -> Duration {
        // A day is longer than any policy retries, so a request that began before the cutoff gives
        // up at its next failure.
        let offset =
            if *self.cutoff.borrow() { Duration::from_secs(86_400) } else { Duration::ZERO };
        self.pause.now() + offset
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (waited, mut cutoff) = (self.pause.wait(pause), self.cutoff.clone());
        Box::pin(async move {
            tokio::select! {
                () = waited => {}
                () = cancelled(&mut cutoff) => {}
            }
        })
    }
}
