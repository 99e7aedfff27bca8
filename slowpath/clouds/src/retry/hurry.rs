//! Patience that can end: who leaves has no time for what was asked patiently before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Pause, told_to_stop};

/// Says to all that pause by [`Hurry::pause`] that there is no time any more. Clones are one.
#[derive(Clone, Debug)]
pub struct Hurry(watch::Sender<bool>);

impl Default for Hurry {
    fn default() -> Hurry {
        Hurry(watch::Sender::new(false))
    }
}

impl Hurry {
    /// From now on nothing is asked for minutes, and what is, is asked once more at most.
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// Time between attempts, until there is none.
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
        // Later than any patience lasts.
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
