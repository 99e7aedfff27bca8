//! A switch that cuts retries short: during shutdown, no request may be retried for minutes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Pause, told_to_stop};

/// Ends the pauses of all clocks made by [`Hurry::pause`]. Clones share one switch.
#[derive(Clone, Debug)]
pub struct Hurry(watch::Sender<bool>);

impl Default for Hurry {
    fn default() -> Hurry {
        Hurry(watch::Sender::new(false))
    }
}

impl Hurry {
    /// Cuts retries short from now on: pauses end at once, and each request is attempted at most
    /// once more.
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// Wraps a clock so that its pauses end when [`Hurry::now`] is called.
    pub fn pause(&self, pause: Arc<dyn Pause>) -> Arc<dyn Pause> {
        Arc::new(Hurried { pause, hurry: self.0.subscribe() })
    }
}

struct Hurried {
    pause: Arc<dyn Pause>,
    hurry: watch::Receiver<bool>,
}

impl Pause for Hurried {
    fn now(&self) -> Duration {
        // Longer than any policy retries, so that the next failure gives up.
        let over = if *self.hurry.borrow() { Duration::from_secs(86_400) } else { Duration::ZERO };
        self.pause.now() + over
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (waited, mut hurry) = (self.pause.wait(pause), self.hurry.clone());
        Box::pin(async move {
            tokio::select! {
                () = waited => {}
                () = told_to_stop(&mut hurry) => {}
            }
        })
    }
}
